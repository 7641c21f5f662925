"""The interface of every codec, so that no caller has to ask which one a connection speaks."""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from rmq.errors import Refusal
from rmq.net.commands import Answer, PullAnswer, Request, SendAnswer

Address = tuple[str, int]
"""Host and port."""

Context = object
"""What a codec must keep of a request to encode its answer; None if it needs nothing. Only the codec reads it."""


class AnswerFrame(Protocol):
    """An answer whose type is not known before it is matched to its request."""

    def read(self, request_type: type[Request]) -> Answer:
        """The answer to a request of this type. Raises Refusal (the peer said no) or BadBytes."""
        ...


class Stored(Protocol):
    def __call__(self, call_id: int, context: Context, queue_offset: int, place: int, handle: str = "", /) -> bytes:
        """Encodes the answer of one send: the queue offset and the place of its first record. `handle`, in URL-safe Base64:
        recalls a timed one."""
        ...


Received = tuple[Request | Refusal | AnswerFrame | SendAnswer, int, bool, Context, int]
"""One decoded frame: its command, its id, whether it is one-way, its context, its length in bytes.

A Refusal stands where a frame was legal but its content was not: it is to be sent back as the answer to that id. A SendAnswer
stands where a frame would be one, if a send was asked (`native.read_answer`): where many send, nearly all are.
"""


class Greeting(NamedTuple):
    """How a peer introduces itself."""

    client_id: str
    language: str
    version: int


class Codec(Protocol):
    """One way of writing commands into frames. Encoders return whole frames, ready to be written."""

    def decode(self, data: bytes, begin: int, stop: int) -> Received:
        """`data[begin:stop]`: one whole frame without its length, as it lies in what a read brought. Raises BadBytes if the
        connection is beyond repair."""
        ...

    def alike(self, data: bytes, at: int, length: int) -> list[Received]:
        """What `decode` would make of the frames from `at` on which have this length, as far as they are sends, or pulls, written
        in one way that is known: cut by one call. Empty if the first one is no such request. At least one is whole."""
        ...

    def answer(self, call_id: int, context: Context, answer: Answer, remark: str) -> bytes: ...

    def found(self, call_id: int, context: Context, answer: PullAnswer, remark: str) -> tuple[bytes, ...]:
        """The same in pieces, one of them the messages as they are, which are many bytes."""
        ...

    def stored(self, queue_id: int, status: int) -> "Stored":
        """Encodes the answers of several sends that were stored in one queue."""
        ...

    def done(self, context: Context) -> Callable[[int], bytes]:
        """Encodes success and nothing else, of the ids of requests with this context."""
        ...

    def refusal(self, call_id: int, context: Context, refusal: Refusal) -> bytes: ...

    def request(self, request: Request, call_id: int, oneway: bool) -> bytes: ...

    def greet(self, first: object, context: Context) -> Greeting | None:
        """The peer's introduction in its first command; None if the command may be served but introduces nobody.

        Raises Refusal if the peer must introduce itself first, or speaks no version we speak.
        """
        ...


def decode_frame(codec: Codec, frame: bytes) -> Received:
    """One whole frame that is there alone, without its length. Raises BadBytes as `Codec.decode`."""
    return codec.decode(frame, 0, len(frame))

"""Commands about the connection itself. Native codec only. Pure."""

from typing import NamedTuple

from rmq.codes import RequestCode
from rmq.net.commands.vocabulary import command


class HelloAnswer(NamedTuple):
    """`version`: the highest native version both sides speak. `store_host`: "ip:port" inside message ids. `traced`: whether
    clients that trace write traces of this broker's messages."""

    version: int
    cluster: str = ""
    broker_name: str = ""
    broker_id: int = 0
    store_host: str = ""
    max_message_bytes: int = 4 * 1024 * 1024
    traced: bool = True


@command(RequestCode.HELLO, HelloAnswer)
class Hello(NamedTuple):
    """First request of a native connection. `version`: the highest native version the client speaks."""

    version: int
    client_id: str = ""
    language: str = "PYTHON"
    client_version: int = 513


@command(RequestCode.PING, None)
class Ping(NamedTuple):
    """Asks whether a node answers. Every role does, before anything else is checked."""


@command(RequestCode.GOODBYE, None)
class Goodbye(NamedTuple):
    """Broker to client, one-way, its last command: the node stops. Requests without an answer were not done: ask another node."""


class LoginAnswer(NamedTuple):
    """`message`: SCRAM's next one of the server."""

    message: str


@command(RequestCode.BEGIN_LOGIN, LoginAnswer)
class BeginLogin(NamedTuple):
    """`message`: SCRAM's first one of the client (`rmq.scram`). At any time, also to log in again."""

    message: str


@command(RequestCode.FINISH_LOGIN, LoginAnswer)
class FinishLogin(NamedTuple):
    """`message`: SCRAM's last one of the client. Whoever asks this with success is that user on this connection."""

    message: str


@command(RequestCode.SIGNED_LOGIN, None)
class SignedLogin(NamedTuple):
    """Of a proxy, for one of its clients: that has signed the `time` (HMAC-SHA1 with its password), as RocketMQ's gRPC clients do
    with each request. The connection belongs to that user then. At any time, also for another signature or user."""

    user: str
    time: str
    signature: bytes

    def __repr__(self) -> str:
        return f"SignedLogin({self.user!r}, {self.time!r})"  # the signature never ends (S12)

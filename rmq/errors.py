"""Everything that can go wrong, in few classes.

Three kinds of wrong (see docs/contributing): a peer's *refusal* carries its wire code; *bad bytes* say where they
were; a *bug* is an assertion and ends the process. Callers read the flags `retryable` and `refresh_routes`, never a
list of codes. No I/O here.
"""

from collections.abc import Iterable

from rmq.codes import ResponseCode


class RmqError(Exception):
    """Base of all errors of this package.

    `retryable`: the same call may succeed if made again, and making it again is safe (nothing was done).
    `refresh_routes`: the caller's idea of who serves the topic is probably old.
    `request`: the id of the request that it answers, which stands in the other side's log, too; "" if there was none.
    `passing`: nothing was done, and another node serves it now or will in a moment: worth trying until the time is up.
    """

    request: str = ""
    retryable: bool = False
    refresh_routes: bool = False
    passing: bool = False

    @property
    def may_pass(self) -> bool:
        """`passing`, or its outcome is not known: worth another try of what may be done twice."""
        return self.passing


_RETRYABLE = frozenset(
    {  # DefaultMQProducer.retryResponseCodes, as far as we answer them
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.NO_PERMISSION,
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.FLOW_CONTROL,
        ResponseCode.SUBSCRIPTION_NOT_LATEST,
    }
)
_NAMES = {int(code): code.name for code in ResponseCode}
_REFRESH = frozenset({ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.NO_PERMISSION, ResponseCode.TOPIC_NOT_EXIST})


class Refusal(RmqError):
    """The other side understood the request and said no; nothing was stored or changed.

    `code` is RocketMQ's response code, `remark` its text, `hint` the address that may serve instead ("" if unknown), `wait_ms`
    how long to wait before the next try (0: nothing was said).
    """

    def __init__(self, code: int, remark: str, hint: str = "", wait_ms: int = 0) -> None:
        super().__init__(code, remark, hint)
        self.code = code
        self.remark = remark
        self.hint = hint
        self.wait_ms = wait_ms
        self.retryable = code in _RETRYABLE
        self.refresh_routes = code in _REFRESH
        self.passing = code == ResponseCode.SERVICE_NOT_AVAILABLE

    def __str__(self) -> str:
        about = f" (request {self.request})" if self.request else ""
        return f"{_NAMES.get(self.code, 'CODE')} ({self.code}): {self.remark.strip()}{about}"


class NotLeading(Refusal):
    """This node does not lead its group: nothing was done here, and the leader would do it. `hint`: where it is, if known.
    `here_too`: this node answers it itself when nobody leads."""

    def __init__(self, remark: str, hint: str = "", here_too: bool = False) -> None:
        super().__init__(ResponseCode.SERVICE_NOT_AVAILABLE, remark, hint)
        self.here_too = here_too


class NotThere(Refusal):
    """There is nothing of what was asked about. Who looks at everything hears it of much, again and again: no line of a log."""


OUTCOME_UNKNOWN = "outcome unknown"  # so begins the remark of a node that lost leadership before it knew
LOG_IN_AGAIN = "log in again"  # so ends the remark of a node that knew this login, and takes it no more


class Unknown(RmqError):
    """The request left, no answer came (timeout, broken link): it may or may not have been carried out (C19)."""

    may_pass: bool = True


class Unreachable(RmqError):
    """No connection, or the request was never written: nothing happened at the other side."""

    retryable = True
    refresh_routes = True
    passing = True


class BadBytes(RmqError):
    """Bytes from a peer or a disk that are not what they should be; the message says where they were."""


class InvalidArgument(RmqError, ValueError):
    """The caller's own mistake: a name, size or option outside its limits. The message says what is allowed."""


class StoreError(RmqError):
    """The store cannot do it: disk full, failed flush, locked or damaged directory. The message says what to do."""


class NoRoom(StoreError):
    """The disk takes no bytes now (no space, a quota, read only): what was to be written may be tried again."""


class PerhapsStored(StoreError):
    """An append failed and could not be undone: after a restart its records may be found."""


OTHER_LOOP = (
    "a client belongs to the event loop in which it was entered, and this is another loop or thread: "
    "from there call asyncio.run_coroutine_threadsafe(producer.send(...), loop)"
)
OTHER_PROCESS = "this client was made before a fork (as by gunicorn --preload): make a client of its own in each child"


class Closed(RmqError):
    """The client or node has been closed."""


class NoPeersPort(OSError):
    """The nodes of the group cannot be listened to at this port."""

    def __init__(self, error: OSError, port: int) -> None:
        super().__init__(error.errno, error.strerror)
        self.port = port


def sayable(text: str) -> str:
    """Half characters by their codes, as in `/st\\udcf6`: paths that are no UTF-8 have them, frames and JSON take none."""
    return text.encode(errors="backslashreplace").decode()


def saying_more(error: RmqError, about: str) -> RmqError:
    """The same error, with that behind its text."""
    if isinstance(error, Refusal):
        error.remark += about
        return error
    return type(error)(f"{error}{about}")


def done_in_part(first: RmqError, failures: Iterable[BaseException], done: object, about: str) -> RmqError:
    """The first of several failures, with that behind its text; `partly` where some was `done`, or may be."""
    unsure = done or any(isinstance(each, Unknown) for each in failures)
    return saying_more(partly(first) if unsure else first, about)


def partly(error: RmqError) -> RmqError:
    """The same error where some of it was done before: who hears that nobody could be reached would do all of it again."""
    return Unknown(str(error)) if isinstance(error, Unreachable) else error


def same_trouble(text: str, before: str) -> bool:
    """Whether two tries failed alike, by what was said of each: a request has a number of its own each time."""
    return text.partition(" (request ")[0] == before.partition(" (request ")[0]


def no_topic(topic: str, about: str = "") -> Refusal:
    """Where a topic is not there. `about` goes on: what to do, or since when."""
    return Refusal(ResponseCode.TOPIC_NOT_EXIST, f"topic {topic} does not exist{about}")


def no_group(group: str, about: str = "") -> Refusal:
    """The same of a consumer group."""
    return Refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"consumer group {group} does not exist{about}")


def being_deleted(what: str) -> Refusal:
    """Where a deletion of `what` ("topic T") is on its way, which may still come to nothing."""
    return Refusal(ResponseCode.SYSTEM_BUSY, f"{what} is being deleted: try again in a moment")

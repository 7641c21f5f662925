"""What is answered: statuses of RocketMQ's gRPC protocol, and which error is which of them [ResponseBuilder]."""

from typing import Any

from rmq.client.shared.message import SendStatus
from rmq.codes import ResponseCode
from rmq.errors import InvalidArgument, Refusal, RmqError, Unknown, Unreachable
from rmq.grpc.schema import v2

Code = v2.Code
_REFUSALS: dict[int, int] = {
    ResponseCode.SYSTEM_BUSY: Code.TOO_MANY_REQUESTS,
    ResponseCode.FLOW_CONTROL: Code.TOO_MANY_REQUESTS,
    ResponseCode.MESSAGE_ILLEGAL: Code.BAD_REQUEST,
    ResponseCode.NO_PERMISSION: Code.FORBIDDEN,
    ResponseCode.TOPIC_NOT_EXIST: Code.TOPIC_NOT_FOUND,
    ResponseCode.SUBSCRIPTION_PARSE_FAILED: Code.ILLEGAL_FILTER_EXPRESSION,
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: Code.CONSUMER_GROUP_NOT_FOUND,
    ResponseCode.INVALID_PARAMETER: Code.BAD_REQUEST,
    ResponseCode.NO_MESSAGE: Code.INVALID_RECEIPT_HANDLE,
    ResponseCode.ILLEGAL_OPERATION: Code.BAD_REQUEST,
    ResponseCode.SERVICE_NOT_AVAILABLE: Code.HA_NOT_AVAILABLE,
    ResponseCode.REQUEST_CODE_NOT_SUPPORTED: Code.NOT_IMPLEMENTED,
    ResponseCode.LITE_SUBSCRIPTION_QUOTA_EXCEEDED: Code.LITE_SUBSCRIPTION_QUOTA_EXCEEDED,
}
STORED = {
    SendStatus.SEND_OK: Code.OK,
    SendStatus.FLUSH_DISK_TIMEOUT: Code.MASTER_PERSISTENCE_TIMEOUT,
    SendStatus.SLAVE_NOT_AVAILABLE: Code.HA_NOT_AVAILABLE,
    SendStatus.FLUSH_SLAVE_TIMEOUT: Code.SLAVE_PERSISTENCE_TIMEOUT,
}


class Wrong(Exception):
    """A request that is refused at the door."""

    def __init__(self, code: int, about: str) -> None:
        super().__init__(about)
        self.code = code


def unreadable() -> Wrong:
    return Wrong(Code.BAD_REQUEST, "the request cannot be read: it is no message of this kind")


def status(code: int = Code.OK, about: str = "OK") -> Any:
    return v2.Status(code=code, message=about)


def status_of(error: Exception) -> Any:
    """Of an error that the cluster, or the door, gave as the answer."""
    about = str(error)
    if isinstance(error, Wrong):
        return status(error.code, about)
    if isinstance(error, Refusal):
        return status(_REFUSALS.get(error.code, Code.INTERNAL_SERVER_ERROR), about)
    if isinstance(error, InvalidArgument):
        return status(Code.BAD_REQUEST, about)
    if isinstance(error, Unreachable):
        return status(Code.HA_NOT_AVAILABLE, about)
    if isinstance(error, Unknown):
        return status(Code.PROXY_TIMEOUT, about)
    assert isinstance(error, RmqError)
    return status(Code.INTERNAL_SERVER_ERROR, about)


def overall(found: list[Any]) -> Any:
    """Of several: theirs if they have one code."""
    codes = {each.code for each in found}
    return found[0] if len(codes) == 1 else status(Code.MULTIPLE_RESULTS, "each entry says it")

"""Replies to messages that ask for one: to the broker, and from it to who asked. Native and remoting codec. Pure."""

from typing import NamedTuple

from rmq.codes import RequestCode
from rmq.net.commands.messages import SendAnswer
from rmq.net.commands.vocabulary import command

CORRELATION_ID, REPLY_TO_CLIENT, TTL, MSG_TYPE = "CORRELATION_ID", "REPLY_TO_CLIENT", "TTL", "MSG_TYPE"
REPLY = "reply"  # the MSG_TYPE of one


@command(RequestCode.SEND_REPLY_MESSAGE_V2, SendAnswer)
class SendReply(NamedTuple):
    """One record, as of `Send`, whose property `REPLY_TO_CLIENT` names the client that asked, and `CORRELATION_ID` its question.

    Stored in its topic (`<cluster>_REPLY_TOPIC`) and handed to that client; answered when the client has it. SYSTEM_ERROR: it
    is stored, but no such producer is connected here.
    """

    producer_group: str
    topic: str
    queue_id: int
    records: bytes
    unit_mode: bool = False


@command(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, None)
class PushReply(NamedTuple):
    """Broker to client: the reply to what it asked. `message` is the body."""

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: int
    queue_id: int
    sys_flag: int
    born_timestamp: int
    flag: int
    properties: str
    reconsume_times: int
    unit_mode: bool
    born_host: str
    store_host: str
    store_timestamp: int
    message: bytes = b""


ReplyRequest = SendReply | PushReply

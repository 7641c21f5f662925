"""Commands of POP consumption: messages are handed out for a time, with a receipt. Native and remoting codec. Pure.

A receipt (`extra_info`) is text: start offset, pop time, invisible time, revive queue, retry flag, broker name, queue,
queue offset, joined by blanks [ExtraInfoUtil]. All times are milliseconds.
"""

from typing import NamedTuple

from rmq.codes import RequestCode
from rmq.model import MessageQueue
from rmq.net.commands.vocabulary import command


class PopAnswer(NamedTuple):
    """`status` 0: `messages` are stored records, back to back. 209, 210 (of a peek 19): none.

    `start_offset_info` ("flag queue start;...") and `msg_offset_info` ("flag queue offset,offset;...") say which they are,
    in the order of the messages; the client makes the receipts of them. `rest_num`: how many were left.
    """

    pop_time: int
    invisible_time: int
    revive_qid: int
    rest_num: int
    start_offset_info: str = ""
    msg_offset_info: str = ""
    order_count_info: str = ""
    messages: bytes = b""
    status: int = 0


@command(RequestCode.POP_MESSAGE, PopAnswer)
class Pop(NamedTuple):
    """Messages of one queue, or of any (-1), that nobody else of the group gets for `invisible_time`.

    Held for `poll_time` from `born_time` on when nothing is there. `init_mode`: where a new group begins, 0 at the first
    message, 1 at the last. `order`: a queue waits until all of it that was handed out is acknowledged.
    """

    consumer_group: str
    topic: str
    queue_id: int
    max_msg_nums: int
    invisible_time: int
    poll_time: int
    born_time: int
    init_mode: int
    exp_type: str = "TAG"
    exp: str = "*"
    order: bool = False
    attempt_id: str = ""


@command(RequestCode.ACK_MESSAGE, None)
class Ack(NamedTuple):
    """The message of this receipt is consumed. NO_MESSAGE if there is none at that offset; repeating is no error."""

    consumer_group: str
    topic: str
    queue_id: int
    extra_info: str
    offset: int


class AckedRange(NamedTuple):
    """The consumed messages of one pop of one queue: bit i (little-endian) of `bits` stands for offset `start_offset` + i."""

    consumer_group: str
    topic: str
    retry: str
    start_offset: int
    queue_id: int
    revive_queue_id: int
    pop_time: int
    invisible_time: int
    bits: bytes


@command(RequestCode.BATCH_ACK_MESSAGE, None)
class BatchAck(NamedTuple):
    """As many `Ack`s in one; what is not there is passed over. NO_MESSAGE when there is none in it."""

    broker_name: str
    acks: list[AckedRange]


class InvisibleTimeAnswer(NamedTuple):
    """The parts of the message's new receipt; its start offset is the message's own."""

    pop_time: int
    invisible_time: int
    revive_qid: int


@command(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, InvisibleTimeAnswer)
class ChangeInvisibleTime(NamedTuple):
    """The message of this receipt comes back `invisible_time` from now unless it is acknowledged with the new receipt."""

    consumer_group: str
    topic: str
    queue_id: int
    extra_info: str
    offset: int
    invisible_time: int
    suspend: bool = False


@command(RequestCode.PEEK_MESSAGE, PopAnswer)
class Peek(NamedTuple):
    """Asks for the messages that a pop would get, without taking them."""

    consumer_group: str
    topic: str
    queue_id: int
    max_msg_nums: int


class NotificationAnswer(NamedTuple):
    has_msg: bool
    polling_full: bool = False


@command(RequestCode.NOTIFICATION, NotificationAnswer)
class Notification(NamedTuple):
    """Asks whether there is something to pop. Held for `poll_time` from `born_time` on as long as there is nothing."""

    consumer_group: str
    topic: str
    queue_id: int
    poll_time: int
    born_time: int
    order: bool = False
    attempt_id: str = ""
    exp_type: str = "TAG"
    exp: str = "*"


class PollingInfoAnswer(NamedTuple):
    polling_num: int


@command(RequestCode.POLLING_INFO, PollingInfoAnswer)
class PollingInfo(NamedTuple):
    """How many pops of this queue are held."""

    consumer_group: str
    topic: str
    queue_id: int


class Assignment(NamedTuple):
    """`mode`: PULL or POP. Queue -1: all queues of this broker."""

    queue: MessageQueue
    mode: str


class Assignments(NamedTuple):
    """Not `known`: the broker does not know the group or the strategy, and the client keeps its queues."""

    queues: list[Assignment]
    known: bool = True


@command(RequestCode.QUERY_ASSIGNMENT, Assignments)
class QueryAssignment(NamedTuple):
    """Which queues of the topic this client reads, and how: the broker divides them, not the clients."""

    topic: str
    consumer_group: str
    client_id: str
    strategy_name: str = "AVG"
    message_model: str = "CLUSTERING"


@command(RequestCode.SET_MESSAGE_REQUEST_MODE, None)
class SetRequestMode(NamedTuple):
    """How a group reads a topic: `mode` PULL or POP; `pop_share_queue_num`: queues that each member shares with others."""

    topic: str
    consumer_group: str
    mode: str = "PULL"
    pop_share_queue_num: int = 0


PopRequest = Pop | Ack | BatchAck | ChangeInvisibleTime | Peek | Notification | PollingInfo | QueryAssignment | SetRequestMode
PopRelatedAnswer = PopAnswer | InvisibleTimeAnswer | NotificationAnswer | PollingInfoAnswer | Assignments

"""Sending and pulling. Pure."""

from collections.abc import Sequence
from typing import NamedTuple, cast

from rmq.codes import RequestCode
from rmq.net.commands.vocabulary import command


class SendAnswer(NamedTuple):
    """`status`: 0, 10, 11 or 12 (all mean stored). Offsets are those of the first record of the request.

    For a delayed message they say where it waits. `recall_handle`: recalls a timed message. `batch_id`: all records of the
    request are one in the log, which goes by that id.
    """

    queue_id: int
    queue_offset: int
    physical_offset: int
    status: int = 0
    recall_handle: str = ""
    batch_id: str = ""


@command(RequestCode.SEND_MESSAGE_V2, SendAnswer)
class Send(NamedTuple):
    """One or more records in store format, back to back, for one queue; stored together or not at all.

    Each record is a draft as `rmq.log.records.record.draft` makes it: fields that are the broker's are blank, the properties
    end with the 20 bytes of the CRC property. `queue_id` < 0: the broker chooses. `default_topic*`: how to make the
    topic if it is missing; `unit_mode`: it is then of a unit. `batch` only tells how the remoting codec writes it and that batch
    rules apply.
    """

    producer_group: str
    topic: str
    queue_id: int
    records: bytes
    reconsume_times: int = 0
    default_topic: str = "TBW102"
    default_topic_queue_nums: int = 4
    batch: bool = False
    max_reconsume_times: int = -1
    unit_mode: bool = False


class DraftedSend(Send):
    """A send whose records the remoting codec made and checked. No codec encodes it.

    One element more than `Send`: the hash of the record's tag; of a batch the sizes and the hashes of all. With
    what is known of a message that is to wait, the record is not what was sent, but what waits for it.
    """

    __slots__ = ()

    @property
    def tags_code(self) -> "int | Parts | Pending":
        return cast("int | Parts | Pending", tuple.__getitem__(self, 10))


Parts = tuple[Sequence[int], Sequence[int]]
"""Sizes of records, and the hashes of their tags."""


class Waits(NamedTuple):
    """What is known of a half: the hash of its tag, and the group of its producers."""

    tags_code: int
    group: str


class Delayed(NamedTuple):
    """What is known of a message with a delay level."""

    level: int


class Scheduled(NamedTuple):
    """What is known of a message with a time of its own: the hash of its tag, its unique id, the time in ms, and whether that
    counts from now on. In its record `out_at` is where the digits of TIMER_OUT_MS go."""

    tags_code: int
    unique_id: str
    ms: int
    is_delay: bool
    out_at: int


Pending = Waits | Delayed | Scheduled


PULL_COMMIT_OFFSET, PULL_SUSPEND, PULL_SUBSCRIPTION = 1, 2, 4  # sys_flag bits [PullSysFlag]


class PullAnswer(NamedTuple):
    """`status` 0: `messages` are stored records, back to back, as they lie in the log. 19, 20, 21: none (remark says why).

    `next_begin_offset`: the offset of the next pull, behind everything that was *examined*.
    """

    next_begin_offset: int
    min_offset: int
    max_offset: int
    messages: bytes = b""
    status: int = 0
    suggest_which_broker_id: int = 0


@command(RequestCode.PULL_MESSAGE, PullAnswer)
class Pull(NamedTuple):
    """`sys_flag`: PULL_* bits. `suspend_timeout_millis`: how long it may be held when nothing is there. `after`: where in the
    log the message before `queue_offset` stood when it was read (-1: unknown). `request_source`: a proxy tells for whom it asks
    [RequestSource], and which client of its own that is."""

    consumer_group: str
    topic: str
    queue_id: int
    queue_offset: int
    max_msg_nums: int = 32
    sys_flag: int = PULL_SUSPEND | PULL_SUBSCRIPTION
    commit_offset: int = 0
    suspend_timeout_millis: int = 15_000
    subscription: str = "*"
    sub_version: int = 0
    expression_type: str = "TAG"
    max_msg_bytes: int = 0
    after: int = -1
    request_source: int = -1
    proxy_client_id: str = ""

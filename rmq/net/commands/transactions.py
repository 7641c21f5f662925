"""Commands about messages that are sent in a transaction. Native and remoting codec. Pure."""

from typing import NamedTuple

from rmq.codes import RequestCode
from rmq.net.commands.vocabulary import command

UNKNOWN, COMMIT, ROLLBACK = 0, 8, 12  # `commit_or_rollback` [MessageSysFlag]


@command(RequestCode.END_TRANSACTION, None)
class EndTransaction(NamedTuple):
    """The end of a half message: 8: deliver it, 12: drop it, 0: nobody knows yet.

    `tran_state_table_offset` is the queue offset that its send (or a check) named, `commit_log_offset` its place in the log.
    Answered when it is committed; a repeat gets the same answer. ILLEGAL_OPERATION: the opposite was decided before. `topic`
    means nothing: clients of RocketMQ with a namespace leave that out.
    """

    producer_group: str
    tran_state_table_offset: int
    commit_log_offset: int
    commit_or_rollback: int
    msg_id: str
    from_transaction_check: bool = False
    transaction_id: str = ""
    topic: str = ""


@command(RequestCode.CHECK_TRANSACTION_STATE, None)
class CheckTransactionState(NamedTuple):
    """Broker to client, one-way: was this transaction carried out? The answer is an `EndTransaction` with the same offsets.

    `message`: the half as it is stored, with its real topic.
    """

    topic: str
    tran_state_table_offset: int
    commit_log_offset: int
    msg_id: str = ""
    transaction_id: str = ""
    offset_msg_id: str = ""
    bname: str = ""
    message: bytes = b""


@command(RequestCode.RESUME_CHECK_HALF_MESSAGE, None)
class ResumeCheck(NamedTuple):
    """Resumes the checks of a half message that was put aside after too many of them.

    `msg_id`: its id in TRANS_CHECK_MAX_TIME_TOPIC.
    """

    topic: str
    msg_id: str


class OpenHalf(NamedTuple):
    """`queue_offset`: where its newest append lies in RMQ_SYS_TRANS_HALF_TOPIC, queue 0. `since_ms`: when it was stored first.
    `checks`: how often its producer was asked. `aside_ms`: when it is put aside if nobody ends it, about. Both times: Unix ms."""

    queue_offset: int
    producer_group: str
    since_ms: int
    checks: int
    aside_ms: int


class OpenHalves(NamedTuple):
    """`total`: how many wait, also of those that are not in `halves`, which begins with the oldest."""

    total: int
    halves: list[OpenHalf]


@command(RequestCode.LIST_HALVES, OpenHalves)
class ListHalves(NamedTuple):
    """Which transactions nobody has ended yet. `producer_group`: only those of that group, "": of all. `most`: at most so many,
    and no more than 1 000."""

    producer_group: str = ""
    most: int = 100


TransactionRequest = EndTransaction | CheckTransactionState | ResumeCheck | ListHalves
TransactionAnswer = OpenHalves

"""Commands about locks of queues (ordered consumption). Native and remoting codec. Pure."""

from typing import NamedTuple

from rmq.codes import RequestCode
from rmq.model import MessageQueue
from rmq.net.commands.vocabulary import command

MAX_QUEUES = 2000  # in one request; the lines of one state record


class LockedQueues(NamedTuple):
    """The requested queues that the client holds now [LockBatchResponseBody]."""

    queues: list[MessageQueue]


@command(RequestCode.LOCK_BATCH_MQ, LockedQueues)
class LockQueues(NamedTuple):
    """The client wants these queues (2000 at most) for itself within its group, or keeps those it holds. A lock ends 60 s
    after it was last asked for, or with `UnlockQueues`; the answer leaves out queues that another client holds."""

    consumer_group: str
    client_id: str
    queues: list[MessageQueue]


@command(RequestCode.UNLOCK_BATCH_MQ, None)
class UnlockQueues(NamedTuple):
    """Gives up those of these queues (2000 at most) that the client holds."""

    consumer_group: str
    client_id: str
    queues: list[MessageQueue]

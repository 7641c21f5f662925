"""What clients report of themselves when a tool asks; `rmq.net.remoting.reports` writes and reads their JSON. Pure."""

from typing import Final, NamedTuple

from rmq.model import MessageQueue, Subscription

# Properties of a consumer that RocketMQ's tools look at [ConsumerRunningInfo].
CONSUME_TYPE: Final = "PROP_CONSUME_TYPE"
ORDERED: Final = "PROP_CONSUMEORDERLY"
THREADS: Final = "PROP_THREADPOOL_CORE_SIZE"
STARTED_MS: Final = "PROP_CONSUMER_START_TIMESTAMP"
NAMESERVERS: Final = "PROP_NAMESERVER_ADDR"
VERSION: Final = "PROP_CLIENT_VERSION"
NOW_MS: Final = "PROP_CLIENT_TIMESTAMP"  # only our clients say it: the member's clock may be another than the tool's


class HeldQueue(NamedTuple):
    """One queue that a consumer holds [ProcessQueueInfo]. `commit_offset`: -1: none. Times in Unix ms, 0: never."""

    commit_offset: int = -1
    cached_msg_min_offset: int = 0
    cached_msg_max_offset: int = 0
    cached_msg_count: int = 0
    cached_msg_size_in_mi_b: int = 0
    locked: bool = False
    last_lock_timestamp: int = 0
    droped: bool = False
    last_pull_timestamp: int = 0
    last_consume_timestamp: int = 0


class TopicRates(NamedTuple):
    """What a consumer did with one topic in the last minute [ConsumeStatus]: ms each, a second, and `consume_failed_msgs` in the
    last hour."""

    pull_rt: float = 0.0
    pull_tps: float = 0.0
    consume_rt: float = 0.0
    consume_ok_tps: float = 0.0
    consume_failed_tps: float = 0.0
    consume_failed_msgs: int = 0


class RunningInfo(NamedTuple):
    """How one consumer is doing [ConsumerRunningInfo]. `stacks`: as text, "" if nobody asked for them."""

    properties: dict[str, str] = {}
    subscriptions: list[Subscription] = []
    queues: dict[MessageQueue, HeldQueue] = {}
    rates: dict[str, TopicRates] = {}
    stacks: str = ""


class Handled(NamedTuple):
    """What became of a message that a consumer was told to handle [ConsumeMessageDirectlyResult].

    `consume_result`: CR_SUCCESS, CR_LATER, CR_ROLLBACK, CR_COMMIT, CR_THROW_EXCEPTION, CR_RETURN_NULL. `remark`: why.
    """

    consume_result: str
    remark: str = ""
    spent_time_mills: int = 0
    order: bool = False
    auto_commit: bool = True

"""A client's settings. Plain values, checked when made; the defaults are RocketMQ's where it has one."""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path

from rmq import names
from rmq.client.shared.observers import Observer
from rmq.client.shared.traceformat import TRACE_TOPIC
from rmq.errors import InvalidArgument, Refusal


def _offsets_directory() -> Path:
    """At the root where this user has no home (a number alone, as in a container, and no HOME): who may not write there is told
    when a broadcast consumer keeps something."""
    try:
        home = Path.home()
    except RuntimeError:
        home = Path("/")
    return home / ".rmq-offsets"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """All times in seconds. Raises InvalidArgument for a time that is not positive, or a topic that cannot be."""

    request_timeout_s: float = 3.0
    connect_timeout_s: float = 3.0
    heartbeat_s: float = 30.0
    route_refresh_s: float = 30.0
    rebalance_s: float = 20.0
    commit_s: float = 5.0
    suspend_s: float = 15.0  # how long a broker may hold a pull that finds nothing
    hand_over_s: float = 1.0  # a queue that another member may still hold is taken after this time
    drain_timeout_s: float = 30.0  # how long close() waits for handlers
    offsets_directory: Path = field(default_factory=_offsets_directory)  # broadcast consumers keep their offsets here
    zone: str = ""  # only brokers of this zone are used [ROCKETMQ_ZONE with ROCKETMQ_ZONE_MODE]; "": all
    trace: bool = False  # what is sent and consumed is written into `trace_topic` [enableMsgTrace]
    trace_topic: str = TRACE_TOPIC  # [customizedTraceTopic]
    observers: Sequence[Observer] = ()  # are told of what is sent and consumed, as `rmq.client.spans.Spans()`

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if each.name.endswith("_s") and not (value > 0 or each.name == "hand_over_s"):
                raise InvalidArgument(f"{each.name} is {value}: give a number of seconds above 0")
        try:
            names.check_known_topic(self.trace_topic)
        except Refusal as refusal:
            raise InvalidArgument(f"trace_topic: {refusal.remark}") from None

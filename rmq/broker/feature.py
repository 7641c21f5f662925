"""A feature: one thing that a broker does, with everything that belongs to it (docs/decisions/broker-of-features.md)."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from enum import Enum
from types import MappingProxyType
from typing import Any, NamedTuple

from rmq.config.settings import NodeSettings
from rmq.guard.audit import States
from rmq.measures import Family
from rmq.net.transport.connection import Take
from rmq.net.transport.server import Connection, Handler


class At(Enum):
    """Where a job runs."""

    LEADER = "leader"
    WRITABLE = "writable"  # every node whose store may be written
    EVERYWHERE = "everywhere"


Seconds = float | Callable[[], float]


class Job(NamedTuple):
    """`work` is done every `seconds` (or what that says before each wait), the first time after `first_s`. `at_stop`: a leader
    does it once more when it stops. `lasts`: while a stop waits for other jobs, too."""

    seconds: Seconds
    name: str
    work: Callable[[], Awaitable[None] | None]
    at: At = At.LEADER
    at_stop: bool = False
    first_s: float | None = None  # as long as `seconds`
    lasts: bool = False


class Export(NamedTuple):
    """A file of RocketMQ's. `value()` is what it should hold now: bytes, a JSON value, or what makes that from a copy in a
    thread, given a `staged.Between`: with hundreds of thousands of rows it takes seconds. None: no such file is needed; one that
    is there holds `empty` then, if that says how. As long as `version()` stays the same the value does, too; without one it is
    looked at each time."""

    value: Callable[[], object]
    version: Callable[[], object] | None = None
    empty: object = None


class Feature:
    """Everything is optional. All is called on the event loop.

    `handlers`: by request. `takes`: who takes many usual ones together. `states`: of what administrative requests change, for the
    audit log. `jobs`: what it does every so often. `exports`: by file name. `carries`: where `carry_forward` is called.
    """

    handlers: Mapping[type[Any], Handler] = MappingProxyType({})
    takes: Mapping[type[Any], Take] = MappingProxyType({})
    states: States = MappingProxyType({})
    jobs: Sequence[Job] = ()
    exports: Mapping[str, Export] = MappingProxyType({})
    carries: At = At.LEADER

    def facts(self) -> Iterable[tuple[str, object]]:
        """Names and values for the broker's runtime info."""
        return ()

    def metrics(self) -> Iterable[Family]:
        """What the feature measures at this node. It is read some samples at a time, so iterate over nothing that may change."""
        return ()

    def led_metrics(self) -> Iterable[Family]:
        """The measurements that only the leader reports, so that sums over all nodes count them once."""
        return ()

    def waits_for(self) -> Iterable[str]:
        """What this node lacks before it can do its part, as sentences for operators."""
        return ()

    async def begin(self) -> None:
        """Called before anybody is served, if the store may be written. An exception ends the start."""

    async def finish(self) -> None:
        """Called at a stop, before the last exports, if the store may be written. Raises RmqError, OSError, which are logged."""

    def stopping(self) -> None:
        """This node stops: answer whoever waits, and end long work soon."""

    async def on_settings(self, settings: NodeSettings) -> None:
        """Settings that may change while the node runs have these values now. Raises Refusal for what could not be changed."""

    def on_connection_closed(self, connection: Connection) -> None:
        """A client's connection has ended."""

    def on_leader_ready(self) -> None:
        """This node leads: everything of earlier epochs is committed and applied."""

    def on_leadership_lost(self) -> None:
        """This node leads no more. The tables have dropped what was not committed."""

    def on_log_replaced(self) -> None:
        """A leader's snapshot replaced the log and the tables of this node."""

    def on_registration_changed(self) -> None:
        """What nameservers should know of this node has changed: its broker id, or which nodes may lead after it."""

    def on_new_epoch(self) -> None:
        """The epoch history has a new entry."""

    def on_topic_changed(self, topic: str) -> None:
        """A committed record made, changed or deleted that topic."""

    def on_group_changed(self, group: str) -> None:
        """A committed record made, changed or deleted that consumer group, or set it to another place."""

    async def carry_forward(self, below: int) -> None:
        """Appends again, now or soon, what must not be lost below that log offset, so that those bytes may be deleted. Raises
        Refusal."""

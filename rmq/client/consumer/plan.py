"""A consumer's checked arguments, in the form that its parts need. Values only."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from rmq.client.shared.message import half_a_character
from rmq.client.shared.session import checked_group, checked_topic
from rmq.delivery import filters
from rmq.delivery.filters import Exact
from rmq.errors import InvalidArgument, Refusal
from rmq.model import RETRY_PREFIX, ConsumerData, Subscription

Mode = Literal["cluster", "broadcast"]
Start = Literal["last", "first"] | datetime | int
FIRST: Literal["first"] = "first"
LAST: Literal["last"] = "last"
PULL_BATCH = 32  # [pullBatchSize]
MAX_SPAN = 2000  # offsets between the first unfinished and the last cached message [consumeConcurrentlyMaxSpan]
Expression = tuple[str, str]
"""The text, and its type: TAG or SQL92."""
_WHERE = {LAST: "CONSUME_FROM_LAST_OFFSET", FIRST: "CONSUME_FROM_FIRST_OFFSET"}


@dataclass(frozen=True, slots=True)
class Plan:
    """`topics`: what is wanted of each. `wanted`: the same for the exact check. `start`: Unix ms, or
    "first" / "last", for queues the group has no offset of. Limits count what one queue may hold in memory (C18).
    `ordered`: each queue's messages one after the other, with a lock on the queue. `max_retries`: how often a failed message
    comes again, below 0: as the group's settings say, in order for ever. `handler_s`: how long a handler may take, None: for ever
    (in order, and of a broadcast, where its message could not come again later)."""

    group: str
    topics: Mapping[str, Subscription]
    wanted: Mapping[str, Exact]
    broadcast: bool
    start: str | int
    max_messages: int
    max_bytes: int
    auto_commit: bool
    ordered: bool
    max_retries: int
    handler_s: float | None

    def heartbeat(self) -> ConsumerData:
        """The group's entry in heartbeats."""
        model = "BROADCASTING" if self.broadcast else "CLUSTERING"
        where = "CONSUME_FROM_TIMESTAMP" if isinstance(self.start, int) else _WHERE[self.start]
        return ConsumerData(self.group, "CONSUME_PASSIVELY", model, where, list(self.topics.values()))


def make_plan(
    group: str,
    topics: Mapping[str, str] | Iterable[str] | str,
    sql: str | None,
    mode: Mode,
    start: Start,
    limits: tuple[int, int],
    auto_commit: bool,
    ordered: bool,
    retrying: tuple[int | None, float],
    version: int,
) -> Plan:
    """`limits`: messages and bytes. `retrying`: `max_retries` and `handler_s`. `version` rises with each new subscription (ms).

    Raises InvalidArgument.
    """
    if mode not in ("cluster", "broadcast"):
        raise InvalidArgument(f'mode {mode!r}: give "cluster" or "broadcast"')
    if ordered and mode == "broadcast":
        raise InvalidArgument("ordered=True is for a group that shares its queues: a broadcast member has all of them for itself")
    if limits[0] < 1 or limits[1] < 1:
        raise InvalidArgument(f"max_messages {limits[0]}, max_bytes {limits[1]}: both must be at least 1")
    wanted = _expressions(topics, sql)
    max_retries, handler_s = retrying
    if (max_retries is not None and max_retries < 0) or handler_s <= 0:
        raise InvalidArgument(f"max_retries {max_retries}, handler_timeout {handler_s}: give 0 or more, and more than 0 seconds")
    if mode == "cluster":  # where other members put what they could not handle [DefaultMQPushConsumerImpl.copySubscription]
        wanted[RETRY_PREFIX + checked_group(group)] = "*", filters.TAG
    parsed = {topic: _parse(topic, *expression) for topic, expression in wanted.items()}
    subscriptions = {topic: _subscription(topic, *wanted[topic], exact, version) for topic, exact in parsed.items()}
    broadcast = mode == "broadcast"
    tries, patience = -1 if max_retries is None else max_retries, None if ordered or broadcast else handler_s
    return Plan(
        checked_group(group), subscriptions, parsed, broadcast, _start(start), *limits, auto_commit, ordered, tries, patience
    )


def wanted_of(topics: Mapping[str, str] | Iterable[str] | str, sql: str | None) -> dict[str, tuple[Expression, Exact]]:
    """What is wanted of each topic, as it is written and for the exact check. Raises InvalidArgument."""
    found = _expressions(topics, sql)
    return {topic: (expression, _parse(topic, *expression)) for topic, expression in found.items()}


def check_receive(most: int, seconds: float) -> None:
    """How many messages, and how long to wait for them. Raises InvalidArgument."""
    if most < 1 or not seconds >= 0:  # so written, it finds nan, too
        raise InvalidArgument(f"{most} messages within {seconds} seconds: give 1 or more, and 0 or more seconds")


def _expressions(topics: Mapping[str, str] | Iterable[str] | str, sql: str | None) -> dict[str, Expression]:
    if isinstance(topics, str):
        topics = [topics]
    if sql is not None and isinstance(topics, Mapping):
        raise InvalidArgument("sql is instead of tags: give the topics as a list")
    wanted = dict(topics) if isinstance(topics, Mapping) else dict.fromkeys(topics, "*")
    if not wanted:
        raise InvalidArgument('no topic: give topics={"Topic": "TagA || TagB"} or topics=["Topic"]')
    if sql is not None:
        return {checked_topic(topic): (sql, filters.SQL92) for topic in wanted}
    return {checked_topic(topic): (expression.strip() or "*", filters.TAG) for topic, expression in wanted.items()}


def _parse(topic: str, expression: str, expression_type: str) -> Exact:
    try:
        expression.encode()  # members say it in their heartbeats, where nobody could be told
        return filters.parse(expression, expression_type)
    except UnicodeEncodeError as error:
        raise half_a_character(expression[: error.start + 1]) from None
    except Refusal as refusal:
        raise InvalidArgument(f"filter {expression!r} of {topic}: {refusal.remark}") from None


def _subscription(topic: str, expression: str, expression_type: str, exact: Exact, version: int) -> Subscription:
    tags = exact if isinstance(exact, frozenset) else frozenset()
    return Subscription(topic, expression, expression_type, version, sorted(tags), sorted(filters.codes(tags)))


def _start(start: Start) -> str | int:
    if isinstance(start, datetime):
        return int(start.timestamp() * 1000)
    if start in (FIRST, LAST) or (isinstance(start, int) and not isinstance(start, bool) and 0 <= start < 1 << 63):
        return start
    raise InvalidArgument(f'start {start!r}: give "first", "last", a datetime or Unix milliseconds')

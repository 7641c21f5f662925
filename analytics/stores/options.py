"""The options of the data source "rmq": their names, the values they allow, and what a job wants by them. Pure.

Names follow Spark's Kafka source where it has one. Nothing is guessed: an unknown name, a value that makes no sense, or two
options that contradict each other are refused, and the error says what would be right.
"""

import difflib
import json
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from rmq.errors import InvalidArgument
from rmq.model import LIGHT_PREFIX
from rmq.routing.topics import is_system_topic

EARLIEST, LATEST = -2, -1  # in Kafka's JSON
NAMES = (
    "path", "paths", "nameservers", "group",
    "subscribe", "subscribePattern", "assign", "startingOffsets", "endingOffsets", "startingTimestamp", "endingTimestamp",
    "minPartitions", "maxRecordsPerPartition", "maxOffsetsPerTrigger", "includeHeaders", "failOnDataLoss",
    "topics", "queues", "tags", "from", "to", "system", "body", "shape", "onDamage", "allowMissingTopics", "brokerName",
    "rareTopics",
)  # fmt: skip
BODIES, SHAPES, ON_DAMAGE, RARE = ("plain", "raw", "none"), ("rmq", "kafka"), ("fail", "skip", "quarantine"), ("queues", "scan")
_OF_TABLES = {  # Spark itself adds these for a table made by SQL [TableCatalog]
    "location", "owner", "comment", "provider", "external", "is_managed_location", "collation", "table_type",
    "serialization.format",
}  # fmt: skip
_FIRST_MS, _LAST_MS = 946_684_800_000, 4_102_444_800_000  # 2000 to 2100
_UNIX_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
Offsets = Mapping[str, Mapping[int, int]]  # topic -> queue -> queue offset of a message


class Wanted(NamedTuple):
    """Which messages a job wants, and how. Times are store times in Unix ms: from_ms <= time < to_ms.

    `topics`: None is all that `pattern` matches. `queues`: those of every topic; `assigned`: those of each topic; None is all.
    `starts` and `ends`: queue offsets; `starts` counts, `ends` does not. `split_records`, `least_parts`: 0 if not given.
    """

    topics: frozenset[str] | None = None
    pattern: str = ""
    assigned: Mapping[str, frozenset[int]] | None = None
    queues: frozenset[int] | None = None
    tags: frozenset[str] | None = None
    from_ms: int = 0
    to_ms: int = 1 << 62
    starts: Offsets = {}
    ends: Offsets = {}
    system: bool = False
    body: str = "plain"
    shape: str = "rmq"
    headers: bool = False
    on_damage: str = "fail"
    fail_on_loss: bool = True
    allow_missing: bool = False
    broker: str = ""
    use_queues: bool = True
    least_parts: int = 0
    split_records: int = 0

    def has_topic(self, topic: str) -> bool:
        if self.topics is not None:  # whoever names a system topic wants it
            return topic in self.topics
        return (self.system or not is_system_topic(topic)) and (not self.pattern or re.fullmatch(self.pattern, topic) is not None)

    @property
    def every_users_topic(self) -> bool:
        """Whether all topics are wanted but RocketMQ's and ours, wherever their messages lie."""
        return self.topics is None and not self.system and not self.pattern and not self.by_place

    @property
    def by_place(self) -> bool:
        """Whether queues or queue offsets were asked for."""
        return bool(self.queues is not None or self.assigned is not None or self.starts or self.ends)


def parse_options(options: Mapping[str, str]) -> Wanted:
    """Options of a batch read, checked. Raises InvalidArgument naming the option and what is allowed."""
    given = given_options(options)
    topics = _topics(given)
    starts, ends = _offsets(given, "startingOffsets", LATEST), _offsets(given, "endingOffsets", EARLIEST)
    _check_offsets(topics, starts, ends)
    count_option(given, "maxOffsetsPerTrigger")  # for streams; Kafka's batch reads accept and ignore it, too
    wanted = Wanted(
        topics=topics,
        pattern=_pattern(given),
        assigned=_assigned(given),
        queues=_listed(given, "queues", int),
        tags=_listed(given, "tags", str),
        from_ms=_moment(given, ("startingTimestamp", "from"), 0),
        to_ms=_moment(given, ("endingTimestamp", "to"), 1 << 62),
        starts=starts,
        ends=ends,
        system=_flag(given, "system", False),
        body=_one_of(given, "body", BODIES),
        shape=_one_of(given, "shape", SHAPES),
        headers=_flag(given, "includeHeaders", False),
        on_damage=_one_of(given, "onDamage", ON_DAMAGE),
        fail_on_loss=_flag(given, "failOnDataLoss", True),
        allow_missing=_flag(given, "allowMissingTopics", False),
        broker=given.get("brokerName", ""),
        use_queues=_one_of(given, "rareTopics", RARE) == "queues",
        least_parts=count_option(given, "minPartitions"),
        split_records=count_option(given, "maxRecordsPerPartition"),
    )
    if wanted.headers and wanted.shape != "kafka":
        raise InvalidArgument('the option "includeHeaders" belongs to shape=kafka; otherwise the column "properties" has them')
    if wanted.from_ms >= wanted.to_ms:
        raise InvalidArgument("the time to begin at is not before the time to end at")
    return wanted


def given_options(options: Mapping[str, str], names: tuple[str, ...] = NAMES) -> dict[str, str]:
    """Our options, spelled as in `names` (Spark ignores case). Raises InvalidArgument for an unknown one."""
    there = {name.lower(): value for name, value in options.items()}
    of_table = {name.removeprefix("option."): value for name, value in there.items() if name.startswith("option.")}
    there = of_table | {name: value for name, value in there.items() if not name.startswith("option.")}
    _refuse_unknown(there, names)
    if "path" not in there and "location" in there:
        there["path"] = there["location"]
    return {name: there[name.lower()] for name in names if there.get(name.lower()) is not None}


def nearest(name: str, names: tuple[str, ...]) -> str:
    """The end of a sentence that says that there is no such name."""
    by_lower = {each.lower(): each for each in names}
    found = difflib.get_close_matches(name.lower(), by_lower, 1, 0.5)
    return f"; did you mean {by_lower[found[0]]!r}?" if found else "."


def _refuse_unknown(options: Mapping[str, str], names: tuple[str, ...]) -> None:
    known = {name.lower() for name in names} | _OF_TABLES
    for name in options:
        if name not in known:
            raise InvalidArgument(f'there is no option "{name}"{nearest(name, names)} There are: {", ".join(names)}')


def _topics(given: Mapping[str, str]) -> frozenset[str] | None:
    ways = [name for name in ("subscribe", "subscribePattern", "assign", "topics") if name in given]
    if len(ways) > 1:
        raise InvalidArgument(f"the options {' and '.join(ways)} were given; choose topics by one of them")
    if "assign" in given:
        return _no_light_queues(frozenset(_json(given, "assign")))
    return _no_light_queues(_listed(given, ways[0], str)) if ways and ways[0] != "subscribePattern" else None


def _no_light_queues(topics: frozenset[str]) -> frozenset[str]:
    for name in topics:
        if name.startswith(LIGHT_PREFIX):
            raise InvalidArgument(
                f"{name!r} is a light queue, and messages there have the topic that they were sent to: read that topic, "
                "where properties['INNER_MULTI_DISPATCH'] names the queues of each message"
            )
    return topics


def _listed(given: Mapping[str, str], name: str, kind: Callable[[str], Any]) -> Any:
    """The comma-separated values as a set; None if the option was not given."""
    if name not in given:
        return None
    words = [word.strip() for word in given[name].split(",") if word.strip()]
    if not words:
        raise InvalidArgument(f'the option "{name}" is empty: leave it out, or name some, separated by commas')
    try:
        return frozenset(map(kind, words))
    except ValueError:
        raise InvalidArgument(f'the option "{name}" is {given[name]!r}; give numbers, separated by commas') from None


def _pattern(given: Mapping[str, str]) -> str:
    pattern = given.get("subscribePattern", "")
    try:
        re.compile(pattern)
    except re.error as error:
        raise InvalidArgument(f'the option "subscribePattern" is no regular expression: {error}') from error
    return pattern


def _assigned(given: Mapping[str, str]) -> Mapping[str, frozenset[int]] | None:
    if "assign" not in given:
        return None
    try:
        return {topic: frozenset(int(queue) for queue in queues) for topic, queues in _json(given, "assign").items()}
    except (TypeError, ValueError):
        raise InvalidArgument('the option "assign" is JSON like {"Orders": [0, 1]}: topics and their queues') from None


def _offsets(given: Mapping[str, str], name: str, refused: int) -> Offsets:
    text = given.get(name, "").strip()
    everything, other = ("earliest", "latest") if name == "startingOffsets" else ("latest", "earliest")
    if text.lower() in ("", everything):
        return {}
    if text.lower() == other:
        raise InvalidArgument(f'the option "{name}" is {text}: that reads nothing in a batch read; give {everything} or JSON')
    try:
        said = {topic: {int(queue): int(offset) for queue, offset in of.items()} for topic, of in _json(given, name).items()}
    except (AttributeError, TypeError, ValueError):
        example = f'{{"Orders": {{"0": 23, "1": {LATEST + EARLIEST - refused}}}}}'
        raise InvalidArgument(f'the option "{name}" is {everything}, or JSON like {example}') from None
    offsets = [offset for of in said.values() for offset in of.values()]
    if refused in offsets or any(offset < EARLIEST for offset in offsets):
        allowed = LATEST + EARLIEST - refused
        raise InvalidArgument(f'the option "{name}" holds {min(offsets)}; give a number from 0 on, or {allowed} for {everything}')
    return {topic: {queue: offset for queue, offset in of.items() if offset >= 0} for topic, of in said.items()}


def _check_offsets(topics: frozenset[str] | None, *said: Offsets) -> None:
    for topic in (topic for offsets in said for topic in offsets):
        if topics is not None and topic not in topics:
            raise InvalidArgument(f"offsets are given for {topic!r}, which is not among the topics asked for")


def _json(given: Mapping[str, str], name: str) -> dict[str, Any]:
    try:
        found = json.loads(given[name])
    except json.JSONDecodeError as error:
        raise InvalidArgument(f'the option "{name}" is no JSON: {error}') from error
    if not isinstance(found, dict) or not found:
        raise InvalidArgument(f'the option "{name}" is a JSON object that names topics')
    return found


def _moment(given: Mapping[str, str], names: tuple[str, str], default: int) -> int:
    there = [name for name in names if name in given]
    if len(there) > 1:
        raise InvalidArgument(f"the options {' and '.join(there)} say the same: give one of them")
    return _time_ms(given[there[0]].strip(), there[0]) if there else default


def unix_ms(moment: datetime) -> int:
    """Rounded down; UTC unless it says otherwise. Not by floats, which are 1 ms short of some moments of 2004, 2038 and 2039."""
    return ((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _UNIX_EPOCH) // timedelta(milliseconds=1)


def _time_ms(text: str, name: str) -> int:
    if text.lstrip("-").isdecimal():
        time_ms = int(text)
        if not _FIRST_MS <= time_ms <= _LAST_MS:
            hint = "these look like seconds" if _FIRST_MS <= time_ms * 1000 <= _LAST_MS else "that is not between 2000 and 2100"
            raise InvalidArgument(f'the option "{name}" is {text}; give Unix milliseconds: {hint}')
        return time_ms
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidArgument(f'the option "{name}" is {text!r}; give an ISO time (UTC unless it says so) or Unix ms') from None
    time_ms = unix_ms(moment)
    if not _FIRST_MS <= time_ms <= _LAST_MS:
        raise InvalidArgument(f'the option "{name}" is {text}, which is not between 2000 and 2100')
    return time_ms


def _one_of(given: Mapping[str, str], name: str, allowed: tuple[str, ...]) -> str:
    value = given.get(name, allowed[0]).lower()
    if value not in allowed:
        raise InvalidArgument(f'the option "{name}" is {given[name]!r}; allowed are {", ".join(allowed)}')
    return value


def _flag(given: Mapping[str, str], name: str, default: bool) -> bool:
    value = given.get(name, str(default)).lower()
    if value not in ("true", "false"):
        raise InvalidArgument(f'the option "{name}" is {given[name]!r}; allowed are true, false')
    return value == "true"


def count_option(given: Mapping[str, str], name: str) -> int:
    """A number from 1 on; 0 if it was not given. Raises InvalidArgument."""
    text = given.get(name)
    if text is None:
        return 0
    if not text.isdecimal() or int(text) < 1:
        raise InvalidArgument(f'the option "{name}" is {text!r}; give a number from 1 on')
    return int(text)

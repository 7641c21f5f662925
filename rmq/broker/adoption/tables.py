"""The tables of Apache RocketMQ, read from config/*.json once and written into our log as state records.

For a directory whose log `rmq.log.adoption` has taken over. What the JSON says wins over older records of ours, because
RocketMQ served with it last. Nothing here changes a file of RocketMQ's.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from rmq.broker.adoption import delays as delay_files, pops
from rmq.broker.adoption.delays import Positions
from rmq.broker.adoption.halves import half_lines
from rmq.broker.shared.state import OTHER_BYTES, Line, bodies_of
from rmq.broker.tables.tables import Tables, fill
from rmq.delivery import cursors, forbidden, groups, offsets
from rmq.delivery.offsets import BROADCAST_SUFFIX, OffsetKey
from rmq.errors import BadBytes, StoreError
from rmq.log.adoption import Adopted
from rmq.log.files.disk import Disk
from rmq.log.records import record
from rmq.log.records.delays import LEVELS_MS
from rmq.log.settings import StoreSettings
from rmq.log.store import Store
from rmq.log.units import Unit
from rmq.model import EPOCH_TOPIC, STATE_TOPIC, GroupConfig, TopicConfig
from rmq.routing import topics
from rmq.routing.topics import is_system_topic

_POPPING = ("consumerOrderInfo.json", "messageRequestMode.json")
_BARE_KEY = re.compile(rb'"(?:[^"\\]|\\.)*"|([{,]\s*)(-?\d+)(\s*:)')


class AdoptedTables(NamedTuple):
    """What the files say; None for a table whose file is not there. `notes`: for the operator."""

    topics: list[TopicConfig] | None
    groups: list[GroupConfig] | None
    offsets: dict[OffsetKey, int] | None
    cursors: dict[cursors.Key, Any]
    waiting: Positions
    notes: list[str]
    popping: dict[str, Any] = {}
    forbidden: dict[str, int] = {}


class Imported(NamedTuple):
    topics: int
    groups: int
    offsets: int
    cursors: int
    waiting: int
    lines: int
    notes: list[str]


def summary(log: Adopted | None, tables: Imported) -> str:
    """One line that says what was taken over."""
    taken = "the log was taken over before"
    if log is not None:
        what = "Apache RocketMQ wrote here since the last run:" if log.visited else "a store of Apache RocketMQ:"
        taken = f"{what} {log.records} records of {log.queues} queues in bytes {log.start} to {log.end}"
        if log.cut_bytes:
            taken += f" ({log.cut_bytes} bytes of a torn tail are kept in rmq/lost-0-{log.end})"
    counts = f"{tables.topics} topics, {tables.groups} groups, {tables.offsets} consumer offsets, {tables.cursors} cursors"
    return f"{taken}; {counts}, {tables.waiting} messages that wait"


# --- reading ----------------------------------------------------------------------------------------------------------


def parse_json(data: bytes) -> Any:
    """JSON as fastjson writes it: keys that are numbers stand without quotes. Raises BadBytes."""

    def quoted(match: re.Match[bytes]) -> bytes:
        return match[0] if match[2] is None else b'%s"%s"%s' % (match[1], match[2], match[3])

    try:
        return orjson.loads(_BARE_KEY.sub(quoted, data))
    except orjson.JSONDecodeError as error:
        raise BadBytes(f"this is no JSON: {error}") from error


def read_tables(config: Path, with_old: bool = True) -> AdoptedTables:
    """Reads the files of a directory config/. `with_old`: a table whose file cannot be read is what it was before; else our own
    is newer. Raises StoreError for what this release could not serve, BadBytes for a file that is not RocketMQ's."""
    notes: list[str] = []

    def load(name: str) -> Any:
        """As RocketMQ: an empty or broken file counts as missing, then its .bak is tried [ConfigManager]."""
        for path in (config / name, config / f"{name}.bak")[: 1 + with_old]:
            try:
                found = parse_json(path.read_bytes())
                if not isinstance(found, dict):
                    raise BadBytes("this is no JSON object")
            except FileNotFoundError:
                continue
            except BadBytes as error:
                notes.append(f"{path.name} is passed over: {error}")
                continue
            if path.suffix == ".bak":
                notes.append(f"{name} is missing or broken: {path.name} was taken")
            return found
        return None

    if _rows(load("topicQueueMapping.json"), "topicQueueMappingInfoMap"):
        raise StoreError("this store has static topics (topicQueueMapping.json), which are not served: make them ordinary first")
    topic_rows = load("topics.json")
    configs = None if topic_rows is None else topics.from_json(topic_rows)
    group_rows = load("subscriptionGroup.json")
    may_not = forbidden.from_json(_rows(group_rows, "forbiddenTable"))
    usual, lmq = load("consumerOffset.json"), load("lmqConsumerOffset.json")
    committed: dict[OffsetKey, int] = {}
    kept: dict[cursors.Key, Any] = {}
    for value in filter(None, (usual, lmq)):
        committed |= dict(offsets.from_json(value))
        with _reading("consumerOffset.json"):
            kept |= _kept_offsets(value)
    if lmq is not None:
        kept[cursors.LMQ,] = True
    reached = _rows(load("delayOffset.json"), "offsetTable")
    with _reading("delayOffset.json"):
        levels = {int(level): int(at) for level, at in reached.items()}
    waiting = Positions(levels, *delay_files.timercheck(config))
    popping = {name: load(name) for name in _POPPING}
    none_said = usual is None and lmq is None
    group_configs = None if group_rows is None else groups.from_json(group_rows)
    return AdoptedTables(configs, group_configs, None if none_said else committed, kept, waiting, notes, popping, may_not)


@contextmanager
def _reading(file: str) -> Iterator[None]:
    """Raises BadBytes for what is JSON and no table of RocketMQ's."""
    try:
        yield
    except (TypeError, ValueError, AttributeError) as error:
        raise BadBytes(f"{file}: {type(error).__name__} {error}; is it RocketMQ's file?") from error


def _rows(value: Any, name: str) -> dict[str, Any]:
    return (value or {}).get(name) or {}


def _kept_offsets(value: Mapping[str, Any]) -> dict[cursors.Key, Any]:
    """Offsets that RocketMQ 5 keeps beside those of groups: of broadcast groups, of pulls."""
    kept: dict[cursors.Key, Any] = {}
    for name, queues in _rows(value, "offsetTable").items():
        if name.endswith(BROADCAST_SUFFIX):
            kept[cursors.BROADCAST, name] = {int(queue): int(at) for queue, at in queues.items()}
    for name, queues in _rows(value, "pullOffsetTable").items():
        kept[cursors.PULL, name] = {int(queue): int(at) for queue, at in queues.items()}
    return kept


# --- writing ----------------------------------------------------------------------------------------------------------


def plan(found: AdoptedTables, tables: Tables, with_queues: set[str], complete: bool) -> list[Line]:
    """The state lines after which the tables say what the files say.

    `with_queues`: topics that have messages. `complete`: RocketMQ stopped in order, so what its tables lack was deleted.
    """
    lines: list[Line] = []
    if found.topics is not None:
        named = {one.name: one for one in found.topics if one.name not in (STATE_TOPIC, EPOCH_TOPIC)}
        if complete:
            known = with_queues | {one.name for one in tables.topics.all()}
            gone = sorted(name for name in known - named.keys() if not is_system_topic(name) and not name.startswith("%LMQ%"))
            lines += [("topic", name, None) for name in gone]
        lines += [("topic", one.name, list(one)) for one in named.values() if tables.topics.get(one.name) != one]
    if found.groups is not None:
        if complete:
            gone = sorted({one.name for one in tables.groups.all()} - {one.name for one in found.groups})
            lines += [("group", name, None) for name in gone if not groups.is_system_group(name)]
        lines += [("group", one.name, list(one)) for one in found.groups if tables.groups.get(one.name) != one]
    gone = sorted(tables.forbidden.committed().keys() - found.forbidden.keys()) if complete and found.groups is not None else []
    lines += [("forbidden", name, None) for name in gone]
    lines += [("forbidden", name, bits) for name, bits in found.forbidden.items() if tables.forbidden.get(name) != bits]
    if found.offsets is not None:
        before = tables.offsets.committed()
        if complete:
            lines += [("offset", key, None) for key in sorted(before.keys() - found.offsets.keys())]
        lines += [("offset", key, at) for key, at in sorted(found.offsets.items()) if before.get(key) != at]
    old = tables.cursors.committed()
    lines += [("cursor", key, None) for key in sorted(old.keys() - found.cursors.keys(), key=repr) if complete]
    return lines + [("cursor", key, value) for key, value in found.cursors.items() if old.get(key) != value]


def import_tables(store: Store, tables: Tables, config: Path, host: bytes, wall_ms: int) -> Imported:
    """Writes them into the epoch that has begun, and ends the adoption once they are durable. In any thread, before the
    store has another user. Raises StoreError, BadBytes: the next start tries again.
    """
    found = read_tables(config, with_old=not store.visited)
    lines = plan(found, tables, {queue.topic for queue in store.queues.all() if queue.max}, complete=store.tidy)
    lines += delay_files.lines(store, tables.due, found.waiting)
    lines += half_lines(store, found.offsets or {}, tables.halves)
    lines += pops.lines(store, tables, found.offsets or {}, found.popping)
    queue = store.queues.get(STATE_TOPIC, 0)
    for body in bodies_of(lines, store.log.max_unit_bytes - OTHER_BYTES):
        draft = record.draft(STATE_TOPIC, body, b"", born_timestamp=wall_ms, born_host=host)
        store.log.append([Unit(draft, (len(draft),), (0,), queue)], wall_ms)
    store.log.flush()
    store.finish_adoption()
    waiting = sum(table == "due" and value is not None for table, _, value in lines)
    counts = (len(found.topics or ()), len(found.groups or ()), len(found.offsets or ()), len(found.cursors), waiting)
    return Imported(*counts, len(lines), found.notes)


def adopt(disk: Disk, root: str, settings: StoreSettings, wall_ms: int, delays_ms: Sequence[int] = LEVELS_MS) -> str | None:
    """The whole adoption without a node: takes the directory over and closes it. Returns what was done; None if nothing was due.
    `delays_ms`: of RocketMQ's delay levels, as its configuration has them.

    Raises StoreError, BadBytes; the next try completes a half-done adoption.
    """
    store = Store.open(disk, root, settings)
    try:
        done = None
        if store.adopting:
            tables = Tables(topics.TopicTable(), groups.GroupTable(), offsets.OffsetTable(), delays_ms=delays_ms)
            fill(tables, store)
            store.open_epoch(wall_ms)
            imported = import_tables(store, tables, Path(root) / "config", settings.store_host, wall_ms)
            done = "; ".join([summary(store.adopted, imported), *imported.notes])
    except BaseException:
        store.abandon()
        raise
    store.close()
    return done

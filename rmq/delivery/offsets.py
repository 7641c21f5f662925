"""Each group's offset in each queue: committed ones, and newer ones that are not written yet.

An offset is that of the next message to consume. Readers see a commit at once. It is written, with all others that changed, when
the broker takes the dirty lines (every 200 ms, or at once for a synchronous commit). A failover loses commits that were not
written: then messages come twice, but none is lost.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from sys import intern
from types import MappingProxyType
from typing import Any

from rmq.codes import ResponseCode
from rmq.delivery.cursors import BROADCAST, LMQ, PULL, CursorTable
from rmq.delivery.resets import GroupQueue, Reset, ResetTable
from rmq.errors import BadBytes, Refusal
from rmq.model import LIGHT_PREFIX
from rmq.names import lite_family
from rmq.staged import Between, Versioned

_HIGHEST = 2**63 - 1
MAX_OFFSETS = 1_000_000  # one for each queue and group that reads it; 165 bytes each
MAX_PULLERS = 1_000_000  # so many readers are remembered
BROADCAST_SUFFIX = "@broadcast"  # offsets that RocketMQ 5 keeps for broadcast groups


OffsetKey = GroupQueue


class OffsetTable(Versioned):
    """`ignored_lower` counts commits of lower offsets by clients that had lost the queue (C7)."""

    def __init__(self) -> None:
        super().__init__()
        self._committed: dict[OffsetKey, int] = {}
        self._overlay: dict[OffsetKey, int] = {}
        self._dirty: dict[OffsetKey, bool] = {}  # in the order of the commits; whether `overtake` may drop it
        self._last_puller: dict[OffsetKey, str] = {}
        self._handed_out: dict[OffsetKey, int] = {}  # where the answer to its last pull ended
        self._topics: dict[str, dict[str, int]] = {}  # group -> topic -> how many queues have an offset
        self.ignored_lower = 0
        self.resets = ResetTable()

    def query(self, group: str, topic: str, queue_id: int) -> int | None:
        key = OffsetKey(group, topic, queue_id)
        found = self._overlay.get(key)
        return self._committed.get(key) if found is None else found

    def pulled(self, key: OffsetKey, owner: str) -> None:
        """Notes that `owner` (a client id) pulled the queue: it alone may set the offset back."""
        if len(self._last_puller) >= MAX_PULLERS:
            self._last_puller.clear()  # a forgotten reader is known again at its next pull
        self._last_puller[key] = owner

    def handed_out(self, key: OffsetKey, end: int) -> None:
        """Notes that a pull was answered with messages up to `end`."""
        if len(self._handed_out) >= MAX_PULLERS:
            self._handed_out.clear()
        self._handed_out[key] = end

    def pull_offset(self, group: str, topic: str, queue_id: int) -> int:
        """How far the group has pulled, at this node since it leads; at least its offset [queryPullOffset]."""
        key = OffsetKey(group, topic, queue_id)
        return max(self._handed_out.get(key, 0), self.query(*key) or 0)

    def update(self, group: str, topic: str, queue_id: int, offset: int, owner: str = "") -> bool:
        """Takes a commit. A lower offset counts only from the client that pulled the queue last.

        Returns whether the table now has `offset`. Raises Refusal for a number that is no offset, and if the table is full.
        """
        key = OffsetKey(group, topic, queue_id)
        known = self._checked(key, offset)
        if key in self.resets:
            return False
        if offset == known:
            return True
        if known is not None and offset < known and self._last_puller.get(key) != owner:
            self.ignored_lower += 1
            return False
        self._overlay[key] = offset
        self._dirty[key] = False
        return True

    def passed(self, key: OffsetKey, offset: int) -> None:
        """Notes that nothing before `offset` is for the group. It is written like a commit, but nobody waits for it."""
        nothing_on_its_way = key not in self._overlay
        self._overlay[key] = offset
        self._dirty.setdefault(key, nothing_on_its_way)

    def overtake(self, key: OffsetKey) -> bool:
        """For who writes a later offset now: what was passed before it need not be written any more. False: something is on its
        way, or was committed, which would come behind that."""
        if self._dirty.get(key):
            del self._dirty[key], self._overlay[key]
        return key not in self._overlay

    def _checked(self, key: OffsetKey, offset: int) -> int | None:
        """The known offset of the queue. Raises Refusal for an offset that `update` may not set."""
        if not 0 <= offset <= _HIGHEST or key.queue_id < 0:
            about = f"offset {offset} of queue {key.queue_id}: both must be 0 or more"
            raise Refusal(ResponseCode.INVALID_PARAMETER, about)
        known = self.query(*key)
        if known is None and max(len(self._committed), len(self._overlay)) >= MAX_OFFSETS:
            about = f"{MAX_OFFSETS} offsets are kept already: delete groups that are not used any more, with their offsets"
            raise Refusal(ResponseCode.SYSTEM_BUSY, about)
        return known

    def stage_reset(self, places: Mapping[OffsetKey, int]) -> list[tuple[str, OffsetKey, Any]]:
        """The lines that set a group to these places, also for readers with a pull under way. Each two lines go into one record,
        so both take effect or neither. `resets.unstage` if they are not written. Commits that are not written yet are dropped.
        Raises Refusal like `update`."""
        for key, offset in places.items():
            self._checked(key, offset)
        lines: list[tuple[str, OffsetKey, Any]] = []
        for key, offset in places.items():
            lines += ("offset", key, offset), ("reset", key, Reset(offset, self._last_puller.get(key, "")))
            self._overlay.pop(key, None)
            self._dirty.pop(key, None)
            self._handed_out.pop(key, None)
        self.resets.stage(places)
        return lines

    # --- lines of the state topic

    def take_dirty(self) -> list[tuple[OffsetKey, int]]:
        """The offsets that changed since the last call, for the caller to write now."""
        lines = [(key, self._overlay[key]) for key in self._dirty]
        self._dirty.clear()
        return lines

    def take(self, group: str, topic: str, queue_id: int) -> int | None:
        """The last commit of the queue if it is not written yet, for the caller to write now; else None, also for what was only
        passed."""
        key = OffsetKey(group, topic, queue_id)
        if self._dirty.get(key):
            return None
        self._dirty.pop(key, None)
        return self._overlay.get(key)

    def give_back(self, keys: Iterable[OffsetKey]) -> None:
        """Takes back lines that could not be written: `take_dirty` gives them again."""
        self._dirty.update((key, False) for key in keys if key in self._overlay)

    def apply(self, key: Iterable[Any], value: int | None, time_ms: int = 0) -> None:
        """A committed line; None removes the offset. `time_ms`: when it was stored."""
        group, topic, queue_id = key
        place = OffsetKey(intern(group), intern(topic), queue_id)  # many rows share these texts
        if value is None:
            self._remove(place)
        else:
            self._set(place, value)
        if self._overlay.get(place) == value and place not in self._dirty:
            self._overlay.pop(place, None)
        self._version = self._version.risen(time_ms)

    def drop_overlay(self) -> None:
        """This node no longer leads: only the new leader knows what becomes of uncommitted changes."""
        self._overlay.clear()
        self._dirty.clear()
        self._last_puller.clear()
        self._handed_out.clear()

    def drop_pending(self, topics: Set[str]) -> None:
        """The deletion of the topics is being written: drops commits that would come after it in the log."""
        for key in [key for key in self._overlay if key.topic in topics]:
            del self._overlay[key]
            self._dirty.pop(key, None)

    def remove_topics(self, topics: Set[str]) -> None:
        """A committed record deleted the topics: later ones of these names must not find their offsets, nor those in their lite
        topics, to some of which no message ever came."""
        lights = {topic for topic in topics if topic.startswith(LIGHT_PREFIX)}
        for key in self._keys_of_lights(lights):
            self._remove(key)
        if not (others := topics - lights):
            return
        for keys in (self._committed, self._overlay, self._last_puller, self._handed_out):
            for key in _of_topics(keys, others):
                self._remove(key)

    def remove_group(self, group: str) -> None:
        """A committed record deleted the group. Its offsets stay, unless lines remove them; who has pulled is forgotten: a group
        of that name that is made later has not."""
        for readers in (self._last_puller, self._handed_out):
            for key in [key for key in readers if key[0] == group]:
                del readers[key]

    def _keys_of_lights(self, lights: Set[str]) -> list[OffsetKey]:
        """Each has one queue. They are deleted often, so only what is known of them is looked at."""
        known = [OffsetKey(group, topic, 0) for group, topics in self._topics.items() for topic in lights & topics.keys()]
        return known + [key for key in self._overlay if key.topic in lights]

    def _set(self, key: OffsetKey, value: int) -> None:
        if key not in self._committed:
            topics = self._topics.setdefault(key.group, {})
            topics[key.topic] = topics.get(key.topic, 0) + 1
        self._committed[key] = value

    def _remove(self, key: OffsetKey) -> None:
        self._overlay.pop(key, None)
        self._dirty.pop(key, None)
        self._last_puller.pop(key, None)
        self._handed_out.pop(key, None)
        self.resets.drop(key)
        if self._committed.pop(key, None) is None:
            return
        topics = self._topics[key.group]
        topics[key.topic] -= 1
        if not topics[key.topic]:
            del topics[key.topic]
        if not topics:
            del self._topics[key.group]

    # --- who and what

    def end_group(self, group: str) -> list[OffsetKey]:
        """The group's deletion with its offsets is being written: their keys, sorted, also of resets on their way, for lines with
        None. Drops commits that would come after those lines in the log."""
        pending = [key for key in self._overlay if key.group == group]
        known = {key for key in self._committed if key.group == group}
        for key in pending:
            del self._overlay[key]
            self._dirty.pop(key, None)
        return sorted(known.union(pending, self.resets.staged_of(group)))

    def topics_of(self, group: str) -> set[str]:
        """Topics in which the group has an offset."""
        return set(self._topics.get(group, ())) | {key.topic for key in self._overlay if key.group == group}

    def groups_and_topics(self) -> Iterator[tuple[str, list[str]]]:
        """Each group with the topics in which it has a committed offset. The table may change between two groups."""
        for group in list(self._topics):
            yield group, list(self._topics.get(group, ()))

    @property
    def pairs(self) -> int:
        """How many pairs of a group and a topic have a committed offset."""
        return sum(map(len, self._topics.values()))

    def groups_of(self, topic: str) -> set[str]:
        """Groups that have an offset in the topic."""
        committed = {group for group, topics in self._topics.items() if topic in topics}
        return committed | {key.group for key in self._overlay if key.topic == topic}

    def committed(self) -> Mapping[OffsetKey, int]:
        """The offsets that a failover keeps."""
        return self._committed


def _of_topics(keys: Iterable[OffsetKey], topics: Set[str]) -> list[OffsetKey]:
    """Those of queues of these topics and their lite topics. There may be a million, so nothing is called for one."""
    lites = tuple(map(lite_family, topics))
    return [key for key in keys if (topic := key[1]) in topics or (topic[:1] == LIGHT_PREFIX[0] and topic.startswith(lites))]


def offsets_json(
    table: OffsetTable, kept: CursorTable, revived: Mapping[str, Mapping[str, int]] = MappingProxyType({})
) -> Callable[..., dict[str, Any]]:
    """RocketMQ's config/consumerOffset.json (5.5.0) as a JSON value: committed offsets, adopted ones of other kinds, and how far
    its revive service need not look (`revived`). The tables are copied now; the value may be made in any thread, which rests
    (`Between`)."""
    rows, version = dict(table.committed()), table.data_version.json()
    broadcast, pulled = kept.of(BROADCAST), kept.of(PULL)

    def value(between: Between = iter) -> dict[str, Any]:
        offsets: dict[str, dict[Any, int]] = broadcast
        topics: dict[str, set[str]] = {}
        for (group, topic, queue_id), offset in between(rows.items()):
            offsets.setdefault(f"{topic}@{group}", {})[str(queue_id)] = offset
            topics.setdefault(group, set()).add(topic)
        for name, queues in revived.items():
            offsets[name] = offsets.get(name, {}) | dict(queues)
        return {
            "dataVersion": version,
            "groupTopicMap": {group: sorted(names) for group, names in topics.items()},
            "offsetTable": offsets,
            "pullOffsetTable": pulled,
        }

    return value


def lmq_offsets_json(table: OffsetTable, kept: CursorTable, lights: bool = False) -> Callable[..., dict[str, Any]] | None:
    """config/lmqConsumerOffset.json, which replaces consumerOffset.json under enableLmq (`lights`); None if it never was there.

    A group of light queues has one offset in each topic there [LmqConsumerOffsetManager].
    """
    if not (lights or kept.get(LMQ)):
        return None
    usual, adopted = offsets_json(table, kept), kept.of(LMQ)

    def value(between: Between = iter) -> dict[str, Any]:
        found = usual(between)
        offsets, light = found["offsetTable"], dict(adopted)
        for name in [name for name, queues in offsets.items() if f"@{LIGHT_PREFIX}" in name and [*queues] == ["0"]]:
            light[name] = offsets.pop(name)["0"]
        return found | {"lmqOffsetTable": light}

    return value


def from_json(value: Mapping[str, Any]) -> list[tuple[OffsetKey, int]]:
    """The offsets in RocketMQ's consumerOffset.json or lmqConsumerOffset.json, no broadcast ones. Raises BadBytes."""
    try:
        lights = [(OffsetKey(*_group_and_topic(name), 0), int(at)) for name, at in (value.get("lmqOffsetTable") or {}).items()]
        return lights + [
            (OffsetKey(*_group_and_topic(name), int(queue_id)), int(offset))
            for name, queues in value["offsetTable"].items()
            if not name.endswith(BROADCAST_SUFFIX)
            for queue_id, offset in queues.items()
        ]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadBytes(f"consumerOffset.json: {type(error).__name__} {error}; is it RocketMQ's file?") from error


def _group_and_topic(name: str) -> tuple[str, str]:
    topic, at, group = name.partition("@")
    if not at or not topic or not group:
        raise ValueError(f"{name!r} is not topic@group")
    return group, topic

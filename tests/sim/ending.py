"""The last look at a healed and drained group: all nodes have what was committed, byte for byte, and the same tables and
queues."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

from rmq.log.records.deletions import deleted_topics
from rmq.log.records.record import Record
from rmq.model import STATE_TOPIC
from tests.sim.chain import raw
from tests.sim.holding import Handed

if TYPE_CHECKING:
    from tests.sim.judge import Judge
    from tests.sim.node import Node


class _Message(NamedTuple):
    """Where the message with that queue offset stands in the log."""

    queue_offset: int
    offset: int
    size: int


def check_end(judge: "Judge", members: Sequence["Node"]) -> None:
    """G5. The bytes are decoded once for all nodes."""
    oldest = min(members, key=lambda node: node.store.log.start)
    end = oldest.store.log.end
    judge.check(end == len(judge.truth), "R5", f"all logs end at {end}, but the group had committed up to {len(judge.truth)}")
    queues: dict[tuple[str, int], list[_Message]] = {}
    ends, handed = set(), Handed()
    for found in oldest.store.log.scan(oldest.store.log.start, end):
        queues.setdefault((found.topic, found.queue_id), []).append(_message(found))
        if found.topic == STATE_TOPIC and (deleted := deleted_topics(found.body)):
            queues = {place: messages for place, messages in queues.items() if place[0] not in deleted}
        ends.add(found.physical_offset + found.total_size)
        handed.look(found)
    judge.world.trace("the end", crc32(judge.truth))
    for node in members:
        start = max(node.store.log.start, judge.truth_from)
        judge.check(raw(node, start, end) == judge.truth[start:end], "R3", f"{node.name} has other bytes than were committed")
        judge.check(node.tables == oldest.tables, "R5", f"{node.name} has tables {node.tables}, others {oldest.tables}")
        judge.check_table(node)
        _check_queues(judge, node, queues)
        _check_places(judge, node, oldest)
        handed.check(judge, node)
    missing = [number for number, at in judge.sent.items() if at > oldest.store.log.start and at not in ends]
    judge.check(not missing, "C1", f"these sends were acknowledged and are gone: {missing}")


def _check_places(judge: "Judge", node: "Node", other: "Node") -> None:
    """Story 35: all nodes have the same topics, queue ends, offsets of groups and receipts, and these belong to the last lives of
    the topics."""
    tables, others = node.holding.tables, other.holding.tables
    for name in ("topic", "topicEnd", "offset", "receipt"):
        ours, theirs = dict(tables.by_name[name].committed()), dict(others.by_name[name].committed())
        judge.check(ours == theirs, "R5", f"{node.name} has another table {name}: {ours} {theirs}")
    for (group, topic, queue_id), offset in tables.offsets.committed().items():
        queue = node.store.queues.find(topic, queue_id)
        behind = topic not in tables.topics.committed() or queue is None or offset > queue.max
        judge.check(not behind, "story 35", f"{node.name}: {group} is at {offset} of {topic}/{queue_id}: {queue}")


def _message(found: Record) -> _Message:
    return _Message(found.queue_offset, found.physical_offset, found.total_size)


def _check_queues(judge: "Judge", node: "Node", wanted: dict[tuple[str, int], list[_Message]]) -> None:
    """D12: queue offsets follow each other, and each entry leads to a record that names its topic, queue and offset."""
    start = node.store.log.start
    for (topic, queue_id), messages in wanted.items():
        queue = node.store.queues.get(topic, queue_id)
        there = [one for one in messages if one.offset >= start and one.queue_offset >= queue.min]
        queue_offsets = [one.queue_offset for one in there]
        judge.check(queue_offsets == list(range(queue.min, queue.max)), "D12", f"{node.name} {queue}: {queue_offsets}")
        found: list[tuple[int, int]] = []
        while queue.min + len(found) < queue.max:
            found += queue.find(queue.min + len(found), 1 << 20, 1 << 30, None).spans
        judge.check(found == [one[1:] for one in there], "D12", f"{node.name} {queue}: its entries do not point to its records")

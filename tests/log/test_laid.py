"""What a follower looked at once serves its queues and its index, too: twins that read their logs anew."""

import random

import pytest

from rmq.javahash import java_hash
from rmq.log import dispatch, replicated, taken
from rmq.log.files.epochs import START, EpochEntry, EpochRecord, Voter
from rmq.log.files.memory import MemoryDisk
from rmq.log.index.index import Index, LastRun
from rmq.log.index.indexfile import Shape
from rmq.log.replicated import ReplicatedLog, read_entries
from rmq.log.settings import StoreSettings
from rmq.log.store import Store
from rmq.log.taken import Laid
from rmq.log.units import Unit
from tests.log.conftest import HOST, ROOT, draft

SETTINGS = StoreSettings(HOST, segment_bytes=1 << 16, alone=False, index_slots=64, index_entries=900)


class Node:
    def __init__(self) -> None:
        self.disk = MemoryDisk()
        self.store = Store.open(self.disk, ROOT, SETTINGS)
        self.held = ReplicatedLog(self.store, self.disk, ROOT)
        self.log = self.store.log
        self.ends = [0]

    def lead(self) -> None:
        self.store.epochs = (EpochEntry(1, self.log.end, "aa"),)
        voters = (Voter("n0", "aa", "x:1"),)
        self.held.append_epoch(EpochRecord(1, self.log.end, "aa", "n0", START, False, voters, self.store.epochs), 1000)

    def write(self, chance: random.Random) -> None:
        queue = self.store.queues.get("T" * chance.choice((1, 1, 2)), chance.randrange(2))
        tags = [chance.choice(("a", "a", "bb")) for _ in range(chance.choice((1, 30)))]
        drafts = [keyed(chance, queue.topic, tag) for tag in tags]
        unit = Unit(b"".join(drafts), [*map(len, drafts)], [java_hash(tag) for tag in tags], queue)
        self.log.append([unit], 2000)
        self.ends.append(self.log.end)

    def queues(self) -> dict[tuple[str, int], list[tuple[int, int, int]]]:
        return {
            (queue.topic, queue.queue_id): [queue.entry(offset) for offset in range(queue.min, queue.max)]
            for queue in self.store.queues.all()
        }

    def index_files(self) -> list[bytes]:
        """What is in them; their names depend on when they were made."""
        return [bytes(self.disk.content(path)) for path in sorted(self.disk.paths()) if path.startswith(f"{ROOT}/index/")]


def keyed(chance: random.Random, topic: str, tag: str) -> bytes:
    body = b"x" * chance.choice((20, 20, 400))
    return draft(topic, body, UNIQ_KEY=f"{chance.random()}", KEYS=f"k{chance.randrange(9)}", TAGS=tag)


@pytest.fixture(autouse=True)
def few_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replicated, "MANY_BYTES", 4000)
    monkeypatch.setattr(dispatch, "_FEW", 8)
    monkeypatch.setattr(taken, "LARGE_BYTES", 2000)
    monkeypatch.setattr(replicated, "LARGE_BYTES", 6000)


@pytest.mark.parametrize("seed", range(12))
def test_queues_and_index_are_what_the_log_says(seed: int) -> None:
    """D10, D12: whatever came together, whatever of it was committed, and wherever the index stood."""
    chance = random.Random(seed)
    leader, follower = Node(), Node()
    leader.lead()
    index = follower.store.indexed.index
    assert index is not None
    found: list[Laid] = []
    take = follower.log.laid.take

    def noted(position: int, to: int) -> Laid | None:
        laid = take(position, to)
        found.extend([laid] if laid is not None else [])
        return laid

    follower.log.laid.take = noted  # type: ignore[method-assign]
    for _ in range(40):
        for _ in range(chance.randrange(8)):
            leader.write(chance)
        while follower.log.end < leader.log.end:
            data = read_entries(leader.log, follower.log.end, chance.choice((3000, 40_000)))
            assert follower.held.take(follower.log.end, data, 1).bad == ""
        committed = max(end for end in leader.ends if end <= chance.randint(follower.store.dispatcher.position, leader.log.end))
        follower.store.dispatcher.advance(committed, chance.choice((5000, 1 << 20)))
        if chance.random() < 0.5:
            index.advance(follower.store.dispatcher.position, 1)
    end = leader.log.end
    follower.store.dispatcher.advance(end)
    while index.position < end:
        index.advance(end, 1)
    index.flush()
    leader.store.dispatcher.advance(end)
    assert follower.queues() == leader.queues()
    assert len(found) > 3
    files = follower.index_files()
    again = Index(follower.disk, f"{ROOT}/index", Shape(64, 900), follower.log, LastRun(None, 0, True))
    while again.position < end:
        again.advance(end, 1)
    again.flush()
    assert follower.index_files() == files

"""Seeded histories of two groups that pop one topic in order, against a model of what each queue is to give: with filters,
batches, other times for messages, other places for a group, kills, retention, topics and groups that end."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from rmq.broker.pending.ordered import OrderedPopReader
from rmq.broker.pending.popreader import GroupQueue
from rmq.delivery.orders import OrderRow, OrderTable, name_of
from rmq.errors import RmqError
from rmq.net.commands import DeleteGroup, GetMinOffset
from rmq.net.commands.resets import ResetOffset
from rmq.testing import LocalBroker
from tests.broker.pophistory import ALL, GROUPS, QUEUES, TAGS, WANTED, Happenings, play, play_all
from tests.broker.popping import Popped, change, take

HIDDEN_MS = 2000, 20_000, 60_000


class Out(NamedTuple):
    """A message that was handed out, and until when nobody gets what is behind it."""

    one: Popped
    until: float


class Queue:
    """What one group gets of a queue. `wanted`: offsets of all messages that it wants; `at`: how many of them are done; `out`:
    those handed out last, by `attempt`."""

    def __init__(self) -> None:
        self.at = 0
        self.wanted: list[int] = []
        self.out: dict[int, Out] = {}
        self.acked: set[int] = set()  # of `out`
        self.attempt = ""

    def is_closed(self, attempt: str, now: int) -> bool:
        if attempt and attempt == self.attempt:
            return False
        return any(each.until > now for offset, each in self.out.items() if offset not in self.acked)

    def settle(self) -> None:
        """The next one is the first of `out` that is not acknowledged, or what is behind them."""
        left = [offset for offset in self.out if offset not in self.acked]
        if self.out:
            self.at = self.wanted.index(left[0]) if left else self.wanted.index(max(self.out)) + 1

    def set_to(self, at: int) -> list[Popped]:
        """Nothing is handed out any more; these were."""
        self.at, over = at, [each.one for each in self.out.values()]
        self.out, self.acked, self.attempt = {}, set(), ""
        return over


class Ordered(Happenings):
    def __init__(self, broker: LocalBroker, seed: int, expression: tuple[str, str] = ALL, batches: bool = False) -> None:
        super().__init__(broker, seed, batches)
        self.expressions = {"g": expression, "h": ALL}
        self.old: list[tuple[str, Popped]] = []  # receipts that are worth nothing any more, and whose they were
        self._topic_begins()

    def _topic_begins(self) -> None:
        self.stored: list[list[int]] = [[] for _ in range(QUEUES)]  # ms of each message
        self.queues = {group: [Queue() for _ in range(QUEUES)] for group in GROUPS}

    async def step(self) -> None:
        usual = (self.send, self.pop, self.pop, self.pop, self.ack, self.ack, self.change, self.crowd, self.pass_time, self.grow)
        rare = (self.restart, self.restart, self.restart, self.age, self.move, self.move, self.end_topic, self.end_group)
        await self.chance.choice(usual if self.chance.random() < 0.88 else rare)()

    # --- what clients do

    async def send(self) -> None:
        queue_id, tag, count = self.chance.randrange(QUEUES), self.chance.choice(TAGS), self.chance.randint(1, 5)
        new = await self.store(queue_id, tag, [b"x"] * count)
        assert new[0] == len(self.stored[queue_id])
        self.stored[queue_id] += [self.now()] * count
        for group, expression in self.expressions.items():
            if tag in WANTED[expression]:
                self.queues[group][queue_id].wanted += new

    async def pop(self) -> None:
        await self._pop(self.chance.choice(GROUPS), self.chance.choice(("", "", "a", "b")), self.chance.randint(-1, QUEUES - 1))

    async def _pop(self, group: str, attempt: str, queue_id: int) -> None:
        await self.clock.advance(0.001)  # no two pops have one name
        hidden_ms, now = self.chance.choice(HIDDEN_MS), self.now()
        got = await self._take(group, hidden_ms, attempt, queue_id)
        self._handed_out(group, hidden_ms, attempt, got)
        for at, queue in enumerate(self.queues[group]):
            if not got and queue_id in (-1, at) and not queue.is_closed(attempt, now):
                self._next(queue, at, [])

    async def _take(self, group: str, hidden_ms: int, attempt: str = "", queue_id: int = -1) -> list[Popped]:
        (exp, exp_type), count = self.expressions[group], self.chance.randint(1, 4)
        said = {"exp": exp, "exp_type": exp_type, "queue_id": queue_id, "attempt_id": attempt}
        got = await take(self.ask, group=group, order=True, count=count, hidden_ms=hidden_ms, **said)
        assert len(got) <= count
        assert queue_id < 0 or all(one.queue_id == queue_id for one in got)
        return got

    def _handed_out(self, group: str, hidden_ms: int, attempt: str, got: list[Popped]) -> None:
        for at, queue in enumerate(self.queues[group]):
            if mine := [one for one in got if one.queue_id == at]:
                assert not queue.is_closed(attempt, self.now()), f"queue {at} was handed out before {queue.out}"
                self._next(queue, at, [one.queue_offset for one in mine])
                self.old += [(group, each.one) for each in queue.out.values()]
                queue.out = {one.queue_offset: Out(one, self.now() + hidden_ms) for one in mine}
                queue.acked, queue.attempt = set(), attempt

    async def crowd(self) -> None:
        """Many clients at once: each queue of a group goes to one of them."""
        await self.clock.advance(0.001)
        pops = [(self.chance.choice(GROUPS), self.chance.choice(HIDDEN_MS)) for _ in range(4)]
        for (group, hidden_ms), got in zip(pops, await asyncio.gather(*(self._take(*each) for each in pops)), strict=True):
            self._handed_out(group, hidden_ms, "", got)

    def _next(self, queue: Queue, queue_id: int, offsets: list[int]) -> None:
        """That is what comes next, or behind what has been deleted meanwhile, or may be."""
        queue.settle()
        left = queue.wanted[queue.at :]
        skipped = left.index(offsets[0]) if offsets else len(left)
        assert all(self.stored[queue_id][offset] <= self.aged_ms for offset in left[:skipped]), (queue_id, offsets, left)
        assert offsets == left[skipped : skipped + len(offsets)], (queue_id, offsets, left)
        queue.at += skipped

    def _all(self) -> Iterator[tuple[str, Queue, int]]:
        """All that nobody else was given since."""
        for group, queues in self.queues.items():
            yield from ((group, queue, offset) for queue in queues for offset in queue.out)

    async def ack(self) -> None:
        """In time, too late, once more; sometimes with a receipt that is worth nothing."""
        given = [*self._all()]
        for group, queue, offset in self.chance.sample(given, self.chance.randint(0, min(len(given), 8))):
            await self.acknowledge(group, queue.out[offset].one)
            queue.acked.add(offset)
        others = [(group, one) for group, one in self.old if one.queue_offset in self.queues[group][one.queue_id].out]
        if others:
            await self.acknowledge(*self.chance.choice(others))

    async def change(self) -> None:
        left = [(group, queue, offset) for group, queue, offset in self._all() if offset not in queue.acked]
        for group, queue, offset in self.chance.sample(left, min(len(left), 2)):
            hidden_ms, now = self.chance.choice((1, 5000, 40_000)), self.now()
            one = await change(self.ask, queue.out[offset].one, hidden_ms, group)
            queue.out[offset] = Out(one, now + hidden_ms)

    # --- what tools do, and what happens to the broker

    async def move(self) -> None:
        group, queue_id = self.chance.choice(GROUPS), self.chance.randrange(QUEUES)
        queue = self.queues[group][queue_id]
        first = int((await self.peer.ask(GetMinOffset("T", queue_id))).offset)
        to = self.chance.randint(first, len(self.stored[queue_id]))
        await self.peer.ask(ResetOffset("T", group, queue_id, to))
        self._set_to(group, queue, sum(offset < to for offset in queue.wanted))

    def _set_to(self, group: str, queue: Queue, at: int) -> None:
        self.old += [(group, one) for one in queue.set_to(at)]

    async def end_topic(self) -> None:
        self.old += [(group, queue.out[offset].one) for group, queue, offset in self._all()]
        await self.delete_topic("T")
        self._topic_begins()
        await self.make_topic()

    async def end_group(self) -> None:
        """It begins anew where it was, or (without its offsets) at the first message."""
        group, clean = self.chance.choice(GROUPS), self.chance.random() < 0.5
        await self.peer.ask(DeleteGroup(group, clean))
        await self.clock.advance(0.01)
        for queue in self.queues[group]:
            queue.settle()
            self._set_to(group, queue, 0 if clean else queue.at)
        await self.make_group(group)

    async def restart(self) -> None:
        """Now and then while somebody pops, who does not hear what he was given."""
        group = self.chance.choice(GROUPS)
        under_way = [asyncio.create_task(self._take(group, 1000))] if self.chance.random() < 0.5 else []
        if under_way:
            for queue in self.queues[group]:
                if not queue.is_closed("", self.now()):  # nobody knows which receipts are worth something
                    queue.settle()
                    queue.set_to(queue.at)
        for _ in range(self.chance.randrange(30)):
            await asyncio.sleep(0)
        await super().restart()
        for each in under_way:
            each.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)
        await self.clock.advance(1.001)

    async def age(self) -> None:
        await super().age()
        for group, queues in self.queues.items():
            for queue in queues:
                queue.settle()
                self._set_to(group, queue, queue.at)
        self.old.clear()  # where nobody was given anything since, they still count

    async def finish(self) -> None:
        for _ in range(100):
            for group in GROUPS:
                await self._pop(group, "", -1)
            for group, queue, offset in [*self._all()]:
                await self.acknowledge(group, queue.out[offset].one)
                queue.acked.add(offset)
            queues = [queue for queues in self.queues.values() for queue in queues]
            for queue in queues:
                queue.settle()
            if all(queue.at == len(queue.wanted) for queue in queues):
                break
            await self.clock.advance(5)
        await self.restart()
        await self.clock.advance(70)
        for group, queues in self.queues.items():
            await self._pop(group, "", -1)
            for at, queue in enumerate(queues):
                queue.settle()
                self._next(queue, at, [])
            assert not await self.lag(group)


@pytest.mark.parametrize("batches", [False, True], ids=["records", "batches"])
@pytest.mark.parametrize("expression", WANTED, ids=lambda expression: expression[0])
async def test_a_history(expression: tuple[str, str], batches: bool, tmp_path: Path) -> None:
    """C4, C9, C10, C14: whoever has them, and whatever happens meanwhile."""
    await play(Ordered, tmp_path, [*WANTED].index(expression) * 2 + batches, expression, batches, steps=25)


def _open_at_once(patch: pytest.MonkeyPatch) -> None:
    """A queue is not closed while somebody has messages of it."""
    patch.setattr(OrderRow, "is_closed", lambda self, attempt, now_ms: False)


def _not_moved(patch: pytest.MonkeyPatch) -> None:
    """Who is set to another place still waits for what was handed out."""
    patch.setattr(OrderTable, "forget", lambda self, group, topic, queue_id: None)


def _any_receipt(patch: pytest.MonkeyPatch) -> None:
    """A receipt counts for whoever has the queue now."""
    original = OrderedPopReader.ack

    async def ack(self: OrderedPopReader, place: GroupQueue, queue_offset: int, pop_time: int, now_ms: int) -> bool:
        row = self.table.decided(name_of(*place))
        has = row is not None and queue_offset in row.queue_offsets
        return await original(self, place, queue_offset, row.pop_time if row and has else pop_time, now_ms)

    patch.setattr(OrderedPopReader, "ack", ack)


def _no_snapshot(patch: pytest.MonkeyPatch) -> None:
    """A snapshot does not say what is handed out."""
    patch.setattr(OrderTable, "committed", lambda self: {})


MUTANTS = {_open_at_once: 0, _not_moved: 5, _any_receipt: 5, _no_snapshot: 0}
"""Each with a seed by which it is noticed soon."""


@pytest.mark.parametrize("mutant", MUTANTS)
async def test_a_broker_that_breaks_a_rule_is_noticed(
    mutant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The histories are of use: without the rule one of them fails (C9)."""
    mutant(monkeypatch)
    with pytest.raises((AssertionError, RmqError)):
        await play_all(Ordered, tmp_path, (MUTANTS[mutant], *range(10)))

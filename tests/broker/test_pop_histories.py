"""Seeded histories of two groups that pop one topic, at a broker that is stopped and killed now and then, deletes what is old,
and loses topics and groups: nothing is lost, nothing acknowledged comes back, and nobody gets what another one still has."""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from rmq.broker.pending.receipts import ReceiptNotes, ReceiptWriter
from rmq.delivery.receipts import ReceiptTable
from rmq.errors import Refusal, RmqError
from rmq.log.records.record import Record
from rmq.net.commands import DeleteGroup, GetMinOffset, GetTopicConfig
from rmq.net.commands.retries import SendBack
from rmq.routing.topics import TopicTable
from rmq.testing import LocalBroker
from tests.broker.pophistory import ALL, GROUPS, HOUR_MS, MOST_TRIES, QUEUES, TAGS, WANTED, Happenings, play, play_all
from tests.broker.popping import Popped, change, take

HIDDEN_MS = 2000, 20_000, 60_000, 48 * HOUR_MS


class Lying(NamedTuple):
    """Where a message can be popped, how often it came back, and when it was stored."""

    topic: str
    queue_id: int
    queue_offset: int
    tries: int
    stored_ms: int


class Out(NamedTuple):
    """What somebody has, and until when nobody else may have it."""

    one: Popped
    until: int


class Book:
    """What a group is to get, by bodies: each is in one of these. `perhaps`: nobody can say whether it comes (None: by coming
    back); `never`: it must not. Of those that lie somebody may have `taken` some, who did not live to tell."""

    def __init__(self, expression: tuple[str, str]) -> None:
        self.expression = expression
        self.lies: dict[bytes, Lying] = {}
        self.out: dict[bytes, Out] = {}
        self.acked: set[bytes] = set()  # and answered
        self.perhaps: dict[bytes, Lying | None] = {}
        self.never: set[bytes] = set()
        self.taken: set[bytes] = set()
        self.tries: Counter[bytes] = Counter()  # of what was handed out last
        self.dead: Counter[bytes] = Counter()  # how often it was made a dead letter
        self.buried: Counter[bytes] = Counter()  # how often it was found there
        self.old: list[Popped] = []  # receipts that are worth nothing any more
        self.read: Counter[str] = Counter()  # up to which offset, by topic

    def end(self, bodies: set[bytes]) -> None:
        """They must not come any more."""
        self.never |= bodies & (self.lies.keys() | self.out.keys() | self.perhaps.keys())
        for body in bodies:
            for state in (self.lies, self.out, self.perhaps):
                state.pop(body, None)
        self.taken -= bodies

    def mine(self, now: int) -> list[Popped]:
        """Those whose time is not over."""
        return [one for one, until in self.out.values() if until > now]


class History(Happenings):
    """What the broker may not do is asserted at once; `finish` waits until nothing is left."""

    def __init__(self, broker: LocalBroker, seed: int, expression: tuple[str, str] = ALL, batches: bool = False) -> None:
        super().__init__(broker, seed, batches)
        self.books = {"g": Book(expression), "h": Book(ALL)}
        self.here: dict[bytes, tuple[str, Lying]] = {}  # in this life of the topic: each one's tag, and where it is
        self.aging = False
        self.count = 0  # of messages that were sent

    async def step(self) -> None:
        usual = (self.send, self.pop, self.pop, self.pop, self.ack, self.ack, self.change, self.crowd, self.pass_time, self.grow)
        rare = (self.restart, self.restart, self.age, self.age, self.end_topic, self.end_group, self.end_group, self.end_retries)
        await self.chance.choice(usual if self.chance.random() < 0.85 else rare)()

    def _book(self) -> tuple[str, Book]:
        group = self.chance.choice(GROUPS)
        return group, self.books[group]

    # --- what clients do

    async def send(self) -> None:
        new = [b"%d" % number for number in range(self.count, self.count + self.chance.randint(1, 5))]
        self.count += len(new)
        queue_id, tag = self.chance.randrange(QUEUES), self.chance.choice(TAGS)
        for body, at in zip(new, await self.store(queue_id, tag, new), strict=True):
            self.here[body] = tag, Lying("T", queue_id, at, 0, self.now())
            for book in self.books.values():
                if tag in WANTED[book.expression]:
                    book.lies[body] = self.here[body][1]

    async def pop(self) -> None:
        group, _ = self._book()
        await self._pop(group, self.chance.choice(HIDDEN_MS), self.chance.randint(1, 6))

    async def _pop(self, group: str, hidden_ms: int, count: int) -> int:
        """How many came."""
        got = await self._take(group, hidden_ms, count)
        await self.look()
        self._handed_out(self.books[group], got, hidden_ms)
        return len(got)

    async def _take(self, group: str, hidden_ms: int, count: int) -> list[Popped]:
        exp, exp_type = self.books[group].expression
        got = await take(self.ask, group=group, count=count, hidden_ms=hidden_ms, exp=exp, exp_type=exp_type)
        assert len(got) <= count
        return got

    def _handed_out(self, book: Book, got: list[Popped], hidden_ms: int) -> None:
        for one in got:
            assert one.body not in book.acked, f"{one.body!r} was acknowledged"
            assert one.body not in book.never, f"{one.body!r} is over"
            assert one.body not in book.out, f"{one.body!r} is with somebody else, {book.out[one.body]}"
            assert one.body in book.lies or one.body in book.perhaps, f"{one.body!r} is not wanted"
            lies = book.lies.pop(one.body, None) or book.perhaps.pop(one.body, None)
            assert lies is not None, f"{one.body!r} did not come back"
            assert lies[:4] == (one.topic, one.queue_id, one.queue_offset, one.tries)
            book.tries[one.body] = one.tries
            book.taken.discard(one.body)
            book.out[one.body] = Out(one, self.now() + hidden_ms)

    async def crowd(self) -> None:
        """Many clients at once."""
        pops = [(self.chance.choice(GROUPS), self.chance.choice(HIDDEN_MS), self.chance.randint(1, 6)) for _ in range(4)]
        others = [self.send(), self.send()]
        for group, book in self.books.items():
            mine = [one for one in book.mine(self.now()) if one.tries < MOST_TRIES]
            for one in self.chance.sample(mine, self.chance.randint(0, len(mine))):
                others.append(self.chance.choice((self._ack, self._change))(group, one))
        self.chance.shuffle(others)
        popping = [asyncio.create_task(self._take(*each)) for each in pops]
        await asyncio.gather(*popping, *others)
        await self.look()
        for (group, hidden_ms, _), got in zip(pops, popping, strict=True):
            self._handed_out(self.books[group], got.result(), hidden_ms)

    async def ack(self) -> None:
        """Some in time, sometimes one too late, sometimes with a receipt that is worth nothing any more."""
        group, book = self._book()
        mine = book.mine(self.now())
        for one in self.chance.sample(mine, self.chance.randint(0, len(mine))):
            await self._ack(group, one)
        old = [one for one in book.old if one.body in book.out or one.body in book.lies]
        if old and self.chance.random() < 0.5:
            await self._ack_in_vain(group, self.chance.choice(old))
        late = sorted(body for body, out in book.out.items() if out.until <= self.now())
        if late and self.chance.random() < 0.3:
            one = book.out.pop(self.chance.choice(late)).one
            await self._ack_in_vain(group, one)
            book.perhaps[one.body] = None

    async def _ack(self, group: str, one: Popped) -> None:
        """Who has tried too often gives it up first."""
        book = self.books[group]
        if one.tries >= MOST_TRIES:
            await self.ask(SendBack(one.physical_offset, group, 0))
            book.dead[one.body] += 1
            if self.chance.random() < 0.2:
                return
        await self.acknowledge(group, one)
        del book.out[one.body]
        book.acked.add(one.body)

    async def _ack_in_vain(self, group: str, one: Popped) -> None:
        with suppress(Refusal):  # its queue is gone, or begins behind it
            await self.acknowledge(group, one)

    async def change(self) -> None:
        group, book = self._book()
        mine = book.mine(self.now())
        for one in self.chance.sample(mine, min(len(mine), 2)):
            await self._change(group, one)

    async def _change(self, group: str, one: Popped) -> None:
        hidden_ms, book = self.chance.choice((1, 5000, 40_000)), self.books[group]
        new = await change(self.ask, one, hidden_ms, group)
        _, pop_time, invisible_ms, *_ = new.handle.split()
        book.old.append(one)
        book.out[one.body] = Out(new, int(pop_time) + int(invisible_ms))
        assert book.out[one.body].until >= self.now() + hidden_ms

    # --- what happens to the broker

    async def pass_time(self) -> None:
        await super().pass_time()
        await self.look()

    async def restart(self) -> None:
        """Now and then while clients wait for answers, which nobody hears."""
        asked = self._in_doubt() if self.chance.random() < 0.5 else []
        under_way = [asyncio.create_task(each) for each in asked]
        for _ in range(self.chance.randrange(30)):
            await asyncio.sleep(0)
        await super().restart()
        for each in under_way:
            each.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)
        await self.look()

    def _in_doubt(self) -> list[Coroutine[Any, Any, object]]:
        group, book = self._book()
        asked: list[Coroutine[Any, Any, object]] = [self._take(group, 20_000, 5)]
        book.taken |= book.lies.keys() | {body for body, lies in book.perhaps.items() if lies is not None}
        mine = book.mine(self.now())
        for one in self.chance.sample(mine, min(len(mine), 3)):
            if self.chance.random() < 0.5:
                asked.append(self.acknowledge(group, one))
                book.perhaps[one.body] = None
                del book.out[one.body]
            else:
                asked.append(change(self.ask, one, 30_000, group))
                book.out[one.body] = Out(one, 0)
        return asked

    async def age(self) -> None:
        await self.look()
        self.aging = True
        await super().age()
        await self.look()
        self.aging = False
        for book in self.books.values():
            for body, lies in [*book.lies.items()]:
                if lies.stored_ms <= self.aged_ms:
                    book.perhaps[body] = book.lies.pop(body)

    async def end_topic(self) -> None:
        """The topic ends with all that is of it, and begins anew."""
        await self.look()
        await self.delete_topic("T")
        for group, book in self.books.items():
            book.old += [out.one for out in book.out.values()]
            book.end({*self.here})
            if await self.peer.ask_code(GetTopicConfig(f"%RETRY%{group}_T")):  # it does not end if the group was deleted before
                book.read[f"%RETRY%{group}_T"] = 0
        self.here.clear()
        await self.make_topic()

    async def end_retries(self) -> None:
        """What came back is deleted; what is out and never came back is not."""
        await self.look()
        group, book = self._book()
        await self._end_retries(group, book)

    async def _end_retries(self, group: str, book: Book) -> None:
        retry = f"%RETRY%{group}_T"
        await self.delete_topic(retry)
        book.read[retry] = 0
        over = {body for body, lies in book.lies.items() if lies.topic == retry}
        over |= {body for body, lies in book.perhaps.items() if lies is not None and lies.topic == retry}
        over |= {body for body, out in book.out.items() if out.one.topic == retry}
        book.old += [book.out[body].one for body in over & book.out.keys()]
        book.end(over)

    async def end_group(self) -> None:
        """It ends with what it has; it begins anew where it was, or (without its offsets) at the first message."""
        await self.look()
        group, book = self._book()
        clean = self.chance.random() < 0.5
        await self.peer.ask(DeleteGroup(group, clean))
        await self.clock.advance(0.01)
        late = {body for body, out in book.out.items() if out.until <= self.now()}
        book.old += [out.one for out in book.out.values()]
        book.end(book.out.keys() - late)
        book.perhaps |= dict.fromkeys(late)
        for body in late:
            del book.out[body]
        for body in book.taken & book.lies.keys():  # if somebody had it, it ended with the group
            book.perhaps[body] = book.lies.pop(body)
        if clean and self.chance.random() < 0.5:
            await self.end_topic()
        elif clean:
            await self._end_retries(group, book)
            await self._begin_anew(book)
        await self.make_group(group)

    async def _begin_anew(self, book: Book) -> None:
        first = [int((await self.peer.ask(GetMinOffset("T", queue_id))).offset) for queue_id in range(QUEUES)]
        book.end({*self.here})
        for body, (tag, lies) in self.here.items():
            book.acked.discard(body)
            if tag in WANTED[book.expression] and lies.queue_offset >= first[lies.queue_id]:
                book.never.discard(body)
                book.tries[body] = 0
                (book.perhaps if lies.stored_ms <= self.aged_ms else book.lies)[body] = lies

    # --- what comes back

    async def look(self) -> None:
        """At what came back since, and became a dead letter."""
        for group, book in self.books.items():
            retry, dead = f"%RETRY%{group}_T", f"%DLQ%{group}"
            for found in await self.read(retry, book.read[retry]):
                book.read[retry] = found.queue_offset + 1
                self._came_back(group, book, found)
            for found in await self.read(dead, book.read[dead]):
                book.read[dead] = found.queue_offset + 1
                book.buried[found.body] += 1
            assert book.buried == book.dead

    def _came_back(self, group: str, book: Book, found: Record) -> None:
        assert found.body not in book.acked, f"{found.body!r} was acknowledged by {group}, and comes back"
        assert found.body not in book.never, f"{found.body!r} is over for {group}, and comes back"
        if found.body in book.taken:
            book.taken.discard(found.body)
            lies = book.lies.pop(found.body, None) or book.perhaps.pop(found.body)
            assert lies is not None
            book.tries[found.body] = lies.tries
        elif (out := book.out.pop(found.body, None)) is None:
            assert found.body in book.perhaps, f"{found.body!r} comes back to {group}, and nobody had it"
            del book.perhaps[found.body]
        else:
            assert self.aging or out.until <= self.now(), f"{found.body!r} comes back too early"
            book.old.append(out.one)
        assert found.reconsume_times == book.tries[found.body] + 1
        place = (found.topic, found.queue_id, found.queue_offset, found.reconsume_times, found.store_timestamp)
        book.lies[found.body] = Lying(*place)

    # --- the end

    async def finish(self) -> None:
        self.clock.jump_wall(50 * HOUR_MS)  # longer than anything is hidden
        for _ in range(200):
            await self.clock.advance(5)
            found = [await self._pop(group, 60_000, 32) for group in GROUPS]
            for group, book in self.books.items():
                for one in book.mine(self.now()):
                    await self._ack(group, one)
            if not any(found) and not any(book.lies or book.out for book in self.books.values()):
                break
        await self.restart()
        await self.clock.advance(70)
        for group, book in self.books.items():
            assert (book.lies, book.out) == ({}, {}), f"lost to {group}: {book.lies} {book.out}"
            assert not await self._pop(group, 60_000, 32), "it comes again"
            assert not self._lag(group)
            assert not await self.lag(group)
        assert not self._receipts()

    def _lag(self, group: str) -> float:
        names = [f"rocketmq_consumer_{name}_messages" for name in ("lag", "inflight")]
        families = [family for family in self.broker.serving.metrics() if family.name in names]
        return sum(value for family in families for labels, value in family.rows if group in labels)

    def _receipts(self) -> Any:
        return self.broker.serving.tables.receipts.committed()


@pytest.mark.parametrize("batches", [False, True], ids=["records", "batches"])
@pytest.mark.parametrize("expression", WANTED, ids=lambda expression: expression[0])
async def test_a_history(expression: tuple[str, str], batches: bool, tmp_path: Path) -> None:
    """C1, C10, C14, D15: whoever has them, and whatever happens meanwhile."""
    await play(History, tmp_path, [*WANTED].index(expression) * 2 + batches, expression, batches, steps=25)


def _place_alone(patch: pytest.MonkeyPatch) -> None:
    """The place moves further than the receipt tells."""
    original = ReceiptWriter.checkpoint_draft
    patch.setattr(
        ReceiptWriter, "checkpoint_draft", lambda self, one: original(self, one._replace(queue_offsets=one.queue_offsets[:1]))
    )


def _receipt_alone(patch: pytest.MonkeyPatch) -> None:
    """The place stays where it was."""
    original = ReceiptWriter.checkpoint_draft
    patch.setattr(ReceiptWriter, "checkpoint_draft", lambda self, one: original(self, one._replace(cursor=None)))


def _end_forgotten(patch: pytest.MonkeyPatch) -> None:
    """Another time for a message, and the first receipt goes on."""
    original = ReceiptWriter.ack_draft
    patch.setattr(ReceiptWriter, "ack_draft", lambda self, key, offsets: original(self, key._replace(pop_time=1), offsets))


def _no_proof(patch: pytest.MonkeyPatch) -> None:
    """What comes back does not say from where."""
    patch.setattr(ReceiptNotes, "done", lambda self, proof, stored: None)


def _no_snapshot(patch: pytest.MonkeyPatch) -> None:
    """A snapshot has no receipts."""
    patch.setattr(ReceiptTable, "apply", lambda self, key, value, time_ms=0: None)


def _any_life(patch: pytest.MonkeyPatch) -> None:
    """What came back from a topic is for its next life, too."""
    patch.setattr(TopicTable, "lives_from", lambda self, topic: 0)


MUTANTS = {
    _place_alone: 5,
    _receipt_alone: 3,
    _end_forgotten: 7,
    _no_proof: 7,
    _no_snapshot: 10,
    _any_life: 3,
}
"""Each with a seed by which it is noticed soon."""


@pytest.mark.parametrize("mutant", MUTANTS)
async def test_a_broker_that_breaks_a_rule_is_noticed(
    mutant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The histories are of use: without the rule one of them fails (story 41)."""
    mutant(monkeypatch)
    with pytest.raises((AssertionError, RmqError)):
        await play_all(History, tmp_path, (MUTANTS[mutant], *range(14)))

"""Seeded histories of messages with a delay or a time of their own, at a broker that is stopped and killed now and then, and
deletes what is old: each comes once, in its queue, never early; none comes that was recalled, or whose topic was deleted."""

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

from rmq.broker.pending import fastdelays
from rmq.delivery.due import DueTable
from rmq.errors import RmqError
from rmq.log.records import record
from rmq.log.records.delays import LEVELS_MS
from rmq.net.commands import DeleteExpiredLog, DeleteTopic, GetMaxOffset, GetMinOffset, SendAnswer
from rmq.net.commands.timers import Recall
from rmq.routing.topics import TopicTable
from rmq.testing import LocalBroker, TestClock
from tests.broker.javaclient import JavaClient
from tests.broker.pophistory import HOUR_MS, SETTINGS as SMALL
from tests.broker.support import Peer, send, stop_somehow
from tests.broker.test_delays import delayed

SETTINGS = {**SMALL, "recall_messages": True}
QUEUES = [("T", 0), ("T", 1), ("U", 0), ("U", 1)]


class Sent(NamedTuple):
    """Where it is to come, and not before when. `handle`: recalls it, "" if it has a level."""

    place: tuple[str, int]
    due_ms: int
    handle: str


class History:
    """Producers and their books: what is to come, what was recalled, and what came, by bodies."""

    def __init__(self, broker: LocalBroker, seed: int) -> None:
        self.broker = broker
        self.clock: TestClock = broker.clock
        self.chance = random.Random(seed)
        self.coming: dict[bytes, Sent] = {}
        self.never: set[bytes] = set()
        self.came: Counter[bytes] = Counter()
        self.read = dict.fromkeys(QUEUES, 0)  # up to which offset
        self.number = 0

    async def begin(self) -> "History":
        self.peer = await Peer.connect(self.broker.address)
        self._java = AsyncExitStack()
        self.java = await self._java.enter_async_context(JavaClient.connect(self.broker.address))
        await self.java.ask(GetMaxOffset("T", 0))  # who says nothing is not let in for long
        return self

    async def end(self) -> None:
        await self.peer.close()
        await self._java.aclose()

    async def step(self) -> None:
        steps = (self.send, self.send, self.recall, self.pass_time, self.pass_time, self.grow)
        rare = (self.restart, self.restart, self.delete, self.age)
        await self.chance.choice(steps if self.chance.random() < 0.9 else rare)()

    # --- what producers do

    def _asked(self) -> tuple[dict[str, str], int]:
        """Properties that ask for a delay, and the time before which nothing may come."""
        now = self.clock.wall_ms()
        if self.chance.random() < 0.4:
            level = self.chance.choice((1, 2, 3, 4))
            return {"DELAY": str(level)}, now + LEVELS_MS[level - 1]
        ms = self.chance.choice((300, 1000, 2500, 7000, 31_000, 9 * HOUR_MS))
        name = self.chance.choice(("TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS"))
        value = {"TIMER_DELAY_SEC": -(-ms // 1000), "TIMER_DELAY_MS": ms, "TIMER_DELIVER_MS": now + ms}[name]
        return {name: str(value)}, now + (value * 1000 if name == "TIMER_DELAY_SEC" else ms)

    async def send(self) -> None:
        """Some in one turn: of our clients and of RocketMQ's, usual ones and (an odd tag) others."""
        new = range(self.number, self.number + self.chance.randint(1, 5))
        self.number = new.stop
        how = self.chance.choice((self._send_ours, self._send_java))
        asked = [(b"%d" % number, self.chance.choice(QUEUES), *self._asked()) for number in new]
        handles = await how([(body, place, said) for body, place, said, _ in asked])
        for (body, place, said, due_ms), handle in zip(asked, handles, strict=True):
            assert bool(handle) == ("DELAY" not in said)
            self.coming[body] = Sent(place, due_ms, handle)

    async def _send_ours(self, asked: list[tuple[bytes, tuple[str, int], dict[str, str]]]) -> list[str]:
        said = [(body, *place, {**said, "TAGS": self.chance.choice("aaaä")}) for body, place, said in asked]
        sends = [delayed(body, topic=topic, queue_id=queue_id, **more) for body, topic, queue_id, more in said]
        answers: list[SendAnswer] = [*await asyncio.gather(*map(self.peer.ask, sends))]
        return [answer.recall_handle for answer in answers]

    async def _send_java(self, asked: list[tuple[bytes, tuple[str, int], dict[str, str]]]) -> list[str]:
        answers = []
        for body, (topic, queue_id), said in asked:
            text = record.properties_to_bytes({**said, "TAGS": self.chance.choice("aaaä"), "UNIQ_KEY": body.hex()}).decode()
            answers.append(self.java.send(body, topic, e=str(queue_id), i=text))
        headers = [(await answer)[0] for answer in answers]
        assert [header.code for header in headers] == [0] * len(asked)
        return [header.ext.get("recallHandle", "") for header in headers]

    async def recall(self) -> None:
        """One that is not due yet: then it does not come."""
        now = self.clock.wall_ms()
        later = sorted(body for body, sent in self.coming.items() if sent.handle and sent.due_ms > now + 2000)
        for body in self.chance.sample(later, min(len(later), 2)):
            sent = self.coming.pop(body)
            await self.peer.ask(Recall(sent.place[0], sent.handle, "p"))
            self.never.add(body)

    async def grow(self) -> None:
        await self.peer.send(*(send("F", b"x" * 3000) for _ in range(10)))

    async def delete(self) -> None:
        """The topic ends with all that waits for it, and begins anew."""
        await self.look()
        await self.peer.ask(DeleteTopic("U"))
        over = [body for body, sent in self.coming.items() if sent.place[0] == "U"]
        self.never.update(over)
        for body in over:
            del self.coming[body]
        self.read |= {place: 0 for place in QUEUES if place[0] == "U"}
        await self.broker.create_topic("U", 2)

    # --- what happens to the broker

    async def pass_time(self) -> None:
        await self.clock.advance(self.chance.choice((0.1, 0.9, 3.0, 12.0)))
        await self.look()

    async def age(self) -> None:
        """Hours go by, and old segments are deleted: what waits in them is carried forward."""
        await self.look()
        self.clock.jump_wall(self.chance.choice((2, 5)) * HOUR_MS)
        await self.restart()  # a clock that jumped is not believed before
        for _ in range(3):
            await self.peer.ask(DeleteExpiredLog())
            await self.clock.advance(11.0)
        await self.look()

    async def restart(self) -> None:
        await self.look()
        await self.end()
        await stop_somehow(self.broker, self.chance)
        await self.broker.start_broker()
        await self.begin()

    # --- what comes

    async def look(self) -> None:
        """At what came since: each is as its producer wanted it."""
        for place in QUEUES:
            end = int((await self.peer.ask(GetMaxOffset(*place))).offset)
            at = max(self.read[place], int((await self.peer.ask(GetMinOffset(*place))).offset))
            while at < end:
                found = [*record.iterate((await self.peer.pull(place[0], at, queue_id=place[1])).messages)]
                assert found
                at += len(found)
                for one in found:
                    self._arrived(place, one)
            self.read[place] = at  # more may have come meanwhile

    def _arrived(self, place: tuple[str, int], one: record.Record) -> None:
        self.came[one.body] += 1
        assert self.came[one.body] == 1, f"{one.body!r} came again"
        assert one.body not in self.never, f"{one.body!r} came, which was recalled, or whose topic was deleted"
        sent = self.coming.pop(one.body)
        assert (sent.place, one.store_timestamp >= sent.due_ms) == (place, True), one.body

    async def finish(self) -> None:
        await self.restart()
        self.clock.jump_wall(9 * HOUR_MS)
        await self.clock.advance_until(lambda: not self.broker.serving.tables.due.pending)
        await self.look()
        assert not self.coming, "they never came"
        await self.restart()
        await self.clock.advance(3.0)
        await self.look()
        assert len(self.came) + len(self.never) == self.number


async def play(folder: Path, seed: int, steps: int = 60) -> None:
    async with LocalBroker(store_dir=folder / str(seed) / "store", clock=TestClock(running=False), **SETTINGS) as broker:
        for topic in ("T", "U", "F"):
            await broker.create_topic(topic, 2)
        history = await History(broker, seed).begin()
        try:
            for _ in range(steps):
                await history.step()
            await history.finish()
        finally:
            await history.end()


async def play_all(folder: Path, seeds: int) -> None:
    for seed in range(seeds):
        await play(folder, seed)


@pytest.mark.parametrize("seed", range(4))
async def test_a_history(seed: int, tmp_path: Path) -> None:
    """C13: whoever sent them, and whatever happened while they waited."""
    await play(tmp_path, seed)


def _recalls_forgotten(patch: pytest.MonkeyPatch) -> None:
    """The quick way does not look for recalls."""
    patch.setattr(DueTable, "has_cancelled", lambda self, due_ms: False)


def _second_early(patch: pytest.MonkeyPatch) -> None:
    """Where the codec drafts it, the time that is put in is a second too early."""
    real = fastdelays.scheduled
    patch.setattr(
        fastdelays, "scheduled", lambda records, known, *limits: real(records, known._replace(ms=known.ms - 1000), *limits)
    )


def _any_life(patch: pytest.MonkeyPatch) -> None:
    """What waited for a topic comes in the next one of that name."""
    patch.setattr(TopicTable, "lives_from", lambda self, topic: 0)


@pytest.mark.parametrize("mutant", [_recalls_forgotten, _second_early, _any_life])
async def test_a_broker_that_breaks_a_rule_is_noticed(
    mutant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The histories are of use: without the rule one of them fails (G1), though a seed does not fail every time: what comes in
    one read is not the seed's choice."""
    mutant(monkeypatch)
    with pytest.raises((AssertionError, RmqError)):
        await play_all(tmp_path, 12)  # the first that fails ends them; most do in the second

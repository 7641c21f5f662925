"""Seeded histories of transactions at a broker that is stopped and killed now and then: one end for each half, no second one."""

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmq.broker.pending import halves
from rmq.broker.pending.halves import HalfNotes
from rmq.delivery.transactions import Half, HalfTable
from rmq.errors import RmqError
from rmq.net.commands import SendAnswer
from rmq.net.commands.transactions import CheckTransactionState
from rmq.testing import LocalBroker
from tests.broker.support import Peer, beat, stop_somehow
from tests.broker.transactions import COMMIT, ROLLBACK, UNKNOWN, checks, end, half, numbers, outcome, stored

SETTINGS: dict[str, Any] = {
    "segment_bytes": 1 << 20,
    "max_message_bytes": 4096,
    "idle_timeout_ms": 86_400_000,
    "client_expiry_ms": 3_600_000,
    "index_slots": 100,
    "index_entries": 400,
    "transaction_check_max": 1000,
}


class History:
    """A producer and its books. `said`: the outcome of each message that the broker confirmed."""

    def __init__(self, broker: LocalBroker, seed: int) -> None:
        self.broker = broker
        self.chance = random.Random(seed)
        self.sent: dict[bytes, SendAnswer] = {}
        self.said: dict[bytes, int] = {}
        self.asked = 0  # questions of this run that were looked at

    async def begin(self) -> "History":
        self.peer = await Peer.connect(self.broker.address)
        self.asked = 0
        await self.peer.ask(beat("c"))
        return self

    async def step(self) -> None:
        steps = (self.send, self.end, self.end, self.repeat, self.answer, self.pass_time)
        await (self.chance.choice(steps) if self.chance.random() < 0.95 else self.restart)()

    async def send(self) -> None:
        for _ in range(self.chance.randint(1, 4)):
            body = b"%d" % len(self.sent)
            [self.sent[body]] = await self.peer.send(half(body))

    def _some(self, bodies: set[bytes]) -> list[bytes]:
        return self.chance.sample(sorted(bodies), min(len(bodies), self.chance.randint(0, 3)))

    async def end(self) -> None:
        for body in self._some(self.sent.keys() - self.said.keys()):
            await self._say(body, self.sent[body])

    async def _say(self, body: bytes, place: SendAnswer | CheckTransactionState) -> None:
        how = self.chance.choice((COMMIT, ROLLBACK, UNKNOWN))
        await self.peer.ask(end(place, how))
        if how != UNKNOWN:
            self.said[body] = how

    async def repeat(self) -> None:
        """Said before: the same is well, the opposite is refused."""
        for body in self._some(set(self.said)):
            how = self.chance.choice((COMMIT, ROLLBACK))
            assert (await outcome(self.peer, end(self.sent[body], how)) == 0) == (how == self.said[body]), body

    async def answer(self) -> None:
        """The questions that came lately, some of them late."""
        for question in checks(self.peer)[self.asked :]:
            body = question.msg_id.removeprefix("id-").encode()
            if body not in self.said and self.chance.random() < 0.7:
                await self._say(body, question)
        self.asked = len(checks(self.peer))

    async def pass_time(self) -> None:
        await self.broker.clock.advance(self.chance.choice((0.5, 4.0, 31.0)))

    async def restart(self) -> None:
        await self.peer.close()
        await stop_somehow(self.broker, self.chance)
        await self.broker.start_broker()
        await self.begin()

    async def finish(self) -> None:
        for _ in range(40):
            if self.said.keys() == self.sent.keys():
                break
            await self.broker.clock.advance(31)
            await self.answer()
        assert self.said.keys() == self.sent.keys(), f"never asked after: {sorted(self.sent.keys() - self.said.keys())}"
        await self.repeat()
        await self.restart()
        await self.broker.clock.advance(40)
        found = Counter(one.body for one in await stored(self.peer, "T"))
        assert found == Counter(body for body, how in self.said.items() if how == COMMIT)
        assert not checks(self.peer), "asked after what has ended"
        told = Counter(map(int, await numbers(self.peer)))
        appended = await stored(self.peer, halves.HALF_TOPIC)
        assert told == Counter(range(len(appended))), "RocketMQ would ask after one, or is told twice"
        await self.peer.close()


async def play(folder: Path, seed: int, steps: int = 50) -> None:
    async with LocalBroker(store_dir=folder / str(seed) / "store", **SETTINGS) as broker:
        await broker.create_topic("T", 1)
        history = await History(broker, seed).begin()
        for _ in range(steps):
            await history.step()
        await history.finish()


async def play_all(folder: Path, seeds: int) -> None:
    for seed in range(seeds):
        await play(folder, seed)


@pytest.mark.parametrize("seed", range(4))
async def test_a_history(seed: int, tmp_path: Path) -> None:
    """C11, C12, story 37: one end for each, the first that was confirmed; every open one is asked after."""
    await play(tmp_path, seed)


def _no_proof(patch: pytest.MonkeyPatch) -> None:
    """What ends a half does not say which."""
    patch.setattr(HalfNotes, "done", lambda self, proof, stored: None)


def _another_half(patch: pytest.MonkeyPatch) -> None:
    """A half that is appended again is taken for a new one."""
    patch.setattr(halves, "first_of", lambda stored: stored.physical_offset)


def _not_told(patch: pytest.MonkeyPatch) -> None:
    """The old place of a half that was appended again is not told to RocketMQ."""

    def appended(self: HalfTable, first: int, one: Half) -> None:
        self.open.rows.setdefault(first, one)
        self.open.rows[first] = self.open.rows[first]._replace(
            offset=one.offset, queue_offset=one.queue_offset, checks=one.checks
        )
        self._moving.discard(first)

    patch.setattr(HalfTable, "appended", appended)


def _outcome_forgotten(patch: pytest.MonkeyPatch) -> None:
    """What has ended is not remembered, so nobody can be told the same again."""
    patch.setattr(HalfTable, "outcome", lambda self, first: self._ending.get(first, ""))


@pytest.mark.parametrize("mutant", [_no_proof, _another_half, _not_told, _outcome_forgotten])
async def test_a_broker_that_breaks_a_rule_is_noticed(
    mutant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The histories are of use: without the rule one of them fails (G1)."""
    mutant(monkeypatch)
    with pytest.raises((AssertionError, RmqError)):
        await play_all(tmp_path, 4)

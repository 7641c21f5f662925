"""Ordered pops of one group against a model of what each queue is to give: with filters, batches, other times for messages, other
places for the group, restarts."""

from typing import NamedTuple

import pytest

from rmq.net.commands.resets import ResetOffset
from rmq.testing import LocalBroker
from tests.broker.popping import Popped, ack, change, pop, popped, take
from tests.broker.test_pop_stories import QUEUES, TAGS, WANTED, History


class Out(NamedTuple):
    """A message that was handed out, and until when nobody gets what is behind it."""

    one: Popped
    until: float


class Queue:
    """`wanted`: offsets of all messages that the group wants; `at`: how many of them are done; `out`: those handed out last."""

    def __init__(self) -> None:
        self.end = self.at = 0
        self.wanted: list[int] = []
        self.out: dict[int, Out] = {}
        self.acked: set[int] = set()  # of `out`

    def is_closed(self, now: float) -> bool:
        """Give it half a second more, or less, to be sure."""
        return any(each.until > now for offset, each in self.out.items() if offset not in self.acked)

    def settle(self) -> None:
        """The next one is the first of `out` that is not acknowledged, or what is behind them."""
        left = [offset for offset in self.out if offset not in self.acked]
        if self.out:
            self.at = self.wanted.index(left[0]) if left else self.wanted.index(max(self.out)) + 1


class Ordered(History):
    def __init__(self, broker: LocalBroker, seed: int, expression: tuple[str, str], batches: bool) -> None:
        super().__init__(broker, seed, expression, batches)
        self.queues = [Queue() for _ in range(QUEUES)]

    async def send(self) -> None:
        queue_id, tag = self.chance.randrange(QUEUES), self.chance.choice(TAGS)
        queue, count = self.queues[queue_id], self.chance.randint(1, 5)
        await self.store(queue_id, tag, [b"x"] * count)
        if tag in WANTED[self.expression]:
            queue.wanted += range(queue.end, queue.end + count)
        queue.end += count

    async def pop(self) -> None:
        hidden_ms, count = self.chance.choice((2000, 20_000, 60_000)), self.chance.randint(1, 4)
        exp, exp_type = self.expression
        queue_id = self.chance.randint(-1, QUEUES - 1)
        now = self.now()
        asked = pop(order=True, count=count, hidden_ms=hidden_ms, exp=exp, exp_type=exp_type, queue_id=queue_id)
        answer = await self.peer.ask(asked)
        got = popped(answer, asked) if answer.messages else []
        assert len(got) <= count
        for at, queue in enumerate(self.queues):
            mine = [one for one in got if one.queue_id == at]
            if not mine:
                continue
            assert not queue.is_closed(now + 500), f"queue {at} was handed out before {queue.out}"
            queue.settle()
            offsets = [one.queue_offset for one in mine]
            assert offsets == queue.wanted[queue.at : queue.at + len(mine)], f"queue {at}: {offsets}"
            queue.out = {one.queue_offset: Out(one, now + hidden_ms) for one in mine}
            queue.acked = set()
        if not got:
            for at in range(QUEUES) if queue_id < 0 else (queue_id,):
                queue = self.queues[at]
                if not queue.is_closed(now - 500):
                    queue.settle()
                    assert queue.at == len(queue.wanted), f"queue {at} gave nothing, and is at {queue.at} of {queue.wanted}"

    def _in_hand(self) -> list[tuple[Queue, int]]:
        """Those of which no other pop has anything."""
        now = self.now() + 500
        return [
            (queue, each) for queue in self.queues for each, out in queue.out.items() if out.until > now or each in queue.acked
        ]

    async def ack(self) -> None:
        in_hand = self._in_hand()
        for queue, offset in self.chance.sample(in_hand, self.chance.randint(0, len(in_hand))):
            await ack(self.peer.ask, queue.out[offset].one)
            queue.acked.add(offset)

    async def change(self) -> None:
        left = [(queue, offset) for queue, offset in self._in_hand() if offset not in queue.acked]
        for queue, offset in left[:2]:
            hidden_ms, now = self.chance.choice((1, 5000, 40_000)), self.now()
            one = await change(self.peer.ask, queue.out[offset].one, hidden_ms)
            queue.out[offset] = Out(one, now + hidden_ms)

    async def move(self) -> None:
        queue_id = self.chance.randrange(QUEUES)
        queue = self.queues[queue_id]
        to = self.chance.randint(0, queue.end)
        await self.peer.ask(ResetOffset("T", "g", queue_id, to))
        queue.at = sum(offset < to for offset in queue.wanted)
        queue.out, queue.acked = {}, set()

    async def step(self) -> None:
        if self.chance.random() < 0.05:
            await self.move()
        else:
            await super().step()

    async def finish(self) -> None:
        for _ in range(300):
            await self.pop()
            for queue, offset in self._in_hand():
                await ack(self.peer.ask, queue.out[offset].one)
                queue.acked.add(offset)
                queue.settle()
            if all(queue.at == len(queue.wanted) for queue in self.queues):
                break
            await self.broker.clock.advance(5)
        assert all(queue.at == len(queue.wanted) for queue in self.queues)
        await self.restart()
        await self.broker.clock.advance(70)
        assert await take(self.peer.ask, order=True, exp=self.expression[0], exp_type=self.expression[1]) == []
        await self.peer.close()


@pytest.mark.parametrize("batches", [False, True], ids=["records", "batches"])
@pytest.mark.parametrize("expression", WANTED, ids=lambda expression: expression[0])
async def test_a_history(expression: tuple[str, str], batches: bool) -> None:
    """C4, C9, C10, C14."""
    for seed in range(2):
        async with LocalBroker() as broker:
            history = await Ordered(broker, seed, expression, batches).begin()
            for _ in range(60):
                await history.step()
            await history.finish()

"""Many messages that wait: handed on and carried forward together, but not in one go."""

import asyncio
from collections import Counter
from typing import Any

import pytest

from rmq.broker.pending.delays import AT_ONCE, MOST_BITES, SLOW
from rmq.broker.pending.internalproducer import InternalProducer
from rmq.log.units import Unit
from rmq.model import TIMER_TOPIC
from rmq.testing import LocalBroker, TestClock
from tests.broker.support import Peer, everything
from tests.broker.test_delays import delayed, said, service_of


@pytest.mark.parametrize(("more", "piece"), [({}, AT_ONCE), ({"own": "\u00e4"}, AT_ONCE // SLOW)])
async def test_many_that_are_due_give_others_their_turn_and_stop_with_the_leadership(more: dict[str, str], piece: int) -> None:
    """Pauses of 22 ms: 200 were handed on in one go, one by one; usual ones take a fifth of that. C13: the leadership was lost,
    and won again, between two pieces."""
    count, put = 3 * piece, list[int]()

    class Counting(InternalProducer):
        def put(self, *args: Any, **named: Any) -> Unit:
            put.append(turns)
            return super().put(*args, **named)

        def turn_units(self, *args: Any, **named: Any) -> Any:
            units = super().turn_units(*args, **named)
            units.add = counting(units.add)  # type: ignore[method-assign]
            return units

    def counting(add: Any) -> Any:
        def counted(*args: Any) -> Any:
            put.append(turns)
            return add(*args)

        return counted

    async with LocalBroker(clock=TestClock(running=False)) as broker:
        await broker.create_topic("T", 1)
        peer = await Peer.connect(broker.address)
        await peer.send(*(delayed(DELAY=1, **more) for _ in range(count)))
        service, table = service_of(broker, Counting)
        turns, loses = 0, True

        async def others() -> None:
            nonlocal turns
            while True:
                turns += 1
                if loses and len(put) == piece:
                    table.drop_overlay()
                await asyncio.sleep(0)

        beside = asyncio.create_task(others())
        broker.clock.jump_wall(2000)
        await service.hand_on()
        assert len(put) == piece
        assert table.pending == count - piece
        loses = False
        await service.hand_on()
        assert (len(put), table.pending) == (count, 0)
        assert max(Counter(put[piece:]).values()) == piece
        assert len(await everything(peer)) == count
        beside.cancel()
        await peer.close()


async def test_many_that_wait_for_a_second_of_their_own_are_carried_together() -> None:
    """Only 50 seconds' worth went at once, so a full log with a million of them stayed full for hours."""
    async with LocalBroker(clock=TestClock(running=False)) as broker:
        await broker.create_topic("T", 1)
        peer = await Peer.connect(broker.address)
        at, count = broker.clock.wall_ms() + 3_600_000, 2 * MOST_BITES
        await peer.send(*(delayed(b"%d" % number, TIMER_DELIVER_MS=at + 1000 * number) for number in range(count)))
        service, table = service_of(broker, InternalProducer)
        await service.carry_forward(broker.serving.store.log.end)
        copies = [said(one).get("TIMER_ROLL_TIMES") for one in await everything(peer, TIMER_TOPIC)]
        assert (copies.count("1"), table.pending) == (count, count)
        await peer.close()

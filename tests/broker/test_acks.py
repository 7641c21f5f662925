"""Acknowledgements that come together end as those that come one by one."""

import asyncio
import random
from pathlib import Path

import pytest

from rmq.broker.handlers.ack import PARTS_AT_ONCE
from rmq.codes import ResponseCode
from rmq.delivery.popping import parse_handle
from rmq.net.codec.frames import Received
from rmq.net.commands import Ping
from rmq.net.commands.pop import Ack, AckedRange, BatchAck, ChangeInvisibleTime
from rmq.net.transport.connection import Connection
from rmq.testing import LocalBroker, until
from tests.broker.popping import MINUTE_MS, Popped, bodies, take
from tests.broker.support import Peer, send

GROUPS, COUNT = ("g", "h"), 300


async def popped_of(peer: Peer) -> list[tuple[str, Popped]]:
    """Each with its group: receipts of several queues, two of one queue, and an ordered pop."""
    await peer.send(*(send("T", b"%d" % number, queue_id=number % 2) for number in range(COUNT)))
    found = [
        (group, one)
        for group in GROUPS
        for count in (32, 7, 32, 5, 32, 32)
        for one in await take(peer.ask, group=group, count=count)
    ]
    return found + [("o", one) for one in await take(peer.ask, group="o", order=True)]


def some(chance: random.Random, popped: list[tuple[str, Popped]]) -> list[Ack]:
    """A burst, most of it neighbours; some of it wrong."""
    first, count = chance.randrange(len(popped)), chance.randrange(1, 16)
    right = [Ack(group, one.topic, one.queue_id, one.handle, one.queue_offset) for group, one in popped[first : first + count]]
    asked = right[:]
    for _ in range(chance.randrange(3)):
        one = chance.choice(right)
        handle = one.extra_info
        wrong = (
            {"offset": chance.choice((-1, 0, 149, 150, 1 << 40))},
            {"extra_info": chance.choice(("", "what", f"{handle} 9", f"{handle}x", handle.rpartition(" ")[0], handle + " "))},
            {"extra_info": parse_handle(handle)._replace(pop_time=1).text()},
            {"topic": chance.choice(("", "None", "%RETRY%g_T"))},
            {"queue_id": chance.choice((-1, 1, 2))},
            {"consumer_group": "h"},
        )
        asked.insert(chance.randrange(len(asked) + 1), one._replace(**chance.choice(wrong)))
    return asked


async def outcome(seed: int, together: bool) -> tuple[list[int], int, list[bytes]]:
    """What was answered, how many came together, and what comes back. The requests are the same for the same `seed`."""
    chance, rooms, taken = random.Random(seed), random.Random(seed), 0
    async with LocalBroker() as broker:
        await broker.create_topic("T", 2)
        broker.serving.writer.chance.seed(seed)
        peer = await Peer.connect(broker.address)
        popped = await popped_of(peer)
        server = broker.serving.front.server
        take_acks = server.takes[Ack]

        def counting(connection: Connection, received: list[Received], first: int, room: int) -> int:
            nonlocal taken
            at = take_acks(connection, received, first, rooms.choice((-1, 1500, room)))
            taken += at - first
            return at

        server.takes = {**server.takes, Ack: counting} if together else {}
        answers = list[int]()
        for _ in range(60):
            answers += await asyncio.gather(*(peer.ask_code(one) for one in some(chance, popped)))
        back = list[bytes]()
        receipts = broker.serving.tables.receipts
        looking = asyncio.create_task(until(lambda: not receipts))
        await broker.clock.advance_until(looking.done)
        for group in GROUPS:
            again = list[bytes]()
            while some_of_them := bodies(await take(peer.ask, group=group)):
                again += some_of_them
            back += sorted(again)
        back += bodies(await take(peer.ask, group="o", order=True))
        await peer.close()
    return answers, taken, back


@pytest.mark.parametrize("seed", range(3))
async def test_together_or_one_by_one(seed: int) -> None:
    """C10, a twin."""
    answers, taken, back = await outcome(seed, True)
    assert taken > 50
    assert back
    assert len(set(answers)) > 3
    alone, none, also_back = await outcome(seed, False)
    assert (answers, back, none) == (alone, also_back, 0)


async def test_another_time_that_cannot_be_given_changes_nothing(tmp_path: Path) -> None:
    """What the queue says of the message could not be read just then. It never came back, until somebody else led."""
    async with LocalBroker(store_dir=tmp_path) as broker:
        await broker.create_topic("T", 1)
        peer = await Peer.connect(broker.address)
        await peer.send(send("T", b"1"))
        [one] = await take(peer.ask, hidden_ms=10_000)
        await peer.close()
        await broker.stop_broker()
        await broker.start_broker()
        peer = await Peer.connect(broker.address)
        [entries] = (tmp_path / "consumequeue" / "T" / "0").iterdir()
        entries.rename(tmp_path / "aside")
        asked = ChangeInvisibleTime("g", one.topic, one.queue_id, one.handle, one.queue_offset, MINUTE_MS)
        assert await peer.refusal(asked) == ResponseCode.SYSTEM_ERROR
        (tmp_path / "aside").rename(entries)
        await broker.clock.advance(20)
        again: list[Popped] = []
        async with asyncio.timeout(30):
            while not again:
                again = await take(peer.ask, poll_ms=1000)
        assert bodies(again) == [b"1"]
        await peer.close()


async def test_thousands_of_acknowledgements_in_one_request_let_others_go_on() -> None:
    """S6: 12 000 parts, as many as a frame holds, took a second and a half in one step."""
    async with LocalBroker() as broker:
        await broker.create_topic("T", 1)
        peer, other = await Peer.connect(broker.address), await Peer.connect(broker.address)
        part = AckedRange("g", "T", "0", 0, 0, 0, 1, MINUTE_MS, b"\xff" * 128)
        asked, meanwhile = asyncio.create_task(peer.ask(BatchAck("broker", [part] * 100 * PARTS_AT_ONCE))), 0
        while not asked.done():
            await other.ask(Ping())
            meanwhile += 1
        await asked
        assert meanwhile > 20

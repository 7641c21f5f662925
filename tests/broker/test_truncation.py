"""Story 55, promoted_slave_consumer_ahead_sent_back: who read what the new log does not have reads on from where
the two logs part. Repeats are allowed, loss is not."""

import asyncio
import json
from pathlib import Path

import pytest

from rmq.broker.shared import truncation
from rmq.broker.shared.truncation import TruncationGuard
from rmq.client import Client, ClientSettings, Consumer, LightConsumer
from rmq.codes import ResponseCode as R
from rmq.delivery.groups import ConsumerRegistry
from rmq.delivery.offsets import OffsetTable
from rmq.log.files.memory import MemoryDisk
from rmq.log.queues.queues import ConsumeQueues
from rmq.log.records import record
from rmq.model import ConsumerData, EpochEntry
from rmq.net.commands import Pull, QueryConsumerOffset, UpdateConsumerOffset, UpdateTopic
from rmq.net.commands.peers import Promote
from rmq.testing import TestClock, entries, until
from tests.broker.pair import Pair
from tests.broker.support import SUBSCRIBED, Peer, beat, bodies, send
from tests.broker.test_lights import LIGHT, light
from tests.net import java_peer

# --- the rule alone -----------------------------------------------------------------------------------------------------

LOSSY = (EpochEntry(1, 0, "a"), EpochEntry(2, 700, "b", True))


class Told:
    """One queue whose message n stands at 100 n, but from the lossy epoch's start, 700, on 50 bytes further: 7 at 750."""

    def __init__(self, stored: int | None = 5) -> None:
        queues = ConsumeQueues(MemoryDisk(), "/q", 100, 100)
        self.queue = queues.get("T", 0)
        for number in range(12):
            self.queue.put_many(number, number * 100 + (50 if number >= 7 else 0), [100], [0])
        self.offsets = OffsetTable()
        if stored is not None:
            self.offsets.update("g", "T", 0, stored)
        self.registry = ConsumerRegistry()
        self.guard = TruncationGuard(self.offsets, queues, self.registry)
        self.guard.learn(LOSSY)

    def pull(self, offset: int, after: int = -1, reader: str = "c") -> int | None:
        return self.guard.send_back(Pull("g", "T", 0, offset, after=after), reader)

    def early(self, offset: int, reader: str = "c", oneway: bool = True) -> bool:
        return self.guard.is_early(UpdateConsumerOffset("g", "T", 0, offset), reader, oneway)


def test_without_a_lossy_epoch_nothing_is_asked() -> None:
    told = Told()
    told.guard.learn((EpochEntry(1, 0, "a"), EpochEntry(2, 700, "b")))
    assert told.guard.starts == ()


@pytest.mark.parametrize(
    ("offset", "after", "back"),
    [
        (10, 900, 5),  # message 9 stands at 950 now
        (10, 950, None),  # it read this log
        (8, 700, 5),  # the first that was lost
        (7, 600, None),  # nothing that was lost
        (30, 2900, 5),  # further than this queue reaches
        (0, -1, None),
    ],
)
def test_ours_names_the_message_before(offset: int, after: int, back: int | None) -> None:
    assert Told().pull(offset, after) == back


def test_back_to_what_both_logs_have_when_the_stored_offset_lies_behind_or_is_missing() -> None:
    assert Told(stored=9).pull(10, 900) == 7
    assert Told(stored=None).pull(10, 900) == 7


@pytest.mark.parametrize(("offset", "stored", "back"), [(10, 5, 5), (10, 7, 7), (7, 5, None), (10, 8, None), (10, None, None)])
def test_others_are_judged_by_the_stored_offset(offset: int, stored: int | None, back: int | None) -> None:
    assert Told(stored).pull(offset) == back


def test_only_the_first_pull_of_a_reader_is_looked_at() -> None:
    """And again after the next lossy epoch."""
    told = Told()
    assert told.pull(10) == 5
    assert told.pull(10) == 5, "it did not go back"
    assert told.pull(5) is None
    assert told.pull(10) is None
    assert told.pull(10, reader="another") == 5
    told.guard.learn((*LOSSY, EpochEntry(3, 1150, "a", True)))
    assert told.pull(12) == 5


def test_readers_that_were_looked_at_are_remembered_of_so_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(truncation, "MAX_CHECKED", 2)
    told = Told()
    before = entries(told.guard)
    for number in range(5):
        assert told.guard.send_back(Pull(f"g{number}", "T", 0, 0), "me") is None
    assert entries(told.guard) <= before + 2


def test_the_newest_part_that_the_reader_crossed_counts() -> None:
    told = Told(stored=None)
    told.guard.learn((*LOSSY, EpochEntry(3, 1050, "a", True)))
    assert told.pull(11, 1000) == 7
    assert told.pull(12, 1100) == 10


def test_a_commit_of_who_did_not_pull_here_counts_not() -> None:
    """Else the group would be told to go on behind the new messages. An administrator's counts; so does one at or below."""
    told = Told()
    assert told.early(10)
    assert not told.early(7)
    assert not told.early(10, oneway=False)
    told.registry.heartbeat(1, "c", "PYTHON", 1, "127.0.0.1:1", [ConsumerData("g")], [], 0.0)
    assert told.early(10, oneway=False)
    assert told.pull(5) is None
    assert not told.early(10)


# --- live ---------------------------------------------------------------------------------------------------------------


async def torn(pair: Pair) -> tuple[Peer, Peer]:
    """A master whose slave stopped: messages 0 to 4 are on both, and then 5 to 9 were sent, which only the master has."""
    master = await pair.start(0, "ASYNC_MASTER")
    await pair.start(1, "SLAVE")
    await pair.level()
    peer = await Peer.connect(master.address, "java@1")
    await peer.ask(UpdateTopic("N", read_queue_nums=1, write_queue_nums=1))
    await peer.ask(beat("java@1", "g", topic="N"))
    for number in range(5):
        await peer.ask(send("N", b"%d" % number))
    await peer.ask(UpdateConsumerOffset("g", "N", 0, 3))
    await pair.level()
    await pair.stop(1)
    for number in range(5, 10):
        await peer.ask(send("N", b"lost %d" % number))
    return peer, await Peer.connect(master.address, "native")


async def fall_over(pair: Pair) -> Peer:
    """The master dies; the slave is promoted and takes six messages, numbers 5 to 10."""
    await pair.stop(0)
    slave = await pair.start(1, "SLAVE")
    peer = await Peer.connect(slave.address, "admin")
    await peer.ask(Promote())
    await pair.leads(1)
    for number in range(5, 11):
        await peer.ask(send("N", b"new %d" % number))
    return peer


async def test_a_pull_that_names_its_place_is_sent_back(pair: Pair) -> None:
    first, native = await torn(pair)
    read = await native.pull("N", 8)
    assert bodies(read) == [b"lost 8", b"lost 9"]
    place = next(iter(places(read.messages)))
    await first.close()
    await native.close()
    admin = await fall_over(pair)
    again = await Peer.connect(pair.nodes[1].address, "native")
    again.channel.post(UpdateConsumerOffset("g", "N", 0, 9))  # it tells what it handled before it pulls
    moved = await again.pull("N", 9, after=place, flag=SUBSCRIBED | 1, commit_offset=9)
    assert (moved.status, moved.next_begin_offset) == (R.PULL_OFFSET_MOVED, 3)
    assert (await admin.ask(QueryConsumerOffset("g", "N", 0))).offset == 3, "neither commit counted"
    rest = bodies(await again.pull("N", moved.next_begin_offset))
    assert rest == [b"3", b"4", *(b"new %d" % number for number in range(5, 11))]
    await again.ask(UpdateConsumerOffset("g", "N", 0, 11))
    assert (await admin.ask(QueryConsumerOffset("g", "N", 0))).offset == 11
    await again.close()
    await admin.close()


def places(messages: bytes) -> list[int]:
    return [found.physical_offset for found in record.iterate(messages)]


async def java_pull(address: str, offset: int) -> tuple[int, int]:
    """Code and next offset, as a client of RocketMQ gets them on a new connection."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    pull = Pull("g", "N", 0, offset, sys_flag=SUBSCRIBED)
    writer.write(java_peer.request_frame(pull, 2, False))
    frame = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
    header = json.loads(frame[4 : 4 + int.from_bytes(frame[1:4], "big")])
    writer.close()
    await writer.wait_closed()
    return int(header["code"]), int(header["extFields"]["nextBeginOffset"])


async def test_a_client_of_rocketmq_is_sent_back_by_its_stored_offset(pair: Pair) -> None:
    first, native = await torn(pair)
    await first.close()
    await native.close()
    admin = await fall_over(pair)
    address = pair.nodes[1].address
    assert await java_pull(address, 9) == (R.PULL_OFFSET_MOVED, 3)
    assert await java_pull(address, 20) == (R.PULL_OFFSET_MOVED, 3), "not to the end, as without a lossy epoch"
    assert await java_pull(address, 5) == (R.SUCCESS, 11)
    await admin.ask(UpdateConsumerOffset("g", "N", 0, 9))
    assert await java_pull(address, 9) == (R.SUCCESS, 11), "the group has read that far in this log"
    await admin.close()


async def test_our_consumer_gets_all_that_came_instead(pair: Pair) -> None:
    master = await pair.start(0, "ASYNC_MASTER")
    await pair.start(1, "SLAVE")
    await pair.level()
    peer = await Peer.connect(master.address)
    await peer.ask(UpdateTopic("N", read_queue_nums=1, write_queue_nums=1))
    got: list[bytes] = []
    async with Client(pair.nameserver.address) as client, client.consumer("g", "N", start="first") as consumer:
        reading = asyncio.create_task(read(consumer, got))
        for number in range(5):
            await peer.ask(send("N", b"%d" % number))
        await until(lambda: len(got) == 5)
        await pair.level()
        await pair.stop(1)
        for number in range(5, 10):
            await peer.ask(send("N", b"lost %d" % number))
        await until(lambda: len(got) == 10)
        await peer.close()
        admin = await fall_over(pair)
        wanted = {b"new %d" % number for number in range(5, 11)}
        await until(lambda: wanted <= set(got))
        await admin.close()
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)


async def read(consumer: Consumer, got: list[bytes]) -> None:
    async for message in consumer:
        got.append(message.body)


@pytest.mark.parametrize("handled", [4, 8])
async def test_our_broadcast_member_that_ended_with_a_backlog_gets_all_that_came_instead(
    pair: Pair, handled: int, tmp_path: Path
) -> None:
    """It handled so many of the ten that it had pulled, of which the slave has five. The message before its offset tells nothing,
    the last one that it pulled does."""
    first, native = await torn(pair)
    client = Client(pair.nameserver.address, instance="a", settings=ClientSettings(offsets_directory=tmp_path))
    async with client:
        async with client.consumer("b", "N", start="first", mode="broadcast") as consumer:
            assert len(await consumer.receive(handled)) == handled
            await consumer.commit()
        await first.close()
        await native.close()
        admin = await fall_over(pair)
        got: list[bytes] = []
        async with client.consumer("b", "N", start="first", mode="broadcast") as consumer:
            reading = asyncio.create_task(read(consumer, got))
            await until(lambda: b"new 10" in got)
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
        assert got == [*([b"4"] if handled == 4 else []), *(b"new %d" % number for number in range(5, 11))]
        await admin.close()


async def test_our_reader_of_a_light_queue_gets_all_that_came_instead(pair: Pair) -> None:
    """Also one that has committed nothing: it read on behind those that had the offsets of lost ones."""
    master = await pair.start(0, "ASYNC_MASTER", **LIGHT)
    await pair.start(1, "SLAVE", **LIGHT)
    await pair.level()
    peer = await Peer.connect(master.address)
    await peer.ask(UpdateTopic("T", read_queue_nums=1, write_queue_nums=1))
    got: list[bytes] = []
    clock = TestClock(running=False)  # it looks again for its broker when the new messages are there
    client = Client(pair.nameserver.address, clock=clock)
    async with client, client.light_consumer("g", "room", "T", start="first") as reader:
        reading = asyncio.create_task(read_light(reader, got))
        for number in range(5):
            await peer.ask(light("%LMQ%room", b"%d" % number))
        await until(lambda: len(got) == 5)
        await pair.level()
        await pair.stop(1)
        for number in range(5, 10):
            await peer.ask(light("%LMQ%room", b"lost %d" % number))
        await until(lambda: len(got) == 10)
        await peer.close()
        await pair.stop(0)
        slave = await pair.start(1, "SLAVE", **LIGHT)
        peer = await Peer.connect(slave.address)
        await peer.ask(Promote())
        await pair.leads(1)
        await peer.send(*(light("%LMQ%room", b"new %d" % number) for number in range(5, 12)))
        await clock.advance_until(lambda: b"new 11" in got)
        assert got[10:] == [b"new %d" % number for number in range(5, 12)]
        await peer.close()
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)


async def read_light(reader: LightConsumer, got: list[bytes]) -> None:
    while True:
        got += [message.body for message in await reader.receive()]

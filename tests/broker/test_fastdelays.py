"""The fast ways of messages with a delay level against their slow twins: where they decide, they decide the same."""

import random
from collections.abc import Iterable
from typing import Any

import pytest

from rmq.broker.pending import fastdelays
from rmq.broker.pending.delays import TimerInterceptor, source_of, take_level
from rmq.broker.pending.intake import Intake, as_sent
from rmq.broker.pending.internalproducer import handed_on
from rmq.delivery.due import TIMER, DueTable, Source, timer_slot
from rmq.delivery.proof import DUE, Proof
from rmq.errors import Refusal
from rmq.log.records import fastpath, record
from rmq.log.records.checking import check
from rmq.log.records.delays import LEVELS_MS
from rmq.model import DELAY_TOPIC, TIMER_TOPIC
from rmq.net.codec.frames import decode_frame
from rmq.net.commands import DraftedSend, Send
from rmq.net.commands.messages import Delayed, Pending, Scheduled
from rmq.net.remoting.codec import RemotingSettings
from rmq.testing import LocalBroker, TestClock
from tests.broker.javaclient import JavaClient
from tests.broker.support import Peer, everything
from tests.broker.test_delays import arrived, delayed
from tests.broker.test_fasthalves import HOST, PEER, TOPICS, has_id, perhaps_damaged, stamped
from tests.net import java_peer

SAID = (
    b"DELAY\x013\x02", b"UNIQ_KEY\x010A\x02", b"TAGS\x01a\x02", b"KEYS\x01k 1\x02",
    b"DELAY\x0118\x02", b"DELAY\x0119\x02", b"DELAY\x010\x02", b"DELAY\x01 2\x02", b"DELAY\x01x\x02", b"DELAY\x01\x02",
    b"DELAY\x0107\x02", b"DELAYS\x011\x02", b"xDELAY\x011\x02", b"RMQ_DELAY_MS\x0150\x02", b"TIMER_DELAY_SEC\x011\x02",
    b"TIMER_DELIVER_MS\x011\x02", b"TRAN_MSG\x01true\x02", b"PGROUP\x01p\x02", b"__transactionId__\x01x\x02",
    b"REAL_TOPIC\x01x\x02", b"RMQ_SRC\x01due 1 0\x02", b"INNER_MULTI_DISPATCH\x01a\x02", b"TAGS\x01\xc3\xa4\x02", b"TAGS\x01\x02",
    b"UNIQ_KEY\x010B\x02", b"UNIQ_KEY\x01\x02", b"x\x01\x02", b"\x01\x02", b"a", b"k\x01" + b"v" * 31_720 + b"\x02",
)  # fmt: skip
TIMES = [b"TIMER_DELAY_SEC\x01%d\x02", b"TIMER_DELAY_MS\x01%d\x02", b"TIMER_DELIVER_MS\x01%d\x02"]
LIKELY = 4  # the first so many are in most messages


def properties(chance: random.Random, asked: bytes) -> bytes:
    said = [one for one in (asked, *SAID[1:LIKELY]) if chance.random() < 0.95]
    said += chance.sample(SAID[LIKELY:], chance.choice((0, 0, 1, 2)))
    if chance.random() < 0.5:
        chance.shuffle(said)
    return b"".join(said)


def a_time(chance: random.Random, now: int) -> bytes:
    """One that is asked for, or two, or one and who is to be cancelled."""
    asked = chance.choice(TIMES) % (chance.choice((0, 1, 5, 999, 1000, 1001)) + chance.choice((0, 0, now)))
    return asked + chance.choice((b"", b"", b"TIMER_DEL_UNIQKEY\x01x\x02", chance.choice(TIMES) % 3))


def sent_delayed(chance: random.Random, topic: str, asked: bytes = SAID[0]) -> bytes:
    made = record.draft(
        topic,
        chance.randbytes(chance.randrange(30)),
        properties(chance, asked),
        flag=chance.randrange(9),
        sys_flag=chance.choice((0, 0, 0, 0, 0, 4, 1)),
        born_timestamp=chance.randrange(2**40),
        born_host=HOST if chance.random() < 0.9 else bytes(20),
        reconsume_times=chance.choice((0, 0, 0, 0, 1)),
    )
    return perhaps_damaged(chance, made)


def alike(one: bytes, other: bytes) -> record.Record:
    """The first one. Both mean the same; empty properties, and those that were named twice, may be in one only."""
    mine, twin = record.decode(one), record.decode(other)
    said, meant = (record.bytes_to_properties(each.properties) for each in (mine, twin))
    assert said.pop("__CRC32#")
    assert meant.pop("__CRC32#")
    assert said == meant
    assert mine[1:-1] == twin[1:-1]
    return mine


def test_the_fast_ways_are_the_slow_ones() -> None:
    """C13: what waits, what each node notes of it, and what goes on when it is due."""
    chance, taken, gone_on = random.Random(1), 0, 0
    intake = Intake((take_level,))
    for _ in range(6000):
        topic, queue_id = chance.choice(TOPICS), chance.randrange(5)
        sent = sent_delayed(chance, topic)
        if (waiting := fastdelays.leveled(sent, topic, queue_id)) is None:
            continue
        taken += 1
        assert check(sent, topic).pending
        slowly = intake.take_sent(sent, 1, queue_id)
        assert slowly is not None
        assert (slowly.topic, slowly.queue_id) == (DELAY_TOPIC, waiting.level - 1)
        lies = stamped(waiting.draft, 7, 5000)
        found = alike(lies, stamped(slowly.draft, 7, 5000))
        source, cancels = source_of(found)
        assert (source.offset, source.level, cancels) == (5000, waiting.level, "")
        assert record.entry_code(found) == found.store_timestamp + LEVELS_MS[waiting.level - 1]
        if (message := fastdelays.handed_on(lies, source, 0)) is not None:
            gone_on += 1
            twin = stamped(handed_on(found, topic, Proof(DUE, 5000, source.due_ms)), 3, 9000)
            assert (message.topic, message.queue_id) == (topic, queue_id)
            assert stamped(message.draft, 3, 9000) == twin
            assert message.code == record.entry_code(record.decode(twin))
    assert taken > 1000
    assert gone_on == taken


def test_the_fast_ways_of_timers_are_the_slow_ones() -> None:
    """C13: the same of messages with a time of their own."""
    chance, taken = random.Random(4), 0
    clock = TestClock(running=False)
    now = clock.wall_ms()
    timers = TimerInterceptor(clock, "b", 1000)
    intake = Intake((timers.take, take_level))
    for _ in range(6000):
        topic, queue_id = chance.choice(TOPICS), chance.randrange(5)
        sent = sent_delayed(chance, topic, a_time(chance, now))
        if (found := timers.usual(Send("p", topic, queue_id, sent), None)) is None:
            continue
        taken += 1
        waiting, handle = found
        slowly = intake.take_sent(sent, 1, queue_id)
        assert slowly is not None
        assert (slowly.topic, slowly.queue_id, slowly.recall_handle) == (TIMER_TOPIC, 0, handle)
        lies = stamped(waiting.draft, 7, 5000)
        lying = alike(lies, stamped(slowly.draft, 7, 5000))
        source, cancels = source_of(lying)
        assert (source, cancels) == (Source(timer_slot(waiting.out_ms), 5000, TIMER), "")
        assert waiting.code == record.entry_code(lying)
        message = fastdelays.handed_on(lies, source, now)
        assert message is not None
        more_said = {"TIMER_ENQUEUE_MS": f"{lying.store_timestamp // 1000 * 1000}", "TIMER_DEQUEUE_MS": f"{now}"}
        twin = handed_on(lying, topic, Proof(DUE, 5000, source.due_ms), properties=more_said.items())
        assert stamped(message.draft, 3, 9000) == stamped(twin, 3, 9000)
        assert (*message[:2], message.code) == (topic, queue_id, record.entry_code(record.decode(stamped(twin, 3, 9000))))
    assert taken > 500


class Twice:
    """Reads sends of RocketMQ's clients twice: by a codec that has seen such, and by one that parses each."""

    def __init__(self, chance: random.Random, binary: bool) -> None:
        self._chance = chance
        self._binary = binary
        self._known = RemotingSettings(fastpath).codec(PEER)

    def drafted(self, number: int, said: bytes, kind: type[Pending]) -> tuple[Any, Send] | None:
        """One of that kind that was drafted as it waits, and its twin. Any other is alike."""
        chance = self._chance
        flags = {"f": chance.choice("00000000004"), "j": chance.choice("00000000001")}
        fields = {"a": "p", "b": chance.choice(TOPICS), "e": str(chance.choice((0, 1, -1))), "i": said.decode(), **flags}
        frame = java_peer.send_frame(1000 + number, b"%d" % number, self._binary, **fields)[4:]
        request, slowly = decode_frame(self._known, frame)[0], decode_frame(RemotingSettings(fastpath).codec(PEER), frame)[0]
        if not isinstance(request, DraftedSend) or not isinstance(request.tags_code, Pending):
            assert isinstance(request, Refusal) or request.records == slowly.records or not has_id(said)
            return None
        assert request[:3] + request[4:10] == slowly[:3] + slowly[4:]
        alike(as_sent(request), slowly.records)
        assert check(slowly.records, request.topic).pending
        return (request, slowly) if isinstance(request.tags_code, kind) else None


@pytest.mark.parametrize("binary", [False, True])
def test_delays_of_rocketmq_are_drafted_as_they_wait(binary: bool) -> None:
    """C13: a message that looks like an earlier one of its client waits as it would if its header were parsed, and what was sent
    can be told from it."""
    chance, drafted = random.Random(2), 0
    intake, twice = Intake((take_level,)), Twice(chance, binary)
    for number in range(3000):
        if (found := twice.drafted(number, properties(chance, SAID[0]), Delayed)) is None:
            continue
        drafted += 1
        request, slowly = found
        placed = intake.take_sent(slowly.records, 1, request.queue_id)
        assert placed is not None
        assert placed.queue_id == request.tags_code.level - 1
        lies = stamped(request.records, 7, 5000)
        alike(lies, stamped(placed.draft, 7, 5000))
        message = fastdelays.handed_on(lies, Source(6000, 5000, request.tags_code.level), 0)
        assert message is not None
        assert message[:2] == (request.topic, request.queue_id)
    assert drafted > 300


@pytest.mark.parametrize("binary", [False, True])
def test_times_of_rocketmq_are_drafted_as_they_wait(binary: bool) -> None:
    """C13: the same of messages with a time of their own. The codec knows no clock: who takes them puts the time in."""
    chance, taken, left = random.Random(6), 0, 0
    clock = TestClock(running=False)
    timers, twice = TimerInterceptor(clock, "b", 1000), Twice(chance, binary)
    intake = Intake((timers.take, take_level))
    for number in range(4000):
        if (both := twice.drafted(number, properties(chance, a_time(chance, clock.wall_ms())), Scheduled)) is None:
            continue
        request, slowly = both
        found = timers.usual(request, request.tags_code)
        try:
            placed = intake.take_sent(slowly.records, 1, request.queue_id)
        except Refusal:  # too far ahead
            placed = None
        assert (found is None) == (placed is None)
        if found is None or placed is None:
            left += 1
            continue
        taken += 1
        waiting, handle = found
        assert (placed.topic, placed.queue_id, placed.recall_handle) == (TIMER_TOPIC, 0, handle)
        lying = alike(stamped(waiting.draft, 7, 5000), stamped(placed.draft, 7, 5000))
        assert waiting.code == record.entry_code(lying)
        assert source_of(lying) == (Source(timer_slot(waiting.out_ms), 5000, TIMER), "")
    assert min(taken, left) > 300


def test_many_are_noted_as_one_by_one() -> None:
    """D10: also in a slot that others are in, and again, as a start does; and so are those that are done."""
    chance = random.Random(3)

    def noted(groups: Iterable[tuple[int, list[int], list[int]]], together: bool) -> tuple[object, ...]:
        table, taken = DueTable(64, LEVELS_MS), list[Source]()
        for due, offsets, over in groups:
            if together:
                table.note_all(due, 3, offsets)
                table.done_all(due, over)
            else:
                for offset in offsets:
                    table.note(Source(due, offset, 3))
                for offset in over:
                    table.done(due, offset)
            taken += table.due(10_000, 2)
        found = dict(table.committed().items())
        return found, table.pending, table.alive_from(), table.lowest(), taken, table.due(10_000, 1000)

    def group() -> tuple[int, list[int], list[int]]:
        offsets, over = (chance.sample(range(20), chance.randrange(1, 6)) for _ in range(2))
        return chance.choice((100, 200)), sorted(offsets), over

    for _ in range(300):
        groups = [group() for _ in range(9)]
        assert noted(groups, True) == noted(groups, False)


@pytest.mark.parametrize("asked", [{"DELAY": 1}, {"TIMER_DELAY_SEC": 1}])
async def test_a_message_that_is_not_usual_keeps_its_place(asked: dict[str, int]) -> None:
    """Those that come, or go on, in one turn share a unit: what is stored beside it stays before what comes later."""
    async with LocalBroker(clock=TestClock(running=False)) as broker:
        await broker.create_topic("T", 1)
        peer = await Peer.connect(broker.address)
        bodies = [b"%d" % number for number in range(9)]
        tags = ["\u00e4" if number % 3 == 1 else "a" for number in range(9)]
        await peer.send(*(delayed(body, TAGS=tag, **asked) for body, tag in zip(bodies, tags, strict=True)))
        waiting = await everything(peer, DELAY_TOPIC if "DELAY" in asked else TIMER_TOPIC)
        assert [one.body for one in waiting] == bodies
        found = await arrived(peer, broker.clock, 9)
        assert [one.body for one in found] == bodies
        await peer.close()


async def test_they_wait_and_come_whoever_sent_them_and_however() -> None:
    """C13: of RocketMQ's clients and ours, usual ones and others; each once, in its queue, with its tag; and the queues of levels
    say when each is due, as they do when they are made anew."""
    async with LocalBroker(clock=TestClock(running=False)) as broker:
        await broker.create_topic("T", 2)
        peer = await Peer.connect(broker.address)
        async with JavaClient.connect(broker.address) as java:
            for number in range(6):
                said = {"DELAY": f"{number % 2 + 1}", "TAGS": "a", "UNIQ_KEY": f"{number}A"}
                await java.send(b"java-%d" % number, e=f"{number % 2}", i=record.properties_to_bytes(said).decode())
        for who, tag in ((b"ours", "b"), (b"odd", "\u00e4")):
            await peer.send(*(delayed(b"%s-%d" % (who, number), DELAY=number % 2 + 1, TAGS=tag) for number in range(6)))
        queues = broker.serving.store.queues
        for level in (1, 2):
            waiting = await everything(peer, DELAY_TOPIC, level - 1)
            entries = [queues.look(DELAY_TOPIC, level - 1).entry(at) for at in range(9)]
            assert [one.tags_code for one in entries] == [record.entry_code(one) for one in waiting]
            assert [one.offset for one in entries] == [one.physical_offset for one in waiting]
        await broker.clock.advance_until(lambda: not broker.serving.tables.due.pending)
        found = [one for queue_id in (0, 1) for one in await everything(peer, "T", queue_id)]
        assert sorted(one.body for one in found) == sorted(
            b"%s-%d" % (who, n) for who in (b"java", b"ours", b"odd") for n in range(6)
        )
        for queue_id in (0, 1):
            codes = [queues.look("T", queue_id).entry(at).tags_code for at in range(len(await everything(peer, "T", queue_id)))]
            assert codes == [record.entry_code(one) for one in await everything(peer, "T", queue_id)]
        await peer.close()

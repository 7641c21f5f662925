"""POP: handed out to one, for a time; gone once acknowledged, back otherwise; waiting; ordered; after a restart the same."""

import asyncio

import pytest

from rmq.broker.pending.receipts import ReceiptNotes
from rmq.delivery.offsets import OffsetTable
from rmq.delivery.receipts import ReceiptTable
from rmq.log.files.damage import DamagedRange
from rmq.log.records import record
from rmq.log.records.properties import MAX_PROPERTIES_BYTES
from rmq.model import REVIVE_PREFIX
from rmq.net.commands import (
    DeleteGroup,
    DeleteTopic,
    GetAllGroupConfig,
    GetConsumeStats,
    GetMaxOffset,
    GetRuntimeInfo,
    Send,
    UpdateConsumerOffset,
    UpdateTopic,
)
from rmq.net.commands.pop import (
    Ack,
    AckedRange,
    BatchAck,
    ChangeInvisibleTime,
    Notification,
    Peek,
    PollingInfo,
)
from rmq.testing import LocalBroker, until
from tests.broker.conftest import Connect
from tests.broker.popping import MINUTE_MS, ack, batch_ack, bodies, change, pop, popped, take
from tests.broker.support import BORN, Peer, send

BACK = "%RETRY%g_T"


async def wait_for_back(broker: LocalBroker, peer: Peer, count: int = 1, **fields: object) -> list[bytes]:
    """What comes back once its time is over; the clock moves on meanwhile."""
    found: list[bytes] = []

    async def look() -> None:
        while len(found) < count:
            found.extend(bodies(await take(peer.ask, poll_ms=2000, **fields)))

    looking = asyncio.create_task(look())
    await broker.clock.advance_until(looking.done)
    await looking
    return found


async def test_handed_out_to_one_and_gone_once_acknowledged(broker: LocalBroker, peer: Peer) -> None:
    """C10: each message to one of the group at a time, in all queues; acknowledged it never comes back."""
    sent = [b"%d" % number for number in range(20)]
    await peer.send(*(send("T", body, queue_id=number % 4) for number, body in enumerate(sent)))
    first = await take(peer.ask, count=12)
    second = await take(peer.ask)
    assert sorted(bodies(first) + bodies(second)) == sorted(sent)
    assert await take(peer.ask) == []
    assert len(await take(peer.ask, group="h")) == 20, "another group has its own"
    await ack(peer.ask, *first, *second)
    await ack(peer.ask, *first)  # once more
    await broker.clock.advance(90)
    assert await take(peer.ask) == []


async def test_a_group_that_only_pops_is_there_for_operators(broker: LocalBroker, peer: Peer) -> None:
    """It sends no heartbeat; its group is made on first use all the same, and its progress can be asked for."""
    await peer.send(send("T"), send("T"))
    await ack(peer.ask, (await take(peer.ask, count=1))[0])
    assert "g" in [each.name for each in (await peer.ask(GetAllGroupConfig())).groups]
    progress = {each.queue.queue_id: each for each in (await peer.ask(GetConsumeStats("g"))).queues}
    assert sum(each.consumer_offset for each in progress.values()) >= 1


async def test_what_is_not_acknowledged_comes_back(broker: LocalBroker, peer: Peer) -> None:
    await peer.send(*(send("T", b"%d" % number, tags="A") for number in range(3)))
    one, two, three = await take(peer.ask, hidden_ms=5000)
    await ack(peer.ask, two)
    assert sorted(await wait_for_back(broker, peer, 2)) == [b"0", b"2"]
    await broker.clock.advance(MINUTE_MS / 1000 + 5)
    again = await take(peer.ask, poll_ms=5000)
    assert [message.tries for message in again] == [2, 2]
    assert {message.topic for message in again} == {BACK}
    await ack(peer.ask, *again, one, three)  # the old receipts are of no use any more
    await broker.clock.advance(90)
    assert await take(peer.ask) == []


async def test_a_wall_clock_set_back_holds_no_popped_message(broker: LocalBroker, peer: Peer) -> None:
    """C10, T3: its time counts from then on; whoever renews it has that time, by the new clock."""
    await peer.send(send("T", b"left"), send("T", b"renewed"))
    left, renewed = await take(peer.ask, hidden_ms=30_000)
    broker.clock.jump_wall(-365 * 86_400_000)
    await broker.clock.advance(2)
    renewed = await change(peer.ask, renewed, 90_000)
    await broker.clock.advance(20)
    assert await take(peer.ask) == []
    again = await wait_for_back(broker, peer, hidden_ms=30_000)
    assert again == [b"left"]
    await ack(peer.ask, left)  # of no use any more
    await broker.clock.advance(20)
    await ack(peer.ask, renewed)
    assert sorted(await wait_for_back(broker, peer)) == [b"left"]
    await broker.clock.advance(100)
    assert bodies(await take(peer.ask)) == [b"left"]


async def test_a_wall_clock_set_back_keeps_no_ordered_queue_closed(broker: LocalBroker, peer: Peer) -> None:
    """C9, T3: its time counts from then on."""
    await peer.send(send("T", b"1"), send("T", b"2"))
    assert bodies(await take(peer.ask, order=True, count=1, hidden_ms=30_000)) == [b"1"]
    broker.clock.jump_wall(-365 * 86_400_000)
    for _ in range(5):
        assert await take(peer.ask, order=True) == []
        await broker.clock.advance(5)
    assert await wait_for_back(broker, peer, 2, order=True) == [b"1", b"2"]


async def test_another_invisible_time_is_another_receipt(broker: LocalBroker, peer: Peer) -> None:
    await peer.send(send("T", b"a"), send("T", b"b"))
    a, b = await take(peer.ask, hidden_ms=5000)
    longer, shorter = await change(peer.ask, a, 90_000), await change(peer.ask, b, 1)
    assert await wait_for_back(broker, peer) == [b"b"]
    await broker.clock.advance(30)
    assert await peer.ask_code(ChangeInvisibleTime("g", "T", 0, a.handle, 0, 1000)) == 208, "that receipt has ended"
    assert await peer.ask_code(ChangeInvisibleTime("g", "T", 0, shorter.handle, 1, 1000)) == 208
    await ack(peer.ask, longer)
    await broker.clock.advance(100)
    assert bodies(await take(peer.ask)) == [b"b"]


async def test_a_batch_is_acknowledged_at_once(broker: LocalBroker, peer: Peer) -> None:
    await peer.send(*(send("T", b"%d" % number, tags="A" if number % 3 == 0 else "B") for number in range(30)))
    request = pop(exp="A", hidden_ms=5000)
    answer = await peer.ask(request)
    found = popped(answer, request)
    assert [one.queue_offset for one in found] == list(range(0, 30, 3))
    bits = sum(1 << one.queue_offset for one in found if one.queue_offset != 9).to_bytes(4, "little")
    acked = AckedRange("g", "T", "0", 0, 0, answer.revive_qid, answer.pop_time, 5000, bits)
    nowhere = [acked._replace(topic="None"), acked._replace(queue_id=7), acked._replace(start_offset=1 << 40)]
    await peer.ask(BatchAck("broker", [*nowhere, acked._replace(bits=bits + b"\xff")]))  # RocketMQ passes over what is not there
    assert await wait_for_back(broker, peer, exp="A") == [b"9"]
    assert await peer.refusal(BatchAck("broker", [])) == 208


async def test_only_the_wanted_tags(broker: LocalBroker, peer: Peer) -> None:
    """C14. What nobody wants is passed over, also after a restart."""
    await peer.send(*(send("T", b"x", tags="B", count=100) for _ in range(50)), send("T", b"last", tags="A"))
    assert bodies(await take(peer.ask, exp="A || C", poll_ms=100)) == [b"last"]
    await peer.send(send("T", b"y", tags="B"))
    assert await take(peer.ask, exp="A") == [] == await take(peer.ask, exp="A")
    await peer.send(send("T", b"new", tags="A"))
    assert bodies(await take(peer.ask, exp="A")) == [b"new"]


async def test_a_pop_waits_for_a_message(broker: LocalBroker, peer: Peer, connect: Connect) -> None:
    waiting = [asyncio.create_task(take(peer.ask, poll_ms=60_000, count=1)) for _ in range(3)]
    other = asyncio.create_task(take(peer.ask, poll_ms=60_000, group="h", exp="A"))
    await until_polling(peer, 3)
    sender = await connect(broker)
    await sender.send(send("T", b"1"), send("T", b"2", queue_id=3))
    await until(lambda: sum(task.done() for task in waiting) == 2)
    assert sorted(bodies(task.result())[0] for task in waiting if task.done()) == [b"1", b"2"]
    assert await take(sender.ask) == []
    assert not other.done()
    await sender.send(send("T", b"3", tags="A"))
    assert bodies(await other) == [b"3"]
    await asyncio.gather(*waiting)


async def until_polling(peer: Peer, count: int) -> None:
    while (await peer.ask(PollingInfo("g", "T", -1))).polling_num < count:
        await asyncio.sleep(0)


async def test_the_time_of_a_waiting_pop_ends(broker: LocalBroker, peer: Peer) -> None:
    waiting = asyncio.create_task(peer.ask(pop(poll_ms=5000)))
    await until_polling(peer, 1)
    await broker.clock.advance(7)
    answer = await waiting
    assert (answer.status, answer.rest_num) == (210, 0)


async def test_a_group_that_is_deleted_while_a_pop_waits_stays_deleted(broker: LocalBroker, peer: Peer, connect: Connect) -> None:
    """Whoever popped may be done: its pop made the group anew as soon as the deletion woke it. The next pop does."""
    waiting = asyncio.create_task(peer.ask(pop(poll_ms=60_000)))
    await until_polling(peer, 1)
    tool = await connect(broker)
    await tool.ask(DeleteGroup("g", True))
    assert (await waiting).status == 210
    assert "g" not in [each.name for each in (await tool.ask(GetAllGroupConfig())).groups]
    assert await take(peer.ask) == []
    assert "g" in [each.name for each in (await tool.ask(GetAllGroupConfig())).groups]


async def test_looking_takes_nothing(broker: LocalBroker, peer: Peer) -> None:
    assert (await peer.ask(Peek("g", "T", -1, 8))).status == 19
    assert not (await peer.ask(Notification("g", "T", -1, 0, 0))).has_msg
    waiting = asyncio.create_task(peer.ask(Notification("g", "T", -1, 60_000, 0)))
    await until_polling(peer, 1)
    await peer.send(send("T", b"1"))
    assert (await waiting).has_msg
    assert len(popped(await peer.ask(Peek("g", "T", 0, 8)), pop())) == 1
    assert bodies(await take(peer.ask)) == [b"1"]


async def test_where_a_new_group_begins(broker: LocalBroker, peer: Peer) -> None:
    """[ConsumeInitMode] The last message on, unless the first one is young; the place is noted before anything is popped."""
    await peer.send(send("T", b"1"), send("T", b"2"))
    assert bodies(await take(peer.ask, group="last", init_mode=1)) == [b"1", b"2"]


async def test_a_place_that_was_set_counts(broker: LocalBroker, peer: Peer) -> None:
    """C6: before the next pop, durably."""
    await peer.send(*(send("T", b"%d" % number) for number in range(4)))
    await take(peer.ask, count=2)
    await peer.ask(UpdateConsumerOffset("g", "T", 0, 3))
    assert bodies(await take(peer.ask, count=1)) == [b"3"]
    await peer.ask(UpdateConsumerOffset("g", "T", 0, 1))  # back: once more
    assert bodies(await take(peer.ask, count=1)) == [b"1"]
    await peer.ask(UpdateConsumerOffset("g", "T", 0, 4))
    assert await take(peer.ask) == []
    await peer.send(send("T", b"4"))
    assert bodies(await take(peer.ask)) == [b"4"]


async def test_many_acknowledgements_are_one_record(broker: LocalBroker, peer: Peer) -> None:
    """Those of one receipt that come in one turn of the loop; each is answered when it is written."""
    await peer.send(*(send("T", b"%d" % number) for number in range(20)))
    taken = await take(peer.ask)
    before = await revive_records(peer)
    await ack(peer.ask, *taken)
    assert await revive_records(peer) - before <= 3
    await broker.clock.advance(70)
    assert await take(peer.ask) == []


async def test_single_acknowledgements_and_a_batch_of_one_receipt_share_a_record(broker: LocalBroker, peer: Peer) -> None:
    await peer.send(*(send("T", b"%d" % number) for number in range(6)))
    request = pop(hidden_ms=5000)
    answer = await peer.ask(request)
    found = popped(answer, request)
    before = await revive_records(peer)
    await asyncio.gather(ack(peer.ask, *found[:3]), peer.ask(batch_ack(answer, found[2:])), ack(peer.ask, *found[:1]))
    assert await revive_records(peer) - before <= 2
    await broker.clock.advance(70)
    assert await take(peer.ask) == []


async def test_who_writes_receipts_and_acknowledgements_notes_what_their_records_say(broker: LocalBroker, peer: Peer) -> None:
    """R5, D10: other nodes, and a start, read the records; the leader does not. One alone, several in one, those of two pops."""
    await peer.send(*(send("T", b"%d" % number) for number in range(12)))
    one, two, three, *others = await take(peer.ask, count=9)
    more = await take(peer.ask)
    await ack(peer.ask, one)
    await asyncio.gather(ack(peer.ask, two, three), ack(peer.ask, more[0]))
    tables, reader = broker.serving.tables, broker.serving.reader
    noted, entries = dict(tables.receipts.committed()), 0
    replayed = ReceiptTable()
    offsets = OffsetTable()
    notes = ReceiptNotes(replayed, offsets, tables.topics, tables.groups)
    for queue in reader.queues.all():
        if queue.topic.startswith(REVIVE_PREFIX):
            for queue_offset in range(queue.max):
                entry = queue.entry(queue_offset)
                stored = record.decode(reader.log.read(entry.offset, entry.size))
                assert entry.tags_code == record.entry_code(stored)
                notes.note(stored)
                entries += 1
    assert entries == 2 + 3
    assert noted == dict(replayed.committed())
    assert dict(offsets.committed()) == dict(tables.offsets.committed())
    assert sum(len(row.left()) for row in noted.values()) == len(others) + len(more) - 1


async def test_a_refused_acknowledgement_can_be_repeated(broker: LocalBroker, peer: Peer) -> None:
    """Its end was staged: else the repeated one would be answered as done, and the message come back all the same."""
    await peer.send(*(send("T", b"%d" % number) for number in range(3)))
    request = pop(hidden_ms=5000)
    answer = await peer.ask(request)
    found = popped(answer, request)
    assert broker.serving is not None
    broker.serving.appender.refuse("the disk is full", "the disk is full", "")
    for one in found:
        assert await peer.refusal(Ack("g", one.topic, one.queue_id, one.handle, one.queue_offset)) == 14
    assert await peer.refusal(batch_ack(answer, found)) == 14
    broker.serving.appender.refuse("", "", "")
    await ack(peer.ask, *found[:2])
    assert await wait_for_back(broker, peer) == [found[2].body]


async def test_what_is_popped_is_counted(broker: LocalBroker, peer: Peer) -> None:
    """In the rates that RocketMQ's tools show."""
    await peer.send(*(send("T", b"%d" % number, queue_id=number % 2) for number in range(7)))
    assert len(await take(peer.ask)) == 7
    await broker.clock.advance(30)
    assert (await peer.ask(GetRuntimeInfo())).table["msgGetTotalTodayNow"] == "7"


async def revive_records(peer: Peer) -> int:
    asked = [GetMaxOffset("rmq_sys_REVIVE_LOG_DefaultCluster", queue_id) for queue_id in range(8)]
    return sum([(await peer.ask(one)).offset for one in asked])


TOO_LONG = pop(order=True, attempt_id="x" * 256)  # each queue kept one of two megabytes in memory
REFUSED = {
    29: [pop(count=0), pop(count=33), pop(queue_id=4), pop(queue_id=-2), pop(hidden_ms=0), pop(group="bad group"), TOO_LONG],
    17: [pop("nowhere"), Ack("g", "nowhere", 0, "0 1 1 0 0 b 0 0", 0)],
    23: [pop(exp_type="XPATH"), pop(exp="||")],
    208: [Ack("g", "T", 0, "0 1 1 0 0 b 0 0", 0), ChangeInvisibleTime("g", "T", 0, "0 1 1 0 0 b 0 0", 0, 1)],
    13: [Ack("g", "T", 4, "0 1 1 0 0 b 0 0", 0)],
}


@pytest.mark.parametrize(("code", "request_"), [(code, each) for code, all_ in REFUSED.items() for each in all_])
async def test_refused(broker: LocalBroker, peer: Peer, code: int, request_: object) -> None:
    assert await peer.refusal(request_) == code


async def test_bad_receipts(broker: LocalBroker, peer: Peer) -> None:
    await peer.send(send("T", b"1"))
    assert await peer.refusal(Ack("g", "T", 0, "what", 0)) == 1
    await peer.ask(Ack("g", "T", 0, "0 1 1 0 0 b 0 0", 0))  # of no receipt: nothing can be done about it


async def test_in_order_an_attempt_that_is_repeated_gets_the_same_of_many_queues(peer: Peer) -> None:
    """It was given what is new in any other queue, and its own stood still."""
    await peer.ask(UpdateTopic("many", read_queue_nums=8, write_queue_nums=8))
    await peer.send(*(send("many", b"%d" % number, queue_id=number) for number in range(8)))
    for number in range(8):
        [one] = await take(peer.ask, topic="many", order=True, count=1, attempt_id=f"{number}")
        [again] = await take(peer.ask, topic="many", order=True, count=1, attempt_id=f"{number}")
        assert again.body == one.body
        await ack(peer.ask, again)


async def test_in_order_a_queue_waits_for_its_acknowledgements(broker: LocalBroker, peer: Peer) -> None:
    """As C9: nobody gets later messages of a queue before the earlier ones are done."""
    await peer.send(*(send("T", b"%d" % number) for number in range(4)))
    one, two = await take(peer.ask, order=True, count=2)
    assert await take(peer.ask, order=True) == []
    await ack(peer.ask, two)
    assert await take(peer.ask, order=True) == []
    await ack(peer.ask, one)
    await ack(peer.ask, one)
    three = await take(peer.ask, order=True, count=1, attempt_id="me", hidden_ms=20_000)
    assert bodies(three) == [b"2"]
    again = await take(peer.ask, order=True, count=1, attempt_id="me", hidden_ms=20_000)
    assert bodies(again) == [b"2"], "the same attempt asks again"
    waiting = asyncio.create_task(peer.ask(pop(order=True, poll_ms=60_000)))
    await broker.clock.advance_until(waiting.done, step_s=2.0)
    answer = await waiting
    assert bodies(popped(answer, pop())) == [b"2", b"3"], "its time is over: from the first that is not acknowledged"
    assert answer.order_count_info == "0 qo0%2 1;0 0 0"
    assert answer.revive_qid == 999
    four = popped(answer, pop())
    sooner = [await change(peer.ask, one, 1000) for one in four]
    await broker.clock.advance(2)
    assert bodies(await take(peer.ask, order=True)) == [b"2", b"3"]
    await ack(peer.ask, *sooner)  # too late: another has them
    assert await take(peer.ask, order=True) == []


async def test_in_order_what_is_not_wanted_or_gone_holds_up_nobody(peer: Peer) -> None:
    """C14: an acknowledgement moves the group over messages that its filter leaves out."""
    await peer.send(*(send("T", b"%d" % number, tags="b" if number in (0, 3, 4) else "a") for number in range(6)))
    for expected in ([b"0"], [b"3"], [b"4"], []):
        taken = await take(peer.ask, order=True, count=1, exp="b")
        assert bodies(taken) == expected
        await ack(peer.ask, *taken)


async def test_a_restart_keeps_receipts_and_places(broker: LocalBroker, peer: Peer, connect: Connect) -> None:
    """D10: from the snapshot, or from the log alone."""
    await peer.send(*(send("T", b"%d" % number) for number in range(6)))
    one, _ = await take(peer.ask, count=2, hidden_ms=30_000)
    (ordered,) = await take(peer.ask, count=1, order=True, group="o")
    await ack(peer.ask, one)
    for expected in (b"2", b"3"):
        await broker.stop_broker()
        if expected == b"3":
            for snapshot in (broker.store_dir / "rmq").glob("snapshot-*"):
                snapshot.unlink()
        await broker.start_broker()
        peer = await connect(broker)
        assert await take(peer.ask, order=True, group="o") == []
        assert bodies(await take(peer.ask, count=1, hidden_ms=30_000)) == [expected]
    progress = await peer.ask(GetConsumeStats("g", "T"))
    assert [each.consumer_offset for each in progress.queues if each.queue.queue_id == 0] == [4]
    await ack(peer.ask, ordered, group="o")
    assert bodies(await take(peer.ask, count=1, order=True, group="o")) == [b"1"]
    assert sorted(await wait_for_back(broker, peer, 5)) == [b"1", b"2", b"3", b"4", b"5"]


async def until_back(broker: LocalBroker, peer: Peer) -> None:
    """Something has come back."""
    while not (await peer.ask(GetMaxOffset(BACK, 0))).offset:
        await broker.clock.advance(1)


async def test_a_deleted_topic_takes_its_receipts_along(broker: LocalBroker, peer: Peer) -> None:
    await peer.send(*(send("T", b"old") for _ in range(3)))
    await take(peer.ask, count=1, hidden_ms=1)
    await until_back(broker, peer)
    (one,) = await take(peer.ask, count=1, queue_id=0, hidden_ms=1000)
    await peer.ask(DeleteTopic("T"))
    await broker.create_topic("T", 4)
    await broker.clock.advance(10)
    await peer.send(send("T", b"new"))
    assert bodies(await take(peer.ask)) == [b"new"]
    assert await peer.ask_code(Ack("g", "T", 0, one.handle, 0)) == 0


async def test_a_queue_that_cannot_be_read_keeps_no_other_one(broker: LocalBroker, peer: Peer) -> None:
    """D8: its messages are refused with the reason, those of other queues are handed out."""
    _, second = await peer.send(send("T", b"before"), send("T", b"damaged"))
    await peer.send(send("T", b"whole", queue_id=1))
    damages = broker.serving.store.log.damages
    damages.add(DamagedRange(second.physical_offset, second.physical_offset + 10, "a test says so"))
    assert sorted(bodies(await take(peer.ask))) == [b"before", b"whole"]
    assert await peer.refusal(pop()) == 1


async def test_a_message_with_no_room_for_a_word_more_comes_back_too(broker: LocalBroker, peer: Peer) -> None:
    """Its properties are as long as they may be: what comes back cannot say from where, so a record of its own does."""
    properties = record.properties_to_bytes({"big": "x" * (MAX_PROPERTIES_BYTES - 5)})
    draft = record.draft("T", b"full", properties, born_timestamp=1000, born_host=BORN)
    await peer.send(Send("p", "T", 0, draft))
    await take(peer.ask, hidden_ms=1)
    [back] = await wait_for_back(broker, peer, hidden_ms=60_000)
    assert back == b"full"
    assert (await peer.ask(GetMaxOffset(BACK, 0))).offset == 1

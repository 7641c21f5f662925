"""Transactional messages at a real broker: hidden, committed once or never, asked after, put aside where somebody finds them."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from rmq.broker.features.transactions import Transactions
from rmq.broker.pending.halves import first_of, half_of
from rmq.codes import ResponseCode as R
from rmq.delivery.transactions import PARKED_TOPIC, Half
from rmq.errors import Refusal
from rmq.log.commitlog import TAIL_BYTES
from rmq.log.records import record
from rmq.log.records.halves import ROOM_BYTES
from rmq.log.records.properties import MAX_PROPERTIES_BYTES
from rmq.model import HALF_TOPIC, OP_TOPIC
from rmq.net.commands import GetTopicConfig, QueryMessage
from rmq.net.commands.transactions import EndTransaction, ListHalves, OpenHalves, ResumeCheck
from rmq.testing import LocalBroker, TestClock, until
from tests import golden
from tests.broker.conftest import Connect
from tests.broker.support import Peer, beat, copy_of_running, send
from tests.broker.transactions import (
    COMMIT,
    ROLLBACK,
    UNKNOWN,
    checks,
    commit,
    end,
    half,
    halves,
    numbers,
    outcome,
    properties,
    stored,
)
from tests.net.support import BarePeer

EVERY_S = 30.0
NUMBERS = ("CHECK_IMMUNITY_TIME_IN_SECONDS", "TRANSACTION_CHECK_TIMES", "REAL_QID", "RMQ_SRC")
PATIENT = {"idle_timeout_ms": 86_400_000, "client_expiry_ms": 3_600_000}


@pytest.fixture
async def broker() -> AsyncIterator[LocalBroker]:
    """Whose clients may be silent for long."""
    async with LocalBroker(**PATIENT) as broker:
        await broker.create_topic("T", 4)
        yield broker


async def test_hidden_until_it_is_committed_then_there_once(broker: LocalBroker, peer: Peer) -> None:
    """C11: in the form that 5.5.0 gives it; and its op record tells RocketMQ's tools."""
    [sent] = await peer.send(half(b"one", queue_id=2, CHECK_IMMUNITY_TIME_IN_SECONDS="60"))
    assert (sent.queue_id, sent.queue_offset) == (2, 0)
    assert [await stored(peer, "T", queue) for queue in range(4)] == [[], [], [], []]
    await peer.ask(end(sent))
    [found] = await stored(peer, "T", 2)
    assert (found.body, found.sys_flag, found.prepared_transaction_offset) == (b"one", record.SYS_COMMIT, sent.physical_offset)
    assert (found.born_timestamp, found.reconsume_times) == (1000, 0)
    assert properties(found).items() >= {"UNIQ_KEY": "id-one", "PGROUP": "p", "TRAN_MSG": "true", "TAGS": "x"}.items()
    assert not {"REAL_TOPIC", "REAL_QID"} & properties(found).keys()
    assert (await peer.ask(QueryMessage("T", "id-one", 32, 0, 2**60, unique_key_query=True))).messages
    await broker.clock.advance(3.5)
    await until_ops(peer, ["0"])
    [op] = await stored(peer, OP_TOPIC)
    assert (op.body, properties(op)["TAGS"], op.sys_flag) == (b"0,", "d", 0)


async def until_ops(peer: Peer, expected: list[str]) -> None:
    async with asyncio.timeout(20):
        while await numbers(peer) != expected:
            await asyncio.sleep(0)


async def test_stored_as_rocketmq_stores_it(broker: LocalBroker, peer: Peer, tmp_path: Path) -> None:
    """D5: the half of a golden set, sent here, lies here as there; and so does what a commit makes of it."""
    theirs = {one.topic: one for one in list(golden.all_records(golden.unpack("s07-tx", tmp_path)))[:3] if one.queue_offset == 0}
    told = theirs[HALF_TOPIC]
    added_there = ("REAL_TOPIC", "REAL_QID", "__transactionId__")
    said = {name: value for name, value in properties(told).items() if name not in added_there}
    draft = record.draft(
        "T",
        told.body,
        record.properties_to_bytes(said),
        born_timestamp=told.born_timestamp,
        born_host=told.born_host,
        flag=told.flag,
        sys_flag=told.sys_flag,
    )
    sent = await peer.ask(half()._replace(records=draft, queue_id=1))
    await peer.ask(EndTransaction(said["PGROUP"], 0, sent.physical_offset, COMMIT, said["UNIQ_KEY"]))
    for ours, their in (((await stored(peer, HALF_TOPIC))[0], told), ((await stored(peer, "T", 1))[0], theirs["s7-tx"])):
        added = {"RMQ_SRC", "__CRC32#"}
        expected = properties(their) | ({"REAL_TOPIC": "T"} if their is told else {})
        assert {name: value for name, value in properties(ours).items() if name not in added} == expected
        kept = ("queue_id", "queue_offset", "flag", "sys_flag", "born_timestamp", "born_host", "reconsume_times", "body")
        assert [getattr(ours, name) for name in kept] == [getattr(their, name) for name in kept]


async def test_rolled_back_it_never_comes(broker: LocalBroker, peer: Peer) -> None:
    """C11: the op record is the proof, so it is there when the answer is."""
    sent = await commit(peer, b"no", ROLLBACK)
    [op] = await stored(peer, OP_TOPIC)
    assert (op.body, properties(op)["RMQ_SRC"]) == (b"0,", f"half {sent.physical_offset} 0")
    await broker.clock.advance(10)
    assert await stored(peer, "T") == []
    assert await numbers(peer) == ["0"], "told once"


async def test_the_first_word_counts(broker: LocalBroker, peer: Peer) -> None:
    """C11: the same once more is answered alike, the opposite is refused; also while the first is on its way (story 36)."""
    sent = await peer.send(half(b"a"), half(b"b"))
    words = (COMMIT, ROLLBACK, COMMIT, ROLLBACK)
    for one, first in zip(sent, (COMMIT, ROLLBACK), strict=True):
        told = await asyncio.gather(*(outcome(peer, end(one, how)) for how in (first, *words)))
        assert told == [0, *(0 if how == first else R.ILLEGAL_OPERATION for how in words)]
    assert [one.body for one in await stored(peer, "T")] == [b"a"]


@pytest.mark.parametrize("topic", ["", "T", HALF_TOPIC, "one%T"])
async def test_the_topic_that_an_end_names_means_nothing(broker: LocalBroker, peer: Peer, topic: str) -> None:
    """Java's client with a namespace (setNamespace) leaves that out there: one%T is T."""
    await broker.create_topic("one%T", 1)
    kept, dropped = await peer.send(half(b"kept", "one%T"), half(b"dropped", "one%T"))
    await peer.ask(end(dropped, ROLLBACK, topic=topic))
    await peer.ask(end(kept, COMMIT, topic=topic))
    assert [one.body for one in await stored(peer, "one%T")] == [b"kept"]
    await broker.clock.advance(60)
    assert not checks(peer)


async def test_unknown_changes_nothing(broker: LocalBroker, peer: Peer) -> None:
    [sent] = await peer.send(half())
    await peer.ask(end(sent, UNKNOWN))
    assert await stored(peer, "T") == []
    await peer.ask(end(sent))
    assert len(await stored(peer, "T")) == 1


async def test_who_ends_it_must_know_it(broker: LocalBroker, peer: Peer) -> None:
    """As RocketMQ: 1 for a wrong group, number or place."""
    [sent] = await peer.send(half())
    [other] = await peer.send(send("T"))
    right = end(sent)
    for wrong in (
        right._replace(producer_group="q"),
        right._replace(tran_state_table_offset=1),
        right._replace(commit_log_offset=10**9),
        right._replace(commit_log_offset=sent.physical_offset + 1),
        right._replace(commit_log_offset=other.physical_offset),
        right._replace(commit_log_offset=-5),
    ):
        assert await peer.refusal(wrong) == R.SYSTEM_ERROR
    await peer.ask(right)


async def test_what_is_not_taken(broker: LocalBroker, peer: Peer, connect: Connect) -> None:
    without_group = half(PGROUP="")
    assert await peer.refusal(without_group) == R.MESSAGE_ILLEGAL
    assert await peer.refusal(half(PGROUP="p" * 256)) == R.MESSAGE_ILLEGAL
    batch = half()
    assert await peer.refusal(batch._replace(records=batch.records * 2, batch=True)) == R.MESSAGE_ILLEGAL
    async with LocalBroker(reject_transactions=True) as closed:
        await closed.create_topic("T", 1)
        assert await (await connect(closed)).refusal(half()) == R.NO_PERMISSION


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(st.sampled_from(NUMBERS), st.text(min_size=1, max_size=20) | st.just("9" * 5000) | st.integers().map(str)))
def test_no_number_of_a_client_stops_a_node(said: dict[str, str]) -> None:
    """S5: what is committed is noted by every node, at every start."""
    texts = {name: value.replace("\x01", "").replace("\x02", "") for name, value in said.items()}
    stored = record.decode(
        record.draft(HALF_TOPIC, b"x", record.properties_to_bytes(texts), born_timestamp=0, born_host=bytes(8))
    )
    found = half_of(stored)
    assert 0 <= found.immunity_ms <= 2**31 * 1000
    assert 0 <= found.checks < 10**18
    assert first_of(stored) >= 0


async def test_a_committed_message_may_wait_for_its_time(broker: LocalBroker, peer: Peer) -> None:
    """C11, C13: a delay counts from the commit, and what is committed is neither asked after nor committed again meanwhile."""
    await peer.ask(beat("c"))
    [sent] = await peer.send(half(b"later", DELAY="5"))
    assert [await outcome(peer, end(sent)) for _ in range(2)] == [0, 0]
    [waiting] = await stored(peer, "SCHEDULE_TOPIC_XXXX", 4)
    assert (waiting.sys_flag, properties(waiting)["RMQ_SRC"]) == (record.SYS_COMMIT, f"half {sent.physical_offset} 0")
    await broker.clock.advance(50)
    assert (await stored(peer, "T"), checks(peer)) == ([], [])
    async with asyncio.timeout(20):
        while not (found := await stored(peer, "T")):
            await broker.clock.advance(1)
    assert [one.body for one in found] == [b"later"]
    assert await outcome(peer, end(sent, ROLLBACK)) == R.ILLEGAL_OPERATION


async def test_a_half_that_leaves_room_to_wait_may_be_committed(peer: Peer) -> None:
    """C11: with what was added to it meanwhile it was refused for ever, though its half had been taken."""
    most, said = MAX_PROPERTIES_BYTES - ROOM_BYTES, {"DELAY": "5", "UNIQ_KEY": "u" * 32}
    taken = len(record.decode(half(b"b", long="", **said).records).properties)
    [sent] = await peer.send(half(b"b", long="x" * (most - taken), **said))
    assert await outcome(peer, end(sent)) == 0
    [waiting] = await stored(peer, "SCHEDULE_TOPIC_XXXX", 4)
    assert waiting.body == b"b"
    with pytest.raises(Refusal, match="a message that waits"):
        await peer.ask(half(b"b", long="x" * (most - taken + 1), **said))


@pytest.mark.parametrize("length", [400, 449, 600, 1000])
async def test_a_half_with_a_long_id_is_refused_or_may_be_committed(broker: LocalBroker, peer: Peer, length: int) -> None:
    """C11: its id is there twice while it waits. It was taken, and its commit refused for ever."""
    said = {"DELAY": "5", "UNIQ_KEY": "u" * length}
    taken, size = len(record.decode(half(b"b", long="", **said).records).properties), MAX_PROPERTIES_BYTES - ROOM_BYTES
    while True:
        try:
            [sent] = await peer.send(half(b"b", long="x" * (size - taken), **said))
            break
        except Refusal:
            size -= 1
    assert MAX_PROPERTIES_BYTES - ROOM_BYTES - size == max(0, length - 448)
    await peer.ask(beat("c"))
    await asked(broker, peer, 1)
    assert await outcome(peer, end(sent)) == 0


# --- asking back ------------------------------------------------------------------------------------------------------


async def asked(broker: LocalBroker, peer: Peer, count: int) -> None:
    """Returns when that many questions came in all."""
    await broker.clock.advance_until(lambda: len(checks(peer)) >= count, 1.0)


async def test_open_halves_are_listed(broker: LocalBroker, peer: Peer) -> None:
    """The oldest first, with the number of all; those that ended are none."""
    assert await peer.ask(ListHalves()) == OpenHalves(0, [])
    sent = await peer.send(*(half(b"%d" % number, PGROUP="pq"[number % 2]) for number in range(6)))
    await peer.ask(end(sent[0]))
    answer = await peer.ask(ListHalves(most=2))
    assert (answer.total, [(one.queue_offset, one.producer_group) for one in answer.halves]) == (5, [(1, "q"), (2, "p")])
    answer = await peer.ask(ListHalves("p"))
    assert (answer.total, [(one.queue_offset, one.checks) for one in answer.halves]) == (2, [(2, 0), (4, 0)])
    assert answer.halves[0].aside_ms - answer.halves[0].since_ms >= 6_000 + 15 * 30_000, "RocketMQ's defaults"
    assert await peer.ask(ListHalves("nobody", most=-1)) == OpenHalves(0, [])


async def test_asked_after_when_its_immunity_is_over(broker: LocalBroker, peer: Peer) -> None:
    """C12, story 67: the question names the new place; the answer may name that or the first one."""
    await peer.ask(beat("c"))
    sent = await peer.send(half(b"new"), half(b"first"))
    began = broker.clock.monotonic()
    await asked(broker, peer, 2)
    assert 6.0 <= broker.clock.monotonic() - began <= EVERY_S + 6.0
    for question in checks(peer):
        message = record.decode(question.message)
        assert (question.topic, message.topic, message.queue_id) == ("T", "T", 0)
        assert question.commit_log_offset == message.physical_offset > sent[1].physical_offset
        assert question.tran_state_table_offset == message.queue_offset
        assert question.transaction_id == question.msg_id == properties(message)["UNIQ_KEY"]
        assert properties(message)["TRANSACTION_CHECK_TIMES"] == "1"
    [question] = [one for one in checks(peer) if one.msg_id == "id-new"]
    await peer.ask(end(question))
    await peer.ask(end(sent[1]))
    assert sorted(one.body for one in await stored(peer, "T")) == [b"first", b"new"]
    assert [await outcome(peer, end(one)) for one in (*sent, question)] == [0, 0, 0]
    await broker.clock.advance(2 * EVERY_S)
    assert (len(checks(peer)), len(await stored(peer, "T"))) == (2, 2)


async def test_a_wall_clock_set_back_keeps_nobody_from_being_asked(broker: LocalBroker, peer: Peer) -> None:
    """C12, T3."""
    await peer.ask(beat("c"))
    [sent] = await peer.send(half(b"before"))
    broker.clock.jump_wall(-365 * 86_400_000)
    await asked(broker, peer, 1)
    assert [one.msg_id for one in checks(peer)] == ["id-before"]
    await peer.ask(end(sent))
    assert [one.body for one in await stored(peer, "T")] == [b"before"]


async def test_an_answer_to_an_older_question_counts(broker: LocalBroker, peer: Peer) -> None:
    """C12: three places name one half."""
    await peer.ask(beat("c"))
    await peer.send(half(b"slow"))
    await asked(broker, peer, 2)
    older = checks(peer)[0]
    await peer.ask(end(older))
    [found] = await stored(peer, "T")
    assert found.prepared_transaction_offset == older.commit_log_offset
    await broker.clock.advance(3.5)
    await until_ops(peer, ["0", "1", "2"])


async def test_who_wants_to_be_left_alone_is(broker: LocalBroker, peer: Peer) -> None:
    """C12: and that costs no check, other than with RocketMQ; afterwards only an answer to a check ends it (604)."""
    await peer.ask(beat("c"))
    [sent] = await peer.send(half(CHECK_IMMUNITY_TIME_IN_SECONDS="600"))
    await broker.clock.advance(590)
    assert (checks(peer), await halves(peer)) == ([], 1)
    await asked(broker, peer, 1)
    assert await peer.refusal(end(sent)) == R.ILLEGAL_OPERATION
    await peer.ask(end(checks(peer)[0]))
    assert len(await stored(peer, "T")) == 1


async def test_put_aside_after_the_last_check_and_begun_anew(connect: Connect) -> None:
    """C12: visible, not dropped; RESUME_CHECK_HALF_MESSAGE brings it back."""
    async with LocalBroker(transaction_check_max=2, **PATIENT) as broker:
        await broker.create_topic("T", 1)
        peer = await connect(broker)
        await peer.ask(beat("c"))
        [sent] = await peer.send(half(b"forgotten"))
        await asked(broker, peer, 2)
        await broker.clock.advance_until(lambda: not tables(broker).halves.open.rows, 5.0)
        found = await stored(peer, PARKED_TOPIC)
        assert (found[0].body, properties(found[0])["REAL_TOPIC"]) == (b"forgotten", "T")
        assert (await peer.ask(GetTopicConfig(PARKED_TOPIC))).perm == 6
        await broker.clock.advance(2 * EVERY_S)
        assert (len(checks(peer)), await stored(peer, "T")) == (2, [])
        assert await outcome(peer, end(sent)) == R.ILLEGAL_OPERATION

        wrong = (record.message_id(found[0].store_host, sent.physical_offset), "nonsense")
        assert [await peer.refusal(ResumeCheck(PARKED_TOPIC, one)) for one in wrong] == [R.SYSTEM_ERROR] * 2
        again = ResumeCheck(PARKED_TOPIC, record.message_id(found[0].store_host, found[0].physical_offset))
        for _ in range(2):  # once more is no second half
            await peer.ask(again)
        assert len(tables(broker).halves.open.rows) == 1
        await asked(broker, peer, 3)
        assert properties(record.decode(checks(peer)[2].message))["TRANSACTION_CHECK_TIMES"] == "1"
        await peer.ask(end(checks(peer)[2]))
        assert [one.body for one in await stored(peer, "T")] == [b"forgotten"]
        assert await outcome(peer, end(checks(peer)[2])) == 0
        assert await peer.refusal(again) == R.ILLEGAL_OPERATION


async def test_producers_of_the_group_take_turns_and_a_group_that_is_away_is_waited_for(
    broker: LocalBroker, connect: Connect
) -> None:
    one = await connect(broker, "one")
    await one.send(half())
    await broker.clock.advance(2 * EVERY_S)
    two = await connect(broker, "two")
    for name, peer in (("one", one), ("two", two)):
        await peer.ask(beat(name))
    await broker.clock.advance_until(lambda: checks(one) and checks(two), 5.0)


async def test_a_producer_that_does_not_read_is_asked_nothing_more(connect: Connect) -> None:
    """D18, C12: what it has not taken is bounded, and costs the others no check."""
    async with LocalBroker(transaction_check_interval_ms=86_400_000, transaction_timeout_ms=0) as broker:
        await broker.create_topic("T", 1)
        host, port = broker.address.split(":")
        peer, lazy = await connect(broker), await BarePeer.greeted((host, int(port)))
        lazy.ask(beat("lazy"), 1)
        await lazy.answer()
        count = 200
        for number in range(count):
            await peer.send(half(bytes(100_000), UNIQ_KEY=str(number)))
        [service] = [one.checks for one in broker.serving.features if isinstance(one, Transactions)]
        await service.check()
        rows = tables(broker).halves.open.rows.values()
        asked = sum(half.checks for half in rows)
        assert 0 < asked < count
        for _ in range(asked):
            await lazy.answer()
        await lazy.close()


async def test_what_is_wrong_with_one_does_not_stop_the_others(broker: LocalBroker, peer: Peer) -> None:
    """C12: one is unreadable, one stands where something else stands now (a repair), one is asked after."""
    await peer.ask(beat("c"))
    [other] = await peer.send(send("T"))
    open_halves = tables(broker).halves.open.rows
    for offset in (other.physical_offset, 10**12):
        open_halves[offset] = Half(offset, 77, 77, "p", 0)
    await peer.send(half(b"well"))
    await asked(broker, peer, 1)
    assert checks(peer)[0].msg_id == "id-well"
    await until(lambda: other.physical_offset not in open_halves)
    assert 10**12 in open_halves
    assert (await numbers(peer)).count("77") == 1  # where time passed meanwhile, the first place of the third one is told, too


def tables(broker: LocalBroker) -> Any:
    return broker.serving.tables


async def test_a_half_that_the_disk_gives_back_damaged_is_not_delivered(broker: LocalBroker, peer: Peer) -> None:
    """D8: neither is it asked after, with a checksum that fits to the damage; the others go on, and it stays open."""
    await peer.ask(beat("c"))
    sent = await peer.send(half(b"spoilt"), half(b"well"))
    for _ in range(3):
        await peer.send(send("Other", bytes(TAIL_BYTES // 2)))  # the end of the log is in memory
    segment = broker.store_dir / "commitlog" / f"{0:020d}"
    content = segment.read_bytes()
    with segment.open("r+b") as file:
        file.seek(content.index(b"spoilt", sent[0].physical_offset))
        file.write(b"Spoilt")
    assert [await outcome(peer, end(one)) for one in sent] == [R.SYSTEM_ERROR, 0]
    await broker.clock.advance(2 * EVERY_S)
    assert ([one.body for one in await stored(peer, "T")], checks(peer)) == ([b"well"], [])
    assert list(tables(broker).halves.open.rows) == [sent[0].physical_offset]


# --- restarts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["snapshot", "records", "killed"])
async def test_nothing_of_it_is_forgotten_by_a_restart(tmp_path: Path, how: str) -> None:
    """C11, C12, story 37: committed and rolled back ones stay so, open ones are asked after and count on; a commit whose op
    record was not written is not delivered again."""
    folder, running = tmp_path / "store", LocalBroker(store_dir=tmp_path / "store", clock=TestClock(running=False))
    async with running:
        await running.create_topic("T", 1)
        peer = await Peer.connect(running.address)
        await peer.ask(beat("c"))
        [waiting] = await peer.send(half(b"open"))
        await asked(running, peer, 1)
        done, undone = await commit(peer, b"done"), await commit(peer, b"undone", ROLLBACK)
        if how == "killed":
            assert "2" not in await numbers(peer), "the commit's op record is written already: the test proves nothing"
            folder = copy_of_running(tmp_path / "store", tmp_path / "as a kill leaves it")
        await peer.close()
    if how == "records":
        for path in (folder / "rmq").glob("snapshot-*"):
            path.unlink()
    async with LocalBroker(store_dir=folder) as broker:
        peer = await Peer.connect(broker.address)
        assert [one.body for one in await stored(peer, "T")] == [b"done"]
        assert [await outcome(peer, end(one)) for one in (done, undone)] == [0, R.ILLEGAL_OPERATION]
        await peer.ask(beat("c"))
        await asked(broker, peer, 1)
        [question] = checks(peer)
        assert question.msg_id == "id-open"
        assert properties(record.decode(question.message))["TRANSACTION_CHECK_TIMES"] == "2"
        await peer.ask(end(waiting))
        assert [one.body for one in await stored(peer, "T")] == [b"done", b"open"]
        await broker.clock.advance(3.5)
        async with asyncio.timeout(20):
            while {"0", "1", "2", "3", "4"} - set(await numbers(peer)):
                await asyncio.sleep(0)
        assert len(await numbers(peer)) == 5, "none is told twice"
        await peer.close()


async def test_a_stop_tells_rocketmq_of_the_last_commit(tmp_path: Path) -> None:
    """A RocketMQ that opens the store next asks nobody after it."""
    async with LocalBroker(store_dir=tmp_path) as broker:
        await broker.create_topic("T", 1)
        peer = await Peer.connect(broker.address)
        await commit(peer, b"done")
        await peer.close()
    async with LocalBroker(store_dir=tmp_path) as broker:
        peer = await Peer.connect(broker.address)
        assert await numbers(peer) == ["0"]
        await peer.close()

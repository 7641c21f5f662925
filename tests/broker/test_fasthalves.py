"""The fast ways of halves and commits against their slow twins: where they decide, they decide the same, also together."""

import asyncio
import random
from collections.abc import Sequence
from typing import Any

import pytest

from rmq.broker.pending import fasthalves, halves
from rmq.broker.pending.intake import Intake, as_sent
from rmq.broker.pending.kinds import Pending
from rmq.codes import ResponseCode as R
from rmq.delivery.proof import HALF
from rmq.delivery.transactions import Half, HalfTable
from rmq.errors import Refusal
from rmq.log.records import fastpath, record
from rmq.log.records.checking import check
from rmq.log.records.properties import CRC_NAME
from rmq.log.replay import replay
from rmq.model import HALF_TOPIC
from rmq.net.codec.frames import decode_frame
from rmq.net.commands import DeleteTopic, DraftedSend, SendAnswer
from rmq.net.commands.messages import Waits
from rmq.net.commands.transactions import EndTransaction
from rmq.net.remoting.codec import RemotingSettings
from rmq.net.remoting.headers import Header
from rmq.testing import LocalBroker
from tests.broker.conftest import Connect
from tests.broker.javaclient import JavaClient
from tests.broker.support import Peer, send
from tests.broker.transactions import COMMIT, ROLLBACK, end, half, outcome, stored
from tests.net import java_peer

PEER = "10.0.0.9", 4000
HOST = bytes([10, 0, 0, 9, 0, 0, 15, 160])
STORED = (1_700_000_000_123).to_bytes(8, "big") + HOST
TOPICS = ("T", "orders", "w" * 130)
SAID = (
    b"TRAN_MSG\x01true\x02", b"PGROUP\x01p\x02", b"UNIQ_KEY\x010A\x02", b"TAGS\x01a\x02", b"KEYS\x01k 1\x02",
    b"TRAN_MSG\x01false\x02", b"TRAN_MSG\x01True\x02", b"PGROUP\x01q\x02", b"PGROUP\x01\x02",
    b"PGROUP\x01" + b"g" * 256 + b"\x02",
    b"UNIQ_KEY\x010B\x02", b"UNIQ_KEY\x01\x02", b"TAGS\x01\xc3\xa4\x02", b"TAGS\x01\x02", b"DELAY\x013\x02",
    b"TIMER_DELAY_SEC\x011\x02", b"CHECK_IMMUNITY_TIME_IN_SECONDS\x0160\x02", b"TRANSACTION_CHECK_TIMES\x012\x02",
    b"__transactionId__\x01x\x02", b"REAL_TOPIC\x01x\x02", b"RMQ_SRC\x01half 1 0\x02", b"INNER_MULTI_DISPATCH\x01a\x02",
    b"xTRAN_MSG\x01true\x02", b"x\x01\x02", b"\x01\x02", b"a", b"PGROUPS\x01x\x02", b"k\x01" + b"v" * 31_720 + b"\x02",
)  # fmt: skip
LIKELY = 5  # the first so many are in most halves


def sent_half(chance: random.Random, topic: str) -> bytes:
    said = [one for one in SAID[:LIKELY] if chance.random() < 0.95]
    said += chance.sample(SAID[LIKELY:], chance.choice((0, 0, 1, 2)))
    if chance.random() < 0.5:
        chance.shuffle(said)
    made = record.draft(
        topic,
        chance.randbytes(chance.randrange(30)),
        b"".join(said),
        flag=chance.randrange(9),
        sys_flag=chance.choice((0, 4, 4, 4, 4, 8, 1)),
        born_timestamp=chance.randrange(2**40),
        born_host=HOST if chance.random() < 0.9 else bytes(20),
        reconsume_times=chance.choice((0, 0, 0, 0, 1)),
    )
    return perhaps_damaged(chance, made)


def perhaps_damaged(chance: random.Random, made: bytes) -> bytes:
    """One in five has a bit turned."""
    data = bytearray(made)
    if chance.random() < 0.2:
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    return bytes(data)


def stamped(draft: bytes, queue_offset: int, place: int) -> bytes:
    data = bytearray(draft)
    record.stamp(data, [(0, (len(data),), 0, queue_offset)], place, STORED)
    return bytes(data)


def test_the_fast_ways_are_the_slow_ones() -> None:
    """C11: what waits, what each node notes of it, and what a commit makes of it."""
    chance, taken, committed = random.Random(1), 0, 0
    intake = Intake((halves.half_interceptor(HalfTable()),))
    for _ in range(6000):
        topic, queue_id = chance.choice(TOPICS), chance.randrange(5)
        sent = sent_half(chance, topic)
        if (waiting := fasthalves.waiting(sent, topic, queue_id)) is None:
            continue
        taken += 1
        assert check(sent, topic).pending
        slowly = intake.take_sent(sent, 1, queue_id)
        assert slowly is not None
        assert (slowly.topic, slowly.queue_id) == (HALF_TOPIC, 0)
        lies = stamped(waiting.draft, 7, 5000)
        assert lies == stamped(slowly.draft, 7, 5000)
        found = record.decode(lies)
        assert waiting.code == record.entry_code(found)
        assert halves.half_of(found) == Half(5000, 7, 7, waiting.group, 1_700_000_000_123)
        assert halves.first_of(found) == 5000
        if (message := fasthalves.committed(lies, 5000)) is not None:
            committed += 1
            assert message == fasthalves.committed(lies, 5000, (topic, queue_id, waiting.code))
            whole = halves.whole(found)
            assert (message.topic, message.queue_id) == (whole.topic, whole.queue_id) == (topic, queue_id)
            twin = stamped(halves.committed(whole, topic, 5000, 5000), 3, 9000)
            assert stamped(message.draft, 3, 9000) == twin
            assert message.code == record.entry_code(record.decode(twin))
    assert taken > 1000
    assert committed == taken


@pytest.mark.parametrize("binary", [False, True])
def test_halves_of_rocketmq_are_drafted_as_they_wait(binary: bool) -> None:
    """C11: a half that looks like an earlier one of its client waits as it would if its header were parsed, and what was sent can
    be told from it."""
    chance, drafted = random.Random(2), 0
    intake = Intake((halves.half_interceptor(HalfTable()),))
    known = RemotingSettings(fastpath).codec(PEER)
    for number in range(3000):
        topic, queue_id, group = chance.choice(TOPICS), chance.choice((0, 1, -1)), chance.choice(("p", "p", "p", "q", "g" * 256))
        said = [one for one in SAID[:LIKELY] if chance.random() < 0.97]
        said += chance.sample(SAID[LIKELY:], chance.choice((0, 0, 0, 1)))
        if chance.random() < 0.2:
            chance.shuffle(said)
        flags = {"f": chance.choice("44444444440"), "j": chance.choice("00000000001")}
        fields = {"a": group, "b": topic, "e": str(queue_id), "i": b"".join(said).decode(), **flags}
        frame = java_peer.send_frame(1000 + number, b"%d" % number, binary, **fields)[4:]
        request, slowly = decode_frame(known, frame)[0], decode_frame(RemotingSettings(fastpath).codec(PEER), frame)[0]
        if not isinstance(request, DraftedSend) or not isinstance(request.tags_code, Waits):
            assert isinstance(request, Refusal) or request.records == slowly.records or not has_id(b"".join(said))
            continue
        drafted += 1
        assert request[:3] + request[4:10] == slowly[:3] + slowly[4:]
        assert as_sent(request) == slowly.records
        assert check(slowly.records, topic).pending
        placed = intake.take_sent(slowly.records, 1, queue_id)
        assert placed is not None
        lies, twin = (record.decode(stamped(draft, 7, 5000)) for draft in (request.records, placed.draft))
        assert record.bytes_to_properties(lies.properties) == record.bytes_to_properties(twin.properties) | {
            CRC_NAME.decode(): record.bytes_to_properties(lies.properties)[CRC_NAME.decode()]
        }
        assert lies[4:-1] == twin[4:-1]
        assert request.tags_code == Waits(record.entry_code(twin), halves.half_of(twin).group)
        message = fasthalves.committed(stamped(request.records, 7, 5000), 5000)
        assert message is not None
        assert message == fasthalves.committed(stamped(request.records, 7, 5000), 5000, (topic, queue_id, message.code))
        whole = stamped(halves.committed(halves.whole(lies), topic, 5000, 5000), 3, 9000)
        assert (message.topic, message.queue_id, stamped(message.draft, 3, 9000)) == (topic, queue_id, whole)
    assert drafted > 300


def has_id(properties: bytes) -> bool:
    """A message without one gets it from the broker, another each time."""
    return b"\x02UNIQ_KEY\x010" in b"\x02" + properties


def test_a_half_that_waits_for_more_than_its_end_takes_the_slow_way() -> None:
    """What RocketMQ stored, one that was appended again, one with a delay, one whose body is compressed; no half at all."""
    intake = Intake((halves.half_interceptor(HalfTable()),))
    for more, flags in ((b"DELAY\x013\x02", 4), (b"INNER_MULTI_DISPATCH\x01%LMQ%a\x02", 4), (b"", 5)):
        sent = record.draft("T", b"x", b"".join(SAID[:3]) + more, sys_flag=flags, born_timestamp=1, born_host=HOST)
        placed = intake.take_sent(sent, 1, 0)
        assert placed is not None
        assert fasthalves.waiting(sent, "T", 0) is None
        assert fasthalves.committed(stamped(placed.draft, 0, 0), 0) is None
    plain = fasthalves.waiting(record.draft("T", b"x", b"".join(SAID[:3]), born_timestamp=1, born_host=HOST), "T", 0)
    assert plain is not None
    again = halves.again(record.decode(stamped(plain.draft, 0, 0)), 0, 1)
    theirs = record.draft("T", b"x", b"TAGS\x01a\x02", born_timestamp=1, born_host=HOST)
    for lies in (again, theirs, plain.draft[:80], b""):
        assert fasthalves.committed(lies, 0) is None


# --- many of one turn, at a real broker -------------------------------------------------------------------------------


async def burst(peer: Peer, requests: Sequence[Any]) -> list[Any]:
    """All of them in one write."""
    return await asyncio.gather(*(peer.ask(request) for request in requests), return_exceptions=True)


async def opened(broker: LocalBroker, connect: Connect) -> list[Peer]:
    """Two producers, and topics T and U, to which something was sent before."""
    peers = [await connect(broker, name) for name in ("one", "two")]
    for topic in "TU":
        await broker.create_topic(topic, 4)
        await peers[0].send(*(send(topic, queue_id=queue) for queue in range(4)))
    return peers


def assert_noted(broker: LocalBroker, places: Sequence[int]) -> None:
    """The tables are as another node, or a start, makes them of the log."""
    again, table = HalfTable(), broker.serving.tables.halves
    notes = Pending({HALF: halves.HalfNotes(again)})
    for found in replay(broker.serving.store):
        notes.note(found)
    assert table.open.rows == again.open.rows
    assert table.ended.rows == again.ended.rows
    assert table.owed.rows == again.owed.rows
    assert {first for first in places if first in again.open.rows or first in again.ended.rows} == set(places)


async def test_halves_of_one_turn(broker: LocalBroker, connect: Connect) -> None:
    """C11: each is answered with its own place, and only what is wrong with one refuses it."""
    peers = await opened(broker, connect)
    wrong = [half(PGROUP=""), half(b"d", DELAY="99 x"), half(b"e", "none")]
    asked = [[half(b"%d-%d" % (at, n), "TU"[n % 2], queue_id=n % 4, TAGS=f"t{n % 3}") for n in range(40)] for at in range(2)]
    mixed = [[*asked[0][:20], *wrong, send("T", b"plain"), *asked[0][20:]], asked[1]]
    told = await asyncio.gather(*map(burst, peers, mixed))
    refused = [one for one in told[0] if isinstance(one, Refusal)]
    assert len(refused) >= 1
    ones = [one for one in told[0] if isinstance(one, SendAnswer)]
    lying = {one.physical_offset: one for one in await stored(peers[0], HALF_TOPIC)}
    for requests, answers in ((mixed[0], told[0]), (mixed[1], told[1])):
        for request, answer in zip(requests, answers, strict=True):
            if isinstance(answer, SendAnswer) and request.records.find(b"TRAN_MSG") > 0:
                lies = lying[answer.physical_offset]
                said = record.bytes_to_properties(lies.properties)
                assert (lies.body, lies.queue_offset) == (record.decode(request.records).body, answer.queue_offset)
                assert (said["REAL_TOPIC"], said["REAL_QID"]) == (request.topic, str(request.queue_id))
                assert answer.queue_id == request.queue_id
    assert len(ones) + len(refused) == len(mixed[0])
    assert_noted(broker, list(lying))
    found = broker.serving.store.queues.get(HALF_TOPIC, 0).find(0, 100, 1 << 20, frozenset({record.tags_code("t1")}))
    assert [at for at, _ in found.spans] == [at for at, one in lying.items() if b"TAGS\x01t1\x02" in one.properties]


async def test_ends_of_one_turn(broker: LocalBroker, connect: Connect) -> None:
    """C11: of what two producers say at once the first counts, for each half; commits stand once in their queues."""
    peers = await opened(broker, connect)
    sent = await burst(peers[0], [half(b"%d" % n, "TU"[n % 2], queue_id=n % 4) for n in range(60)])
    words = [[COMMIT if (n + at) % 5 else ROLLBACK for n in range(60)] for at in range(2)]
    told = await asyncio.gather(
        *(
            asyncio.gather(*(outcome(peer, end(one, how)) for one, how in zip(sent, said, strict=True)))
            for peer, said in zip(peers, words, strict=True)
        )
    )
    rows = broker.serving.tables.halves.ended.rows
    committed = set()
    for number, one in enumerate(sent):
        decided = rows[one.physical_offset]
        for said, answers in zip(words, told, strict=True):
            same = decided == ("committed" if said[number] == COMMIT else "rolled back")
            assert answers[number] == (0 if same else R.ILLEGAL_OPERATION)
        committed |= {b"%d" % number} if decided == "committed" else set()
    found = [one for topic in "TU" for queue in range(4) for one in (await stored(peers[0], topic, queue))[1:]]
    assert sorted(one.body for one in found) == sorted(committed)
    assert all((one.topic, one.queue_id) == ("TU"[int(one.body) % 2], int(one.body) % 4) for one in found)
    assert_noted(broker, [one.physical_offset for one in sent])
    assert not broker.serving.tables.halves.open.rows


async def test_what_refuses_a_unit_refuses_all_in_it(broker: LocalBroker, connect: Connect) -> None:
    """C11: halves whose commits could not be written are open still, and their producers are told so."""
    [peer, _] = await opened(broker, connect)
    sent = await burst(peer, [half(b"%d" % n) for n in range(20)])
    log = broker.serving.store.log
    log.broken = "not now"
    told = await asyncio.gather(*(outcome(peer, end(one)) for one in sent))
    assert set(told) == {R.SERVICE_NOT_AVAILABLE}
    refused = await burst(peer, [half(b"no"), half(b"nor this")])
    assert [one.code for one in refused] == [R.SERVICE_NOT_AVAILABLE] * 2
    log.broken = ""
    assert len(broker.serving.tables.halves.open.rows) == 20
    assert await asyncio.gather(*(outcome(peer, end(one)) for one in sent)) == [0] * 20
    assert len((await stored(peer, "T"))[1:]) == 20
    assert_noted(broker, [one.physical_offset for one in sent])


async def test_halves_of_a_topic_that_has_gone(broker: LocalBroker, connect: Connect) -> None:
    """C11: they are rolled back, whatever else is committed in that turn, and nothing reaches the next life of the topic."""
    [peer, other] = await opened(broker, connect)
    sent = await burst(peer, [half(b"%d" % n, "TU"[n % 2]) for n in range(40)])
    await peer.ask(DeleteTopic("U"))
    ends = [end(one) for one in sent]
    told = await asyncio.gather(*(outcome(peer, one) for one in ends))
    assert told == [0, R.TOPIC_NOT_EXIST] * 20
    await broker.create_topic("U", 4)
    assert [await outcome(other, one) for one in ends] == [0, R.ILLEGAL_OPERATION] * 20
    assert [await stored(peer, "U", queue) for queue in range(4)] == [[]] * 4
    assert [int(one.body) for one in (await stored(peer, "T"))[1:]] == [*range(0, 40, 2)]
    assert_noted(broker, [one.physical_offset for one in sent])


# --- halves of RocketMQ's clients -------------------------------------------------------------------------------------


async def halves_sent(client: JavaClient, topic: str, count: int, group: str = "PG") -> list[Header]:
    """All of them in one write. What a half looks like is learnt from the first one."""
    said = f"TRAN_MSG\x01true\x02PGROUP\x01{group}\x02UNIQ_KEY\x01A%04d\x02TAGS\x01a\x02"
    sends = [client.send(b"%d" % n, topic, a=group, e=str(n % 4), f="4", i=said % n) for n in range(count)]
    return [header for header, _ in await asyncio.gather(*sends)]


def ends_of(answers: Sequence[Header], group: str = "PG") -> list[EndTransaction]:
    return [
        EndTransaction(group, int(one.ext["queueOffset"]), int(one.ext["msgId"][16:], 16), COMMIT, one.ext["transactionId"])
        for one in answers
    ]


@pytest.mark.parametrize(("topic", "group"), [("T", "PG"), ("w" * 127, "g" * 255)])
async def test_transactions_of_rocketmqs_clients(broker: LocalBroker, connect: Connect, topic: str, group: str) -> None:
    """C11, C12: names as long as may be; each is committed once, and the tables are as another node makes them."""
    await broker.create_topic(topic, 4)
    peer = await connect(broker, "reader")
    async with JavaClient.connect(broker.address) as client:
        for round_ in range(2):
            answers = await halves_sent(client, topic, 40, group)
            assert {one.code for one in answers} == {0}
            assert [one.ext["transactionId"] for one in answers] == [f"A{n:04d}" for n in range(40)]
            ended = await asyncio.gather(*map(client.ask, ends_of(answers, group)))
            assert {header.code for header, _ in ended} == {0}
            again = await asyncio.gather(*map(client.ask, ends_of(answers, group)))
            assert {header.code for header, _ in again} == {0}
            found = [one for queue in range(4) for one in await stored(peer, topic, queue)]
            assert sorted(int(one.body) for one in found) == sorted([*range(40)] * (round_ + 1))
    assert not broker.serving.tables.halves.open.rows
    assert_noted(broker, [end.commit_log_offset for end in ends_of(answers, group)])


async def test_halves_of_rocketmqs_clients_for_a_topic_that_has_gone() -> None:
    """C11: what is open is rolled back, and a half that is sent after that finds no topic, though its kind is known."""
    async with LocalBroker(auto_create_topic=False) as broker, JavaClient.connect(broker.address) as client:
        await broker.create_topic("T", 4)
        waiting = await halves_sent(client, "T", 8)
        assert {one.code for one in waiting} == {0}
        await client.ask(DeleteTopic("T"))
        assert {one.code for one in await halves_sent(client, "T", 8)} == {R.TOPIC_NOT_EXIST}
        ended = await asyncio.gather(*map(client.ask, ends_of(waiting)))
        assert {header.code for header, _ in ended} == {R.TOPIC_NOT_EXIST}
        await broker.create_topic("T", 4)
        waiting = await halves_sent(client, "T", 8)
        assert {header.code for header, _ in await asyncio.gather(*map(client.ask, ends_of(waiting)))} == {0}
        assert sum(broker.serving.store.queues.get("T", queue).max for queue in range(4)) == 8


async def test_a_broker_without_transactions_takes_no_halves_of_rocketmqs_clients() -> None:
    async with LocalBroker(reject_transactions=True) as broker, JavaClient.connect(broker.address) as client:
        await broker.create_topic("T", 4)
        assert {one.code for one in await halves_sent(client, "T", 8)} == {R.NO_PERMISSION}
        assert not broker.serving.store.queues.get(HALF_TOPIC, 0).max

"""Names that brokers make themselves, of ours and of RocketMQ's: longer than a user's may be, or with a `+`."""

from pathlib import Path

import orjson

from rmq.codes import ResponseCode
from rmq.log.records import record
from rmq.log.records.record import MAGIC_V1, MAGIC_V2, Record
from rmq.model import TopicConfig
from rmq.net.commands import DeleteTopic, GetAllTopicConfig, GetTopicList, Hello
from rmq.routing.topics import TopicTable, topics_json
from rmq.testing import SEGMENT_BYTES, LocalBroker
from tests.broker.conftest import Connect
from tests.broker.popping import ack, bodies, pop, take
from tests.broker.support import Peer, send
from tests.dialing import dial

GROUP, TOPIC = "g" * 120, "T" * 127
LONGEST = f"%RETRY%{GROUP}_{TOPIC}"


async def names(broker: LocalBroker) -> list[str]:
    """As the nameserver knows them."""
    channel = await dial(broker.nameserver, Hello(1))
    found: list[str] = (await channel.request(GetTopicList(), 5.0)).topics  # type: ignore[union-attr]
    await channel.close()
    return found


async def test_the_longest_group_pops_from_the_longest_topic(broker: LocalBroker, peer: Peer) -> None:
    """C10, N5: what comes back lies in a topic of 255 characters; the nameserver refused the whole broker for its sake, and
    nobody could delete it."""
    await broker.create_topic(TOPIC, 1)
    await peer.send(send(TOPIC, b"one"), send(TOPIC, b"two"))
    first = await take(peer.ask, pop(TOPIC, group=GROUP, hidden_ms=1000))
    assert bodies(first) == [b"one", b"two"]
    await ack(peer.ask, first[0], group=GROUP)
    found: list[bytes] = []
    while not found:
        await broker.clock.advance(1.0)
        again = await take(peer.ask, pop(TOPIC, group=GROUP))
        found = bodies(again)
    assert (found, again[0].topic) == ([b"two"], LONGEST)
    await ack(peer.ask, *again, group=GROUP)
    for _ in range(2):
        known = await names(broker)
        assert {"T", TOPIC, LONGEST} <= set(known)
        await broker.stop_broker()
        await broker.start_broker()
        peer = await Peer.connect(broker.address)
    await peer.ask(DeleteTopic(LONGEST))
    await peer.ask(DeleteTopic(LONGEST))
    assert LONGEST not in [one.name for one in (await peer.ask(GetAllTopicConfig())).topics]
    await peer.close()


async def test_a_pop_whose_messages_could_not_come_back_is_refused(tmp_path: Path, connect: Connect) -> None:
    """RocketMQ up to 5.3 takes topics of 255 characters: a broker never makes what it could not register."""
    long = "T" * 255
    theirs(tmp_path, [(long, 0, b"one")])
    async with LocalBroker(store_dir=tmp_path) as broker:
        peer = await connect(broker)
        assert await peer.refusal(pop(long, group=GROUP)) == ResponseCode.INVALID_PARAMETER
        assert bodies(await take(peer.ask, pop(long, group="g", order=True))) == [b"one"]
        assert [one.body for one in record.iterate((await peer.pull(long, 0)).messages)] == [b"one"]


async def test_messages_that_came_back_under_rocketmqs_other_name(tmp_path: Path, connect: Connect) -> None:
    """[enableRetryTopicV2] `%RETRY%<group>+<topic>`: a `+` made a whole directory impossible to adopt. They are popped and
    acknowledged like the others, and the topic is routed, and goes with its topic."""
    theirs(tmp_path, [("T", 0, b"one"), ("%RETRY%g+T", 0, b"back"), ("%RETRY%g+T", 1, b"again"), ("strange.name", 0, b"x")])
    async with LocalBroker(store_dir=tmp_path) as broker:
        peer = await connect(broker)
        found = await take(peer.ask, pop("T"))
        assert sorted(bodies(found)) == [b"again", b"back", b"one"]
        flags = {one.body: one.handle.split()[4] for one in found}
        assert flags == {b"one": "0", b"back": "2", b"again": "2"}
        await ack(peer.ask, *(one._replace(topic="%RETRY%g+T" if flags[one.body] == "2" else "T") for one in found))
        assert await take(peer.ask, pop("T")) == []
        assert {"T", "%RETRY%g+T", "strange.name"} <= set(await names(broker))
        assert [one.body for one in record.iterate((await peer.pull("strange.name", 0)).messages)] == [b"x"]
        assert (await peer.send(send("strange.name", b"y")))[0].queue_offset == 1, "it exists, so it is served"
        assert await peer.refusal(send("another.name")) == ResponseCode.INVALID_PARAMETER
        await peer.ask(DeleteTopic("T"))
        assert {"T", "%RETRY%g+T"}.isdisjoint(one.name for one in (await peer.ask(GetAllTopicConfig())).topics)


def theirs(root: Path, messages: list[tuple[str, int, bytes]]) -> None:
    """A store as RocketMQ leaves it when it is stopped: a log, and topics.json."""
    data = bytearray()
    host = record.host_bytes("127.0.0.1", 10911)
    for topic, number, body in messages:
        magic = MAGIC_V2 if len(topic) > 127 else MAGIC_V1
        crc = record.crc32(body) & record.CRC_MASK
        data += record.encode(Record(0, magic, crc, 0, 0, number, len(data), 0, 1000, host, 2000, host, 0, 0, body, topic, b""))
    (root / "commitlog").mkdir()
    (root / "commitlog" / f"{0:020d}").write_bytes(bytes(data).ljust(SEGMENT_BYTES, b"\0"))
    table = TopicTable()
    for topic, _, _ in messages:
        table.apply(topic, list(TopicConfig(topic, 1, 1)))
    (root / "config").mkdir()
    (root / "config" / "topics.json").write_bytes(orjson.dumps(topics_json(table)()))

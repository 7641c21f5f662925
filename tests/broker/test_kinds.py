"""Topics made for one kind of messages: types that are checked, priorities; queues of messages that come back."""

import pytest

from rmq.codes import ResponseCode as R
from rmq.errors import Refusal
from rmq.log.records import record
from rmq.model import GroupConfig
from rmq.net.commands import DeleteTopic, GetTopicConfig, Send, UpdateGroup, UpdateTopic
from rmq.net.commands.configuration import UpdateBrokerConfig
from rmq.net.remoting.headers import Header
from rmq.testing import LocalBroker
from tests.broker.javaclient import JavaClient
from tests.broker.popping import Popped, ack, bodies, take
from tests.broker.support import BORN, Peer, everything
from tests.broker.test_pop import BACK, wait_for_back

URGENT = "_SYS_MSG_PRIORITY_"


def kinds_of(config: str, queues: int = 4, topic: str = "T") -> UpdateTopic:
    return UpdateTopic(topic, read_queue_nums=queues, write_queue_nums=queues, attributes=config)


def message(body: bytes, topic: str = "T", queue_id: int = 0, **properties: str) -> Send:
    text = record.properties_to_bytes(properties) if properties else b""
    return Send("p", topic, queue_id, record.draft(topic, body, text, born_timestamp=1000, born_host=BORN))


async def places(peer: Peer, topic: str = "T") -> dict[bytes, int]:
    found = [(one.body, queue_id) for queue_id in range(4) for one in await everything(peer, topic, queue_id)]
    return dict(found)


async def test_messages_of_another_kind_are_refused_when_that_is_asked_for(broker: LocalBroker, peer: Peer) -> None:
    """enableTopicMessageTypeCheck, on and off while the broker runs; batches and halves too; nothing else changes."""
    await peer.ask(kinds_of("+message.type=FIFO"))
    await peer.send(message(b"unchecked"))
    await peer.ask(UpdateBrokerConfig("enableTopicMessageTypeCheck=true"))
    with pytest.raises(Refusal, match="expected type is FIFO, but actual type is NORMAL") as refused:
        await peer.send(message(b"plain"))
    assert refused.value.code == R.MESSAGE_ILLEGAL
    good, bad = message(b"good", __SHARDINGKEY="k"), message(b"bad", DELAY="1")
    assert await peer.refusal(good._replace(records=good.records + bad.records, batch=True)) == R.MESSAGE_ILLEGAL
    assert await peer.refusal(message(b"half", TRAN_MSG="true", PGROUP="p")) == R.MESSAGE_ILLEGAL
    assert await peer.refusal(good._replace(records=b"x" * 200)) == R.MESSAGE_ILLEGAL
    await peer.send(good, good._replace(records=good.records * 2, batch=True))
    await peer.send(message(b"U", "Untyped"), message(b"U", "Untyped", DELAY="1"))
    async with JavaClient.connect(broker.address) as java:
        answers = [(await java.send(b"j", i=text))[0].code for text in ("UNIQ_KEY\x01A\x02", "__SHARDINGKEY\x01k\x02")]
        assert answers == [R.MESSAGE_ILLEGAL, 0]
    await peer.ask(kinds_of("-message.type"))
    await peer.send(message(b"typeless"))
    await peer.ask(kinds_of("+message.type=DELAY"))
    assert await peer.refusal(message(b"plain")) == R.MESSAGE_ILLEGAL
    await peer.ask(UpdateBrokerConfig("enableTopicMessageTypeCheck=false"))
    await peer.send(message(b"off"))
    found = [one.body for one in await everything(peer)]
    assert found == [b"unchecked", b"good", b"good", b"good", b"j", b"typeless", b"off"]


@pytest.mark.parametrize("config", ["queue.type=RocksDBCQ", "cleanup.policy=FOREVER"])
async def test_a_topic_of_a_kind_that_is_not_served_is_not_made(peer: Peer, config: str) -> None:
    """What such a topic promises would be broken without a word."""
    with pytest.raises(Refusal, match="one of") as refused:
        await peer.ask(kinds_of(f"+{config}", topic="New"))
    assert refused.value.code == R.SYSTEM_ERROR
    assert await peer.ask_code(GetTopicConfig("New")) == R.TOPIC_NOT_EXIST
    usual = {"queue.type": "SimpleCQ", "cleanup.policy": "DELETE", "message.type": "NORMAL", "reserve.time": "-1"}
    await peer.ask(kinds_of(",".join(f"+{name}={value}" for name, value in usual.items()), topic="New"))
    assert (await peer.ask(GetTopicConfig("New"))).attributes == usual
    assert await peer.refusal(kinds_of("-queue.type", topic="New")) == R.SYSTEM_ERROR, "it never changes"


async def test_a_priority_is_the_number_of_a_queue(broker: LocalBroker, peer: Peer) -> None:
    """[SendMessageProcessor] Java's sends and ours, with queues asked for, none asked for, and batches."""
    await peer.ask(kinds_of("+message.type=PRIORITY"))
    sends = {b"0": "0", b"2": "2", b"9": "9", b"-1": "-1", b"a": "a"}
    answers = await peer.send(*(message(body, queue_id=1, **{URGENT: text}) for body, text in sends.items()))
    assert [one.queue_id for one in answers] == [0, 2, 3, 1, 1]
    batch = message(b"batch", queue_id=1, **{URGENT: "3"})
    await peer.send(batch._replace(records=batch.records * 2, batch=True), message(b"any", queue_id=-1, **{URGENT: "2"}))
    async with JavaClient.connect(broker.address) as java:
        header: Header = (await java.send(b"java", i=f"{URGENT}\x013\x02UNIQ_KEY\x01A\x02"))[0]
        assert header.ext["queueId"] == "3"
        crowd = [java.send(b"c%d" % each, i=f"{URGENT}\x01{each % 5}\x02UNIQ_KEY\x01B{each}\x02") for each in range(50)]
        assert [(await one)[0].ext["queueId"] for one in crowd] == [str(min(each % 5, 3)) for each in range(50)]
    found = await places(peer)
    assert {body: found[body] for body in (b"0", b"2", b"9", b"-1", b"a", b"batch", b"any", b"java")} == {
        b"0": 0, b"2": 2, b"9": 3, b"-1": 1, b"a": 1, b"batch": 1, b"any": 2, b"java": 3,
    }  # fmt: skip
    await peer.send(message(b"later", **{URGENT: "3", "DELAY": "1"}))
    await broker.clock.advance_until(lambda: broker.serving.store.queues.look("T", 0).came > len(crowd) // 5 + 1)
    assert (await places(peer))[b"later"] == 0, "a delayed message is no urgent one"


@pytest.mark.parametrize("ascending", [True, False])
async def test_pops_begin_with_the_most_urgent_queue(broker: LocalBroker, peer: Peer, ascending: bool) -> None:
    await peer.ask(kinds_of("+message.type=PRIORITY"))
    await peer.ask(UpdateBrokerConfig(f"priorityOrderAsc={str(ascending).lower()}"))
    wanted = [b"3", b"2", b"1", b"0"] if ascending else [b"0", b"1", b"2", b"3"]
    await peer.send(*(message(body, queue_id=0, **{URGENT: body.decode()}) for body in (b"1", b"3", b"0", b"2")))
    got = [bodies(await take(peer.ask, count=1)) for _ in range(4)]
    assert got == [[body] for body in wanted]
    await peer.send(*(message(body, queue_id=0, **{URGENT: body.decode()}) for body in (b"1", b"3", b"0", b"2")))
    await peer.ask(UpdateBrokerConfig("useSeparateRetryQueue=true\npopFromRetryProbabilityForPriority=100"))
    assert bodies(await take(peer.ask, hidden_ms=1000)) == wanted, "one pop goes on to the next queue"
    queues = broker.serving.store.queues
    await broker.clock.advance_until(lambda: all(queues.look(BACK, each).max for each in range(4)))
    assert bodies(await take(peer.ask)) == wanted, "also of what comes back"


async def test_a_group_gives_a_part_of_its_pops_to_the_others(broker: LocalBroker, peer: Peer) -> None:
    """priority.factor: of 0 percent each queue is first about as often."""
    await peer.ask(kinds_of("+message.type=PRIORITY"))
    await peer.ask(UpdateGroup(GroupConfig("g", attributes={"+priority.factor": "0"})))
    await peer.send(*(message(b"m", queue_id=0, **{URGENT: f"{each % 4}"}) for each in range(160)))
    first = [(await take(peer.ask, count=1))[0].queue_id for _ in range(40)]
    assert set(first) == {0, 1, 2, 3}
    await peer.ask(UpdateGroup(GroupConfig("g", attributes={"+priority.factor": "100"})))
    assert {(await take(peer.ask, count=1))[0].queue_id for _ in range(10)} == {3}


async def test_returned_messages_are_first_only_if_that_is_set(broker: LocalBroker, peer: Peer) -> None:
    await peer.ask(kinds_of("+message.type=PRIORITY"))
    await peer.send(message(b"back"))
    await take(peer.ask, hidden_ms=1000)
    queues = broker.serving.store.queues
    await broker.clock.advance_until(lambda: queues.look(BACK, 0).max)
    await peer.send(*(message(b"new") for _ in range(12)))
    for percent, body in ((0, b"new"), (100, b"back")):
        await peer.ask(UpdateBrokerConfig(f"popFromRetryProbabilityForPriority={percent}"))
        first: list[Popped] = []
        for _ in range(1 if percent else 10):
            first += await take(peer.ask, count=1)
        assert set(bodies(first)) == {body}


async def test_each_queue_has_its_own_for_what_comes_back(broker: LocalBroker, peer: Peer) -> None:
    """useSeparateRetryQueue (5.5.0): switched on, more queues, off again; each time all come back and end."""
    queues = broker.serving.store.queues
    await peer.send(*(message(b"%d" % each, queue_id=each) for each in range(4)))
    await take(peer.ask, hidden_ms=1000)
    assert len(await wait_for_back(broker, peer, 4, hidden_ms=1000)) == 4, "into one queue, as long as nobody asks for more"
    assert (await peer.ask(GetTopicConfig(BACK))).write_queue_nums == 1
    await peer.ask(UpdateBrokerConfig("useSeparateRetryQueue=true"))
    await peer.send(*(message(b"s%d" % each, queue_id=each) for each in range(4)))
    await take(peer.ask, hidden_ms=1000)
    await broker.clock.advance_until(lambda: queues.look(BACK, 3).max)
    assert (await peer.ask(GetTopicConfig(BACK))).read_queue_nums == 4
    again = [one for one in await everything(peer, BACK, 3) if one.body == b"s3"]
    assert len(again) == 1
    seen: set[bytes] = set()
    while len(seen) < 8:
        got = await take(peer.ask, poll_ms=0, hidden_ms=600_000)
        await ack(peer.ask, *got)
        seen |= set(bodies(got))
        await broker.clock.advance(1)
    await peer.ask(kinds_of("", 8))
    await peer.send(message(b"high", queue_id=7))
    await take(peer.ask, hidden_ms=1000)
    await broker.clock.advance_until(lambda: queues.look(BACK, 7).max)
    await peer.ask(UpdateBrokerConfig("useSeparateRetryQueue=false"))
    high = await take(peer.ask, hidden_ms=1000)
    assert [(one.body, one.queue_id, one.tries) for one in high] == [(b"high", 7, 1)]
    found = await wait_for_back(broker, peer)
    assert found == [b"high"]
    await peer.ask(DeleteTopic("T"))
    assert await peer.ask_code(GetTopicConfig(BACK)) == R.TOPIC_NOT_EXIST

"""Delayed and timed messages at a real broker: in time, never early, once, as RocketMQ stores them."""

from typing import Any

from rmq.log import record
from rmq.log.record import Record, bytes_to_properties
from rmq.model import DELAY_TOPIC
from rmq.net.commands import Send
from rmq.testing import LocalBroker, TestClock
from tests.broker.support import BORN, Peer


def delayed(body: bytes = b"body", topic: str = "T", queue_id: int = 0, **properties: Any) -> Send:
    text = record.properties_to_bytes({"UNIQ_KEY": body.hex(), **{name: str(value) for name, value in properties.items()}})
    draft = record.draft(topic, body, text, flag=7, born_timestamp=1000, born_host=BORN)
    return Send("p", topic, queue_id, draft)


async def stored(peer: Peer, topic: str, queue_id: int = 0) -> list[Record]:
    return list(record.iterate((await peer.pull(topic, 0, queue_id=queue_id)).messages))


async def arrived(
    peer: Peer, clock: TestClock, count: int = 1, topic: str = "T", queue_id: int = 0, step_s: float = 0.1
) -> list[Record]:
    """The messages there, once there are so many; the clock moves on."""
    while len(found := await stored(peer, topic, queue_id)) < count:
        await clock.advance(step_s)
    return found


async def test_a_level_waits_in_the_delay_topic_and_comes_in_time(broker: LocalBroker, peer: Peer) -> None:
    """A5, C13: stored as RocketMQ stores it (golden set s06): the answer names number and place in the delay topic."""
    before = broker.clock.wall_ms()
    [answer] = await peer.send(delayed(DELAY=1, queue_id=2, KEYS="k", TIMER_DELAY_MS=5, own="value"))
    assert answer[:2] == (2, 0)
    [waiting] = await stored(peer, DELAY_TOPIC, 0)
    properties = {"UNIQ_KEY": b"body".hex(), "DELAY": "1", "KEYS": "k", "own": "value", "REAL_TOPIC": "T", "REAL_QID": "2"}
    assert {name: said for name, said in bytes_to_properties(waiting.properties).items() if name != "__CRC32#"} == properties
    assert (waiting.physical_offset, waiting.queue_offset) == answer[2:0:-1]
    [found] = await arrived(peer, broker.clock, queue_id=2)
    assert before + 1000 <= waiting.store_timestamp + 1000 <= found.store_timestamp < waiting.store_timestamp + 3000
    assert (found.body, found.flag, found.born_timestamp, found.queue_offset) == (b"body", 7, 1000, 0)
    said = bytes_to_properties(found.properties)
    assert said.pop("RMQ_SRC").startswith(f"due {waiting.physical_offset} ")
    assert {name: one for name, one in said.items() if name != "__CRC32#"} == properties
    await broker.clock.advance(5)
    assert len(await stored(peer, "T", 2)) == 1

"""SQL92 filters at a broker: pull, POP, notification, waiting; what is refused, and how; nobody else waits for them."""

import asyncio

import pytest

from rmq.client import InvalidArgument, Message
from rmq.codes import ResponseCode as R
from rmq.log.records import record
from rmq.model import Subscription
from rmq.net.commands import CheckClient, GetMaxOffset, Pull, Send
from rmq.net.commands.pop import Notification
from rmq.testing import LocalBroker
from tests.broker.conftest import Connect
from tests.broker.popping import bodies as popped_bodies, take
from tests.broker.support import BORN, HELD, Peer, beat, bodies, send

SQL = {"expression_type": "SQL92"}


def numbered(number: int, topic: str = "T", body: bytes = b"") -> object:
    properties = record.properties_to_bytes({"a": str(number), "even": str(number % 2 == 0).lower()})
    draft = record.draft(topic, body or b"%d" % number, properties, born_timestamp=1000, born_host=BORN)
    return send(topic)._replace(records=draft)


@pytest.fixture
async def broker() -> LocalBroker:  # type: ignore[misc]
    async with LocalBroker(property_filter=True) as broker:
        await broker.create_topic("T", 1)
        yield broker


async def test_pulls_get_what_matches(peer: Peer) -> None:
    await peer.send(*(numbered(each) for each in range(20)))
    answer = await peer.pull("T", 0, subscription="a > 3 AND a < 7", **SQL)
    assert (bodies(answer), answer.next_begin_offset) == ([b"4", b"5", b"6"], 20)
    answer = await peer.pull("T", 0, subscription="a BETWEEN 3 AND 9", max_msg_nums=2, **SQL)
    assert (bodies(answer), answer.next_begin_offset) == ([b"3", b"4"], 5)
    answer = await peer.pull("T", 6, subscription="a < 3", **SQL)
    assert (answer.status, answer.next_begin_offset) == (R.PULL_RETRY_IMMEDIATELY, 20)


@pytest.mark.parametrize("each", [1, 2, 3, 7, 50, 999])
async def test_however_many_match_each_comes_once(peer: Peer, each: int) -> None:
    """A pull looks at few messages first; where those are not enough, at more."""

    def message(number: int) -> Send:
        said = record.properties_to_bytes({"m": str(number % each)})
        return send("T")._replace(records=record.draft("T", b"%d" % number, said, born_timestamp=1, born_host=BORN))

    await asyncio.gather(*(peer.send(message(number)) for number in range(1000)))
    got, at, pulls = [], 0, 0
    while at < 1000:
        answer = await peer.pull("T", at, subscription="m = 0", **SQL)
        assert answer.next_begin_offset > at
        got += bodies(answer)
        at, pulls = answer.next_begin_offset, pulls + 1
    wanted = [b"%d" % number for number in range(0, 1000, each)]
    assert sorted(got) == sorted(wanted)
    assert pulls <= 3 + 2 * len(wanted) // 32, "not one answer for each few"


async def test_the_heartbeat_tells_the_expression_too(peer: Peer) -> None:
    await peer.send(*(numbered(each) for each in range(4)))
    heartbeat = beat("c", "g")

    async def subscribe(expression: str, version: int) -> None:
        data = heartbeat.consumers[0]._replace(subscriptions=[Subscription("T", expression, "SQL92", version)])
        await peer.ask(heartbeat._replace(consumers=[data]))

    await subscribe("even = 'true'", 1)
    assert bodies(await peer.pull("T", 0, flag=0, sub_version=1)) == [b"0", b"2"]
    await subscribe("even = ", 2)
    assert await peer.refusal(Pull("g", "T", 0, 0, sys_flag=0, sub_version=2)) == R.FILTER_DATA_NOT_EXIST


async def test_wrong_expressions_are_refused(connect: Connect, peer: Peer) -> None:
    """Where they are told: in the pull, the pop, and when a client asks before its first heartbeat."""
    assert await peer.refusal(Pull("g", "T", 0, 0, subscription="a >", **SQL)) == R.SUBSCRIPTION_PARSE_FAILED
    assert await peer.refusal(CheckClient("c", "g", Subscription("T", "a >", "SQL92"))) == R.SUBSCRIPTION_PARSE_FAILED
    assert await peer.ask_code(CheckClient("c", "g", Subscription("T", "a > 3", "SQL92"))) == 0
    assert await peer.ask_code(CheckClient("c", "g", Subscription("T", "a || b", "TAG"))) == 0
    notification = Notification("g", "T", -1, 0, 0, exp_type="SQL92", exp="a >")
    assert await peer.refusal(notification) == R.SUBSCRIPTION_PARSE_FAILED
    async with LocalBroker() as other:
        await other.create_topic("T", 1)
        usual = await connect(other)
        assert await usual.refusal(CheckClient("c", "g", Subscription("T", "a > 3", "SQL92"))) == R.SYSTEM_ERROR
        assert await usual.refusal(Pull("g", "T", 0, 0, subscription="a > 3", **SQL)) == R.SYSTEM_ERROR
        await usual.send(numbered(3), numbered(4))
        assert popped_bodies(await take(usual.ask, exp_type="SQL92", exp="a > 3")) == [b"4"], "RocketMQ asks that of pulls only"


async def test_a_waiting_pull_waits_on_for_what_it_wants(broker: LocalBroker, peer: Peer, connect: Connect) -> None:
    """Messages that do not match wake nobody who asked; at its deadline it is told where to go on."""
    waiting = asyncio.create_task(peer.pull("T", 0, flag=HELD, subscription="a > 5", **SQL))
    sender = await connect(broker)
    await sender.ask(GetMaxOffset("T", 0))
    for each in range(4):
        await sender.send(numbered(each))
    assert not waiting.done()
    await sender.send(numbered(9))
    answer = await waiting
    assert (bodies(answer), answer.next_begin_offset) == ([b"9"], 5)
    waiting = asyncio.create_task(peer.pull("T", 5, flag=HELD, subscription="a > 5", **SQL))
    await sender.ask(GetMaxOffset("T", 0))
    await sender.send(numbered(1))
    await broker.clock.advance_until(waiting.done)
    answer = await waiting
    assert (answer.messages, answer.next_begin_offset) == (b"", 6)


async def test_pops_get_what_matches(peer: Peer, broker: LocalBroker) -> None:
    await peer.send(*(numbered(each) for each in range(20)))
    found = await take(peer.ask, exp_type="SQL92", exp="a > 15")
    assert sorted(popped_bodies(found)) == [b"16", b"17", b"18", b"19"]
    notification = Notification("h", "T", -1, 0, 0, exp_type="SQL92", exp="a > 15")
    assert (await peer.ask(notification)).has_msg


async def test_our_consumers(broker: LocalBroker) -> None:
    async with broker.client() as client:
        producer = client.producer()
        for each in range(10):
            await producer.send(Message("T", b"%d" % each, properties={"a": str(each)}))
        async with client.consumer("g", ["T"], sql="a > 6 OR a = 2", start="first") as consumer:
            got: list[bytes] = []
            while len(got) < 4:
                got += [each.body for each in await consumer.receive(timeout=20)]
        assert got == [b"2", b"7", b"8", b"9"]
        async with client.simple_consumer("h", ["T"], sql="a IN ('3', '4')", start="first") as simple:
            assert sorted(each.body for each in await simple.receive()) == [b"3", b"4"]
        with pytest.raises(InvalidArgument, match="SQL92"):
            client.consumer("g", ["T"], sql="a >")
        for take in (client.consumer, client.simple_consumer):
            with pytest.raises(InvalidArgument, match="brokers ignore 'LIKE' and all behind it"):
                take("g", ["T"], sql="a > 1 AND b LIKE 'x'")
            with pytest.raises(InvalidArgument, match=r"ignore '\+'"):
                take("g", ["T"], sql="a + 1 > 3")
        with pytest.raises(InvalidArgument, match="instead of tags"):
            client.consumer("g", {"T": "A"}, sql="a > 3")


async def test_steps_take_turns_with_the_loop(broker: LocalBroker, peer: Peer) -> None:
    """However many filter at once, between two steps the loop does something else."""
    await peer.send(*(numbered(each) for each in range(50)))
    turns = 0
    done = asyncio.Event()

    async def other() -> None:
        nonlocal turns
        while not done.is_set():
            turns += 1
            await asyncio.sleep(0)

    busy = asyncio.create_task(other())
    pulls = [peer.pull("T", 0, subscription=f"a > {each} AND a < 0", **SQL) for each in range(20)]
    steps = len(await asyncio.gather(*pulls))
    done.set()
    await busy
    assert turns >= 2 * steps

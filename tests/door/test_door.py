"""The door for RocketMQ's gRPC clients, asked request by request: what it answers, to odd and hostile ones too."""

import asyncio
import gc
import gzip
from collections.abc import AsyncIterator
from typing import Any

import pytest

from rmq.client.admin import calls as admin
from rmq.grpc.door import Door
from rmq.grpc.schema import v2
from rmq.log.records import record
from rmq.model import MAX_GROUP_LENGTH, MAX_TOPIC_LENGTH, GroupConfig
from rmq.net.commands import Send
from rmq.net.commands.pop import PollingInfo
from rmq.testing import LocalBroker
from tests.door.caller import Caller, door, handle_of, id_of, ms, publishing, subscribing

Code = v2.Code
LONG_TOPIC, LONG_GROUP = "t" * MAX_TOPIC_LENGTH, "g" * MAX_GROUP_LENGTH
CHECKS = {"transaction_timeout_ms": 1000, "transaction_check_interval_ms": 500}


@pytest.fixture
async def broker() -> AsyncIterator[LocalBroker]:
    async with LocalBroker(recall_messages=True, property_filter=True, auto_create_topic=False, **CHECKS) as broker:
        await broker.create_topic("T")
        yield broker


@pytest.fixture
async def caller(broker: LocalBroker) -> AsyncIterator[Caller]:
    async with door(broker) as port, Caller(port) as caller:
        yield caller


async def begun(caller: Caller, group: str, topic: str = "T", **others: Any) -> None:
    """The group is known from here on."""
    code, found = await caller.receive(group, topic, long_polling_timeout=ms(0), **others)
    assert (code, found) == (Code.MESSAGE_NOT_FOUND, [])


async def test_a_message_comes_as_it_was_sent(caller: Caller) -> None:
    await begun(caller, "g")
    told = {"message_id": "0123ABC", "trace_context": "tr", "born_host": "shop-7"}
    entry = await caller.send("T", b"body", tag="a", keys=["k1", "k2"], **told)
    assert (entry.status.code, entry.message_id) == (Code.OK, "0123ABC")
    code, (message,) = await caller.receive("g", "T")
    system = message.system_properties
    assert (code, message.topic.name, message.body) == (Code.OK, "T", b"body")
    assert (system.message_id, system.tag, [*system.keys], system.trace_context) == ("0123ABC", "a", ["k1", "k2"], "tr")
    assert (system.born_host, dict(message.user_properties)) == ("shop-7", {}), "not the proxy's own address"
    assert (system.body_digest.type, system.delivery_attempt) == (v2.DigestType.MD5, 1)
    assert system.body_digest.checksum == "841A2D689AD86BD1611447453C22C6FC"  # as RocketMQ's proxy 5.5.0 has it
    assert system.message_type == v2.MessageType.NORMAL
    assert await caller.ack("g", "T", message) == [Code.OK]
    assert await caller.ack("g", "T", message) == [Code.OK], "repeating is no error"


async def test_queues_are_reached_where_the_door_was_reached(caller: Caller) -> None:
    answer = await caller.ask("QueryRoute", topic=v2.Resource(name="T"), endpoints=caller.endpoints)
    assert answer.status.code == Code.OK
    assert [queue.id for queue in answer.message_queues] == [0, 1, 2, 3]
    for queue in answer.message_queues:
        assert (queue.broker.name, queue.broker.endpoints) == ("broker-a", caller.endpoints)
        assert queue.permission == v2.Permission.READ_WRITE
        assert v2.MessageType.FIFO in queue.accept_message_types
    asked = {"topic": v2.Resource(name="T"), "group": v2.Resource(name="g"), "endpoints": caller.endpoints}
    (assignment,) = (await caller.ask("QueryAssignment", **asked)).assignments
    assert (assignment.message_queue.broker.name, assignment.message_queue.id) == ("broker-a", -1)


async def test_a_topic_made_for_one_kind_says_it(broker: LocalBroker, caller: Caller) -> None:
    async with broker.client() as client:
        await admin.update_topic(client, "Fifo", broker=broker.address, attributes="+message.type=FIFO")
    answer = await caller.ask("QueryRoute", topic=v2.Resource(name="Fifo"), endpoints=caller.endpoints)
    assert {*answer.message_queues[0].accept_message_types} == {v2.MessageType.FIFO}


@pytest.mark.parametrize("expression", ["b", "a || b"])
async def test_only_what_a_filter_wants(caller: Caller, expression: str) -> None:
    wanted = {"filter_expression": v2.FilterExpression(type=v2.FilterType.TAG, expression=expression)}
    await begun(caller, "g", **wanted)
    for tag in ("c", "b", "c"):
        await caller.send("T", tag.encode(), tag=tag)
    _, found = await caller.receive("g", "T", **wanted)
    assert [message.body for message in found] == [b"b"]


async def test_sql_filters(caller: Caller) -> None:
    wanted = {"filter_expression": v2.FilterExpression(type=v2.FilterType.SQL, expression="TAGS = 'b'")}
    await begun(caller, "g", **wanted)
    for tag in ("c", "b"):
        await caller.send("T", tag.encode(), tag=tag)
    _, found = await caller.receive("g", "T", **wanted)
    assert [message.body for message in found] == [b"b"]


async def test_bodies_are_stored_inflated(caller: Caller) -> None:
    """RocketMQ's other clients know no gzip."""
    await begun(caller, "g")
    await caller.send("T", gzip.compress(b"x" * 10_000), body_encoding=v2.Encoding.GZIP)
    _, (message,) = await caller.receive("g", "T")
    assert (message.body, message.system_properties.body_encoding) == (b"x" * 10_000, v2.Encoding.IDENTITY)


async def test_messages_of_a_group_stay_in_order(broker: LocalBroker, caller: Caller) -> None:
    """And an ordered consumer group gets the next ones when these are acknowledged."""
    async with broker.client() as client:
        await admin.update_group(client, GroupConfig("g", consume_message_orderly=True), broker=broker.address)
    await begun(caller, "g")
    for number in range(6):
        entry = await caller.send("T", b"%d" % number, v2.MessageType.FIFO, message_group="order-7")
        assert entry.status.code == Code.OK
    _, found = await caller.receive("g", "T", batch_size=4)
    assert [message.body for message in found] == [b"0", b"1", b"2", b"3"]
    assert {message.system_properties.message_group for message in found} == {"order-7"}
    assert len({message.system_properties.queue_id for message in found}) == 1
    assert await caller.receive("g", "T", long_polling_timeout=ms(0)) == (Code.MESSAGE_NOT_FOUND, [])
    assert await caller.ack("g", "T", *found) == [Code.OK] * 4
    _, found = await caller.receive("g", "T")
    assert [message.body for message in found] == [b"4", b"5"]


async def test_a_time_of_its_own(broker: LocalBroker, caller: Caller) -> None:
    await begun(caller, "g")
    at = v2.SystemProperties()
    at.delivery_timestamp.FromMilliseconds(broker.clock.wall_ms() + 60_000)
    entry = await caller.send("T", b"later", v2.MessageType.DELAY, delivery_timestamp=at.delivery_timestamp)
    assert entry.recall_handle
    assert (await caller.receive("g", "T", long_polling_timeout=ms(0)))[1] == []
    await broker.clock.advance(61)
    _, (message,) = await caller.receive("g", "T")
    assert message.system_properties.message_type == v2.MessageType.DELAY
    assert abs(message.system_properties.delivery_timestamp.ToMilliseconds() - at.delivery_timestamp.ToMilliseconds()) < 1000


async def test_a_message_is_recalled(broker: LocalBroker, caller: Caller) -> None:
    await begun(caller, "g")
    at = v2.SystemProperties()
    at.delivery_timestamp.FromMilliseconds(broker.clock.wall_ms() + 60_000)
    entry = await caller.send("T", b"never", v2.MessageType.DELAY, delivery_timestamp=at.delivery_timestamp)
    answer = await caller.ask("RecallMessage", topic=v2.Resource(name="T"), recall_handle=entry.recall_handle)
    assert (answer.status.code, answer.message_id) == (Code.OK, entry.message_id)
    await broker.clock.advance(61)
    assert (await caller.receive("g", "T", long_polling_timeout=ms(500)))[1] == []
    assert (await caller.ask("RecallMessage", topic=v2.Resource(name="T"), recall_handle="?")).status.code == Code.BAD_REQUEST


async def ended(caller: Caller, topic: str, entry: Any, resolution: int, source: int = v2.TransactionSource.SOURCE_CLIENT) -> int:
    fields = {"message_id": entry.message_id, "transaction_id": entry.transaction_id}
    answer = await caller.ask("EndTransaction", topic=v2.Resource(name=topic), resolution=resolution, source=source, **fields)
    return int(answer.status.code)


async def test_transactions(caller: Caller) -> None:
    await begun(caller, "g")
    kind = v2.MessageType.TRANSACTION
    kept, dropped = await caller.send("T", b"kept", kind), await caller.send("T", b"dropped", kind)
    assert (await caller.receive("g", "T", long_polling_timeout=ms(0)))[1] == []
    assert await ended(caller, "T", dropped, v2.TransactionResolution.ROLLBACK) == Code.OK
    assert await ended(caller, "T", kept, v2.TransactionResolution.COMMIT) == Code.OK
    assert await ended(caller, "T", kept, v2.TransactionResolution.COMMIT) == Code.OK, "repeating is no error"
    assert await ended(caller, "T", kept, v2.TransactionResolution.ROLLBACK) == Code.BAD_REQUEST
    _, (message,) = await caller.receive("g", "T")
    assert (message.body, message.system_properties.message_type) == (b"kept", kind)


async def test_another_door_ends_what_one_began(broker: LocalBroker, caller: Caller) -> None:
    """One that was just started, each time: it knows no route yet."""
    await begun(caller, "g")
    kind = v2.MessageType.TRANSACTION
    kept, dropped = await caller.send("T", b"kept", kind), await caller.send("T", b"dropped", kind)
    async with door(broker) as port, Caller(port) as other:
        assert await ended(other, "T", dropped, v2.TransactionResolution.ROLLBACK) == Code.OK
    async with door(broker) as port, Caller(port) as other:
        assert await ended(other, "T", kept, v2.TransactionResolution.COMMIT) == Code.OK
    _, (message,) = await caller.receive("g", "T")
    asked = {"group": v2.Resource(name="g"), "topic": v2.Resource(name="T"), "message_id": id_of(message)}
    async with door(broker) as port, Caller(port) as other:
        asked |= {"receipt_handle": handle_of(message)}
        changed = await other.ask("ChangeInvisibleDuration", invisible_duration=ms(100), **asked)
        assert changed.status.code == Code.OK
    _, (message,) = await caller.receive("g", "T")
    async with door(broker) as port, Caller(port) as other:
        assert await other.ack("g", "T", message) == [Code.OK]
    await caller.send("T", b"hard")
    _, (message,) = await caller.receive("g", "T")
    async with door(broker) as port, Caller(port) as other:
        asked |= {"receipt_handle": handle_of(message), "message_id": id_of(message)}
        assert (await other.ask("ForwardMessageToDeadLetterQueue", **asked)).status.code == Code.OK
    await broker.clock.advance(120)
    assert (await caller.receive("g", "T", long_polling_timeout=ms(0)))[1] == []


async def test_a_stream_that_is_cancelled_leaves_nothing(caller: Caller) -> None:
    said: list[object] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: said.append(context))
    for _ in range(3):
        async with caller.telemetry(publishing("T")):
            pass
    before = {task for task in asyncio.all_tasks(loop) if "Stream.next" in repr(task)}
    async with asyncio.timeout(10):
        while {task for task in asyncio.all_tasks(loop) if "Stream.next" in repr(task)} & before:
            await asyncio.sleep(0)
    gc.collect()
    assert said == []


async def test_who_sends_there_is_asked_after_an_open_transaction(broker: LocalBroker, caller: Caller) -> None:
    await begun(caller, "g")
    async with caller.telemetry(publishing("T")) as (stream, answer):
        assert (answer.status.code, answer.settings.publishing.validate_message_type) == (Code.OK, True)
        await caller.send("T", b"open", v2.MessageType.TRANSACTION)
        question = (await asyncio.wait_for(stream.read(), 30)).recover_orphaned_transaction_command
        assert question.message.body == b"open"
        place = v2.SendResultEntry(message_id=id_of(question.message), transaction_id=question.transaction_id)
        commit, source = v2.TransactionResolution.COMMIT, v2.TransactionSource.SOURCE_SERVER_CHECK
        assert await ended(caller, "T", place, commit, source) == Code.OK
    _, found = await caller.receive("g", "T")
    assert [message.body for message in found] == [b"open"]


async def test_what_is_not_done_comes_again_and_at_last_is_a_dead_letter(broker: LocalBroker, caller: Caller) -> None:
    await begun(caller, "g")
    await caller.send("T", b"hard")
    _, (message,) = await caller.receive("g", "T")
    asked = {"group": v2.Resource(name="g"), "topic": v2.Resource(name="T"), "message_id": id_of(message)}
    changed = await caller.ask("ChangeInvisibleDuration", receipt_handle=handle_of(message), invisible_duration=ms(100), **asked)
    assert (changed.status.code, changed.receipt_handle != handle_of(message)) == (Code.OK, True)
    _, (message,) = await caller.receive("g", "T")
    assert (message.body, message.system_properties.delivery_attempt) == (b"hard", 2)
    buried = await caller.ask("ForwardMessageToDeadLetterQueue", receipt_handle=handle_of(message), **asked)
    assert buried.status.code == Code.OK
    await broker.clock.advance(120)
    assert (await caller.receive("g", "T", long_polling_timeout=ms(500)))[1] == []
    async with broker.client() as client, client.simple_consumer("looker", "%DLQ%g", start="first") as dead:
        (found,) = await dead.receive(wait_seconds=20)
        assert found.body == b"hard"


@pytest.mark.parametrize("ordered", [False, True])
async def test_a_message_stays_hidden_as_long_as_its_consumer_is_there(
    broker: LocalBroker, caller: Caller, ordered: bool
) -> None:
    async with broker.client() as client:
        await admin.update_group(client, GroupConfig("g", consume_message_orderly=ordered), broker=broker.address)
    await begun(caller, "g")
    async with caller.telemetry(subscribing("g", "T")) as (_, answer):
        assert (answer.settings.subscription.receive_batch_size, answer.settings.subscription.fifo) == (32, ordered)
        assert [pause.ToMilliseconds() for pause in answer.settings.backoff_policy.customized_backoff.next][:2] == [
            1_000,
            5_000,
        ]
        await caller.send("T", b"slow")
        _, (message,) = await caller.receive("g", "T", auto_renew=True)
        for _ in range(6):
            await broker.clock.advance(46)
            assert (await caller.receive("g", "T", auto_renew=True, long_polling_timeout=ms(200)))[1] == []
        assert await caller.ack("g", "T", message) == [Code.OK], "its first receipt stands for the last"
        await caller.send("T", b"left")
        _, (message,) = await caller.receive("g", "T", auto_renew=True)
    await broker.clock.advance(130)
    _, found = await caller.receive("g", "T")
    assert [one.body for one in found] == [b"left"]


async def test_what_came_for_a_client_that_went_comes_to_the_next(broker: LocalBroker, caller: Caller) -> None:
    await begun(caller, "g")
    call = caller.receiving("g", "T", long_polling_timeout=ms(15_000))
    waiting = asyncio.create_task(call.read())
    async with broker.client() as client:
        await client.session.routes.get("T")
        held = PollingInfo("g", "T", -1)
        while not (await client.session.leaders.request("broker-a", held, 5.0)).polling_num:  # type: ignore[union-attr]
            continue
    call.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await caller.send("T", b"mine")
    found: list[Any] = []
    while not found:
        _, found = await caller.receive("g", "T", long_polling_timeout=ms(1_000))
    assert [message.body for message in found] == [b"mine"]


async def test_a_body_that_cannot_be_read_keeps_nobody_from_the_others(broker: LocalBroker, caller: Caller) -> None:
    """Its sender said that it is compressed. It is hidden for a minute only: nobody has it who could acknowledge it."""
    await begun(caller, "g")
    async with broker.client() as client, caller.telemetry(subscribing("g", "T")):
        await client.session.routes.get("T")
        draft = record.draft("T", b"no zlib", b"", born_timestamp=1, born_host=record.host_bytes("127.0.0.1", 1), sys_flag=1)
        await client.session.leaders.request("broker-a", Send("p", "T", 0, draft), 5.0)
        await caller.send("T", b"good")
        found: list[Any] = []
        while not found:
            found += (await caller.receive("g", "T", auto_renew=True, long_polling_timeout=ms(1_000)))[1]
        assert [message.body for message in found] == [b"good"]
        async with client.simple_consumer("g", "T") as consumer:
            assert await consumer.receive(wait_seconds=0) == []
            await broker.clock.advance(46)
            await broker.clock.advance(46)
            assert [message.stored.body for message in await consumer.receive(wait_seconds=20)] == [b"no zlib"]


LATE = v2.SystemProperties().delivery_timestamp.__class__(seconds=1 << 40)


class Gone:
    """What gRPC tells of a call whose client will go in the middle."""

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return (("x-mq-client-id", "caller"),)

    def time_remaining(self) -> float:
        return 30.0


async def test_what_a_client_did_not_take_comes_again(broker: LocalBroker, caller: Caller) -> None:
    """It asked, and went while its messages were on the way: else they would be hidden for three hours."""
    await begun(caller, "g")
    async with broker.client() as client, caller.telemetry(subscribing("g", "T")):
        for number in range(4):
            await caller.send("T", b"%d" % number)
        other = Door(client)
        queue = v2.MessageQueue(topic=v2.Resource(name="T"), id=-1)
        request = v2.ReceiveMessageRequest(group=v2.Resource(name="g"), message_queue=queue, batch_size=32, auto_renew=True)
        answers = other.receive_message(request, Gone())
        assert [(await anext(answers)).status.code, (await anext(answers)).HasField("message")] == [Code.OK, True]
        await answers.aclose()  # type: ignore[attr-defined]
        found: set[bytes] = set()
        while len(found) < 4:
            _, some = await caller.receive("g", "T", auto_renew=True, long_polling_timeout=ms(1_000))
            found |= {message.body for message in some}
        await other.close()


WRONG = {
    "no such topic": (Code.TOPIC_NOT_FOUND, {"topic": "missing", "body": b"x"}),
    "no topic": (Code.BAD_REQUEST, {"topic": "", "body": b"x"}),
    "a topic that is too long": (Code.TOPIC_NOT_FOUND, {"topic": "t" * 128, "body": b"x"}),
    "no body": (Code.MESSAGE_BODY_EMPTY, {"topic": "T", "body": b""}),
    "a blank group": (Code.ILLEGAL_MESSAGE_GROUP, {"topic": "T", "body": b"x", "message_group": " "}),
    "two kinds at once": (
        Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
        {"topic": "T", "body": b"x", "message_group": "a", "kind": v2.MessageType.TRANSACTION},
    ),
    "no gzip": (Code.MESSAGE_CORRUPTED, {"topic": "T", "body": b"x", "body_encoding": v2.Encoding.GZIP}),
    "gzip that is cut off": (
        Code.MESSAGE_CORRUPTED,
        {"topic": "T", "body": gzip.compress(b"abc" * 100)[:-9], "body_encoding": v2.Encoding.GZIP},
    ),
    "a bomb": (
        Code.MESSAGE_BODY_TOO_LARGE,
        {"topic": "T", "body": gzip.compress(bytes(64 << 20)), "body_encoding": v2.Encoding.GZIP},
    ),
    "a body that is too large": (Code.BAD_REQUEST, {"topic": "T", "body": bytes((4 << 20) + 1)}),
    "an id of two words": (Code.BAD_REQUEST, {"topic": "T", "body": b"x", "message_id": "a b"}),
    "a transaction in a topic that is not there": (
        Code.TOPIC_NOT_FOUND,
        {"topic": "missing", "body": b"x", "kind": v2.MessageType.TRANSACTION},
    ),
    "a time in a thousand years": (Code.BAD_REQUEST, {"topic": "T", "body": b"x", "delivery_timestamp": LATE}),
    "a key with a mark": (Code.ILLEGAL_MESSAGE_KEY, {"topic": "T", "body": b"x", "keys": ["a\x01b"]}),
}


@pytest.mark.parametrize("what", WRONG)
async def test_messages_that_are_refused(caller: Caller, what: str) -> None:
    code, fields = WRONG[what]
    assert (await caller.send(**fields)).status.code == code


async def test_a_reserved_property_is_refused(caller: Caller) -> None:
    message = v2.Message(topic=v2.Resource(name="T"), body=b"x", user_properties={"UNIQ_KEY": "stolen"})
    answer = await caller.ask("SendMessage", messages=[message])
    assert answer.status.code == answer.entries[0].status.code == Code.ILLEGAL_MESSAGE_PROPERTY_KEY
    good = v2.Message(topic=v2.Resource(name="T"), body=b"x")
    assert (await caller.ask("SendMessage", messages=[message, good])).status.code == Code.MULTIPLE_RESULTS
    assert (await caller.ask("SendMessage")).status.code == Code.BAD_REQUEST


HUGE = str(1 << 63)


@pytest.mark.parametrize(
    "handle",
    ["", "x", "0 0", "0 " * 9, "1 2 3 4 5 6 broker-z 8 9", "a" * 10_000, f"1 2 3 4 5 6 broker-a 8 {HUGE}", "9" * 5000],
)
async def test_receipts_that_are_none(caller: Caller, handle: str) -> None:
    asked = {"group": v2.Resource(name="g"), "topic": v2.Resource(name="T")}
    entry = v2.AckMessageEntry(message_id="i", receipt_handle=handle)
    codes = {(await caller.ask("AckMessage", entries=[entry], **asked)).status.code}
    asked |= {"receipt_handle": handle}
    codes.add((await caller.ask("ChangeInvisibleDuration", invisible_duration=ms(1000), **asked)).status.code)
    codes.add((await caller.ask("ForwardMessageToDeadLetterQueue", **asked)).status.code)
    assert codes <= {Code.INVALID_RECEIPT_HANDLE, Code.HA_NOT_AVAILABLE}


async def test_receives_that_are_refused(caller: Caller) -> None:
    assert (await caller.receive("g", "missing"))[0] == Code.TOPIC_NOT_FOUND
    for group in ("", "a b", LONG_GROUP + "g"):
        assert (await caller.receive(group, "T"))[0] == Code.ILLEGAL_CONSUMER_GROUP
    assert (await caller.receive("g", "T", batch_size=0))[0] == Code.BAD_REQUEST
    for hidden in (ms(9_999), ms(0), None):  # the last two were hidden for as long as a push consumer's
        assert (await caller.receive("g", "T", invisible_duration=hidden))[0] == Code.ILLEGAL_INVISIBLE_TIME
    wrong = v2.FilterExpression(type=v2.FilterType.SQL, expression="a > ")
    assert (await caller.receive("g", "T", filter_expression=wrong))[0] in (Code.BAD_REQUEST, Code.ILLEGAL_FILTER_EXPRESSION)


@pytest.mark.parametrize("text", ["", "x", "1 2 broker-z id", "1 2 broker-a", "-1 -1 broker-a id", f"{HUGE} 1 broker-a id"])
async def test_transactions_that_are_none(caller: Caller, text: str) -> None:
    entry = v2.SendResultEntry(message_id="i", transaction_id=text)
    assert await ended(caller, "T", entry, v2.TransactionResolution.COMMIT) in (
        Code.INVALID_TRANSACTION_ID,
        Code.HA_NOT_AVAILABLE,
        Code.BAD_REQUEST,
        Code.INTERNAL_SERVER_ERROR,
    )


async def test_a_group_that_is_tried_for_ever(broker: LocalBroker, caller: Caller) -> None:
    """One try more than that is no number of the answer: each stream of its consumers ended at once, without a word."""
    for_ever = 2**31 - 1
    async with broker.client() as client:
        await admin.update_group(client, GroupConfig("g", retry_max_times=for_ever), broker=broker.address)
    async with caller.telemetry(subscribing("g", "T")) as (_, answer):
        assert (answer.status.code, answer.settings.backoff_policy.max_attempts) == (Code.OK, for_ever)


async def test_settings_that_say_nothing(caller: Caller) -> None:
    async with caller.telemetry(v2.Settings()) as (_, answer):
        assert answer.status.code == Code.UNRECOGNIZED_CLIENT_TYPE
    async with caller.telemetry(publishing("missing")) as (_, answer):
        assert answer.status.code == Code.TOPIC_NOT_FOUND


async def test_the_longest_names(broker: LocalBroker, caller: Caller) -> None:
    await broker.create_topic(LONG_TOPIC)
    async with caller.telemetry(publishing(LONG_TOPIC)) as (stream, _):
        await begun(caller, LONG_GROUP, LONG_TOPIC)
        entry = await caller.send(LONG_TOPIC, b"x", v2.MessageType.TRANSACTION)
        question = (await asyncio.wait_for(stream.read(), 30)).recover_orphaned_transaction_command
        assert question.message.body == b"x"
        assert await ended(caller, LONG_TOPIC, entry, v2.TransactionResolution.COMMIT) == Code.OK
        _, (message,) = await caller.receive(LONG_GROUP, LONG_TOPIC)
        assert await caller.ack(LONG_GROUP, LONG_TOPIC, message) == [Code.OK]


async def test_a_namespace_is_a_part_of_the_name(broker: LocalBroker, caller: Caller) -> None:
    await broker.create_topic("shop%orders")
    topic = v2.Resource(resource_namespace="shop", name="orders")
    await begun(caller, "g", "shop%orders")
    answer = await caller.ask("SendMessage", messages=[v2.Message(topic=topic, body=b"x")])
    assert answer.status.code == Code.OK
    _, (message,) = await caller.receive("g", "shop%orders")
    assert message.topic == topic


async def test_a_topic_that_is_deleted_while_somebody_waits(broker: LocalBroker, caller: Caller) -> None:
    async with caller.telemetry(publishing("T")):
        await begun(caller, "g")
        waiting = asyncio.create_task(caller.receive("g", "T", long_polling_timeout=ms(10_000)))
        async with broker.client() as client:
            await admin.delete_topic(client, "T", broker=broker.address)
        code, found = await waiting
        assert found == []
        assert code in (Code.MESSAGE_NOT_FOUND, Code.TOPIC_NOT_FOUND)
    assert (await caller.send("T", b"x")).status.code == Code.TOPIC_NOT_FOUND


async def test_bytes_that_are_no_grpc_disturb_nobody(broker: LocalBroker) -> None:
    async with door(broker) as port, Caller(port) as caller:
        for hello in (b"GET / HTTP/1.1\r\n\r\n", bytes(1000), b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(range(256)) * 8):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(hello)
            await writer.drain()
            writer.close()
        assert (await caller.send("T", b"x")).status.code == Code.OK

"""The door as a producer for its clients: the brokers ask it after transactions of each topic that one of them sends to."""

import asyncio

from rmq.client import Client
from rmq.client.admin.one import producers
from rmq.grpc.schema import v2
from rmq.grpc.seen import Seen
from rmq.grpc.service import Listening, served
from rmq.grpc.visitors import OneForAll
from rmq.testing import LocalBroker, until
from tests.door.caller import HERE, Caller, door, publishing
from tests.relaying import relay

OK = v2.Code.OK
CHECKS = {"transaction_timeout_ms": 1000, "transaction_check_interval_ms": 500}


class Gate(asyncio.Event):
    """`came`: somebody waits for it, or has."""

    def __init__(self) -> None:
        super().__init__()
        self.came = False

    async def wait(self) -> bool:  # type: ignore[override]
        self.came = not self.is_set()
        return await super().wait()


async def test_a_client_says_what_it_sends_to_while_the_only_other_one_goes() -> None:
    """A nameserver answers slowly just then. The proxy was no producer of T any more: nobody was asked after its transactions."""
    gate = Gate()
    gate.set()
    async with LocalBroker(**CHECKS) as broker, relay(broker.nameserver, goes_on=gate) as nameserver:
        await broker.create_topic("T")
        await broker.create_topic("U")
        async with Client(nameserver, clock=broker.clock) as client:
            inside = OneForAll(client)
            (door,) = inside
            async with served(inside, Listening(HERE, 0), Seen(client, inside, "door")) as port:
                async with Caller(port, "b") as b, asyncio.TaskGroup() as tasks:
                    async with Caller(port, "a") as a, a.telemetry(publishing("T")) as (_, answer):
                        assert answer.status.code == OK
                        assert (await a.send("T", b"open", v2.MessageType.TRANSACTION)).status.code == OK
                        gate.clear()
                        asked = tasks.create_task(first_question(b))
                        await until(lambda: gate.came)
                    await until(lambda: door.streams == 1)
                    gate.set()
                    assert (await asyncio.wait_for(asked, 30)).message.body == b"open"
                await until(lambda: door.streams == 0)


async def first_question(caller: Caller) -> object:
    async with caller.telemetry(publishing("T", "U")) as (stream, answer):
        assert answer.status.code == OK
        return (await stream.read()).recover_orphaned_transaction_command


async def test_a_client_that_goes_before_its_settings_are_answered_leaves_nothing() -> None:
    gate = Gate()
    gate.set()
    async with LocalBroker(**CHECKS) as broker, relay(broker.nameserver, goes_on=gate) as nameserver:
        await broker.create_topic("T")
        await broker.create_topic("U")
        async with Client(nameserver, clock=broker.clock) as client, broker.client() as looking:
            inside = OneForAll(client)
            (door,) = inside
            async with served(inside, Listening(HERE, 0), Seen(client, inside, "door")) as port, Caller(port) as caller:
                assert (await caller.send("T", b"x")).status.code == OK
                gate.clear()
                going = asyncio.create_task(first_question(caller))
                await until(lambda: gate.came)
                going.cancel()
                await until(lambda: door.streams == 0)
                gate.set()
                async with caller.telemetry(publishing("U")):
                    pass
                await until(lambda: door.streams == 0)
                async with asyncio.timeout(20):
                    while {"T", "U"} & {*await producers(looking, broker.address)}:
                        continue


async def test_a_producer_that_names_a_topic_which_does_not_exist() -> None:
    """It got no settings, and was not asked after transactions of its other topics."""
    async with LocalBroker(**CHECKS) as broker, door(broker) as port, Caller(port) as caller:
        await broker.create_topic("T")
        async with caller.telemetry(publishing("missing", "T")) as (stream, answer):
            assert (answer.status.code, answer.settings.publishing.validate_message_type) == (OK, True)
            assert (await caller.send("T", b"open", v2.MessageType.TRANSACTION)).status.code == OK
            asked = asyncio.create_task(stream.read())
            async with asyncio.timeout(20):
                while not asked.done():
                    await broker.clock.advance(0.5)
            assert asked.result().recover_orphaned_transaction_command.message.body == b"open"
        async with caller.telemetry(publishing("missing", "missing too")) as (_, answer):
            assert answer.status.code == v2.Code.TOPIC_NOT_FOUND


async def test_who_sends_halves_and_is_never_asked_leaves_no_producer() -> None:
    """It has no stream, or its stream says nothing of that topic. Each topic left a producer at the proxy for good, the deleted
    ones too, and behind a thousand of them brokers took no further one."""
    async with LocalBroker(**CHECKS) as broker, broker.client() as client:
        inside = OneForAll(client)
        async with served(inside, Listening(HERE, 0), Seen(client, inside, "door")) as port, Caller(port) as caller:
            await broker.create_topic("T")
            await broker.create_topic("U")
            assert (await caller.send("U", b"half", v2.MessageType.TRANSACTION)).status.code == OK
            async with caller.telemetry(publishing("T")):
                async with asyncio.timeout(10):
                    while "T" not in (known := await producers(client, broker.address)):
                        await broker.clock.advance(0.1)
                assert "U" not in known
            missing = await caller.send("V", b"half", v2.MessageType.TRANSACTION)
            assert missing.status.code == v2.Code.TOPIC_NOT_FOUND

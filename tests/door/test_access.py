"""A door is one user of the cluster: its clients may do what that one may."""

from rmq.grpc.schema import v2
from rmq.net.commands import UpdateTopic
from rmq.net.commands.access import PolicyEntry
from rmq.testing import LocalBroker
from tests.broker.test_access import SETTINGS, login, make_user, nameserver_permits
from tests.door.caller import Caller, door, ms

Code = v2.Code


async def test_clients_may_do_what_the_doors_user_may() -> None:
    async with LocalBroker(**SETTINGS) as broker:
        root = await login(broker, "root", "root-secret")
        for topic in ("T", "other"):
            await root.ask(UpdateTopic(topic))
        rights = ["Pub", "Sub"]
        await make_user(root, "grpc", PolicyEntry("Topic:T", rights), PolicyEntry("Group:g", rights))
        await broker.clock.advance_until(lambda: nameserver_permits(broker, "grpc"))
        async with door(broker, "grpc", "grpc-secret") as port, Caller(port) as caller:
            assert (await caller.receive("g", "T", long_polling_timeout=ms(0)))[0] == Code.MESSAGE_NOT_FOUND
            assert (await caller.send("T", b"x")).status.code == Code.OK
            _, (message,) = await caller.receive("g", "T")
            assert await caller.ack("g", "T", message) == [Code.OK]
            assert (await caller.send("other", b"x")).status.code == Code.FORBIDDEN
            assert (await caller.receive("g", "other"))[0] == Code.FORBIDDEN
            assert (await caller.receive("another", "T"))[0] == Code.FORBIDDEN
        await root.close()


async def test_a_door_with_a_wrong_password_says_so() -> None:
    async with LocalBroker(**SETTINGS) as broker, door(broker, "root", "wrong") as port, Caller(port) as caller:
        answer = await caller.send("T", b"x")
        assert answer.status.code != Code.OK
        assert "wrong password or unknown user" in answer.status.message

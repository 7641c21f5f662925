"""Members of a group: which queues each holds, who is slow, who wants something else; and a message given to one of them."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from rmq import cli
from rmq.client import Client, Message, RetryLater
from rmq.client.admin import calls
from rmq.commands.shared import exits
from rmq.dashboard.members import differing
from rmq.model import Subscription, TopicConfig
from rmq.net.commands import GetRoute, RegisterBroker, UpdateTopic
from rmq.net.commands.reports import RunningInfo
from rmq.testing import LocalBroker, until
from tests.broker.groups import GROUP, LocalGroup
from tests.broker.support import Peer
from tests.dashboard.test_pages import fail_all, until_shown
from tests.dashboard.visitor import visiting
from tests.relaying import relay


async def joined(
    stack: AsyncExitStack, broker: LocalBroker, name: str, handle: Callable[[Any], Awaitable[None]], tags: str
) -> Client:
    """A member of shipping with a client of its own, working until the stack ends."""
    client = await stack.enter_async_context(broker.client(instance=name))
    consumer = await stack.enter_async_context(client.consumer("shipping", {"Orders": tags}, start="first"))
    working = asyncio.create_task(consumer.run(handle))
    stack.callback(working.cancel)
    return client


async def test_a_message_is_shown_while_nobody_leads(tmp_path: Path) -> None:
    """The node that is left answers all that the page asks; the page said that there is no leader, and nothing else."""
    async with LocalGroup(tmp_path / "nodes") as group:
        peer = await group.connect(await group.leader())
        await peer.ask(UpdateTopic("Orders", read_queue_nums=1, write_queue_nums=1))
        async with group.client() as client:
            await client.producer().send(Message("Orders", b"still there"))
        await peer.close()
        await group.level()
        nameserver = await Peer.connect(group.nameserver)
        await group.stop(await group.leader(), (await group.followers())[0])
        while any(0 in each.addresses for each in (await nameserver.ask(GetRoute("Orders"))).brokers):
            await asyncio.sleep(0)
        async with visiting(group.nameserver, tmp_path) as visitor:
            assert "still there" in await visitor.get("/message", topic="Orders", broker=GROUP, queue="0", offset="0")
        await nameserver.close()


@pytest.mark.parametrize("how", ["page", "command"])
async def test_what_a_group_that_pops_has_failed_goes_with_it(how: str, tmp_path: Path) -> None:
    """Its retries are in a topic of their own for each topic: they stayed, and came to a group of that name that was made later.
    Those of another group stay, also where this one's could have that name."""
    async with LocalBroker() as broker, broker.client() as client, visiting(broker.nameserver, tmp_path) as visitor:
        await broker.create_topic("x_T")
        await broker.create_topic("T", 1)
        for group in ("g", "g_x"):
            async with client.simple_consumer(group, "T", start="first") as consumer:
                await client.producer().send(Message("T", b"x"))
                for message in await consumer.receive(1, wait_seconds=5):
                    await consumer.change_invisible(message, 10)
        failed = {"%RETRY%g_T", "%RETRY%g_x_T"}
        async with asyncio.timeout(30):
            while failed - {*await calls.topic_list(client)}:
                await broker.clock.advance(1)
        if how == "page":
            await visitor.get("/groups")
            assert "Group g is deleted" in await visitor.post("/group/delete", name="g", typed="g")
        else:
            arguments = ["admin", "deleteSubGroup", "-n", broker.nameserver, "-c", "DefaultCluster", "-g", "g"]
            assert await asyncio.to_thread(cli.run, arguments) == exits.OK
        assert failed & {*await calls.topic_list(client)} == {"%RETRY%g_x_T"}


async def test_the_slow_member_its_queues_and_one_that_wants_something_else(tmp_path: Path) -> None:
    done: list[bytes] = []
    held = asyncio.Event()

    async def quick(message: Any) -> None:
        done.append(message.body)

    async def slow(_message: Any) -> None:
        await held.wait()

    async with AsyncExitStack() as stack:
        broker = await stack.enter_async_context(LocalBroker())
        visitor = await stack.enter_async_context(visiting(broker.nameserver, tmp_path))
        await broker.create_topic("Orders", 4)
        first = await joined(stack, broker, "quick", quick, "*")
        await until_shown(visitor, "/group?name=shipping", first.client_id)
        second = await joined(stack, broker, "slow", slow, "red || blue")
        stack.callback(held.set)
        await until_shown(visitor, "/group?name=shipping", f"{second.client_id} 2 0", f"{first.client_id} 3 0")
        assert "Its members want different things of Orders" in visitor.text
        assert f"* : {first.client_id} blue || red : {second.client_id}" in visitor.text
        async with first.producer() as producer:
            for number in range(40):
                await producer.send(Message("Orders", b"%d" % number, "red", [f"order-{number}"]))
        await until(lambda: len(done) == 20)
        await until_shown(visitor, "/group?name=shipping", f"{second.client_id} 2 20", f"{first.client_id} 3 0")
        assert visitor.text.index(f"{second.client_id} 2 20") < visitor.text.index(f"{first.client_id} 3 0"), "the slow one first"
        assert f"in the queues of {second.client_id}: 20 of 20. It has handled nothing" in visitor.text
        queues = re.findall(r"broker-a (\d) 10 (\d+) (\d+) (\S+) ", visitor.text)
        assert {(waiting, holder) for _, _, waiting, holder in queues} == {("0", first.client_id), ("10", second.client_id)}

        await until_shown(visitor, "/messages?topic=Orders&word=order-7", "Consume it again")
        form = dict(re.findall(r'name="(group|topic|broker|queue|offset)" value="([^"]*)"', visitor.page))
        holder = {queue: who for queue, _, _, who in queues}[form["queue"]]
        await until_shown(visitor, "/messages?topic=Orders&word=order-7", f"{holder} -")
        assert "handled it in" in await visitor.post("/message/again", **form, member=first.client_id)
        assert done.count(b"7") >= 1
        assert len(done) == 21
        assert "Refused" in await visitor.post("/message/again", **form, member="nobody")


async def test_a_chosen_member_that_fails_says_why(tmp_path: Path) -> None:
    async def fail(_message: Any) -> None:
        raise RetryLater(60)

    async with AsyncExitStack() as stack:
        broker = await stack.enter_async_context(LocalBroker())
        visitor = await stack.enter_async_context(visiting(broker.nameserver, tmp_path))
        member = await joined(stack, broker, "failing", fail, "*")
        async with member.producer() as producer:
            await producer.send(Message("Orders", b"1", keys=["order-1"]))
        await until_shown(visitor, "/messages?topic=Orders&word=order-1", member.client_id)
        form = dict(re.findall(r'name="(group|topic|broker|queue|offset)" value="([^"]*)"', visitor.page))
        assert "failed it, to try later" in await visitor.post("/message/again", **form, member=member.client_id)


def test_who_wants_something_else_of_a_topic() -> None:
    """The order of tags is none; a retry topic is each group's own."""
    told = {
        "a": RunningInfo(subscriptions=[Subscription("T", "x || y"), Subscription("%RETRY%g", "*"), Subscription("U", "*")]),
        "b": RunningInfo(subscriptions=[Subscription("T", "y||x"), Subscription("U", "a > 1", "SQL92")]),
        "c": RunningInfo(subscriptions=[Subscription("T", "y || x")]),
    }
    assert differing(told) == {"U": {"*": ["a"], "SQL92: a > 1": ["b"], "nothing": ["c"]}}


async def test_dead_letters_are_exported_beside_a_broker_that_stands_still(tmp_path: Path) -> None:
    """Whichever comes first: nothing was exported."""
    async with LocalBroker() as broker, LocalBroker() as other, broker.client() as client:
        await client.producer().send(Message("Orders", b"the letter"))
        await fail_all(client, "g", "Orders", 1)
        async with relay(other.address, goes_on=asyncio.Event()) as still:
            registered = await Peer.connect(broker.nameserver)
            await registered.ask(RegisterBroker("C", "0-other", 0, still, 0, [TopicConfig("%DLQ%g", 1, 1)]))
            async with visiting(broker.nameserver, tmp_path, patience_s=0.5) as visitor:
                answer = await visitor.http.get("/dead/export", params={"group": "g", "form": "csv"})
                assert "the letter" in answer.text
                assert f"without what 0-other has: {still}" in answer.text
            await registered.close()

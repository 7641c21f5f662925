"""`rmq admin` shows lite topics: how many, who wants them, who is behind."""

import asyncio

from click.testing import CliRunner

from rmq.cli import cli
from rmq.model import TopicConfig
from rmq.net.commands import RegisterBroker
from rmq.testing import LocalBroker
from tests.broker.litepops import ack_lites, bound, declare, take_lites
from tests.broker.support import Peer
from tests.broker.test_lights import LIGHT
from tests.broker.test_lites import parent, to_lite
from tests.relaying import relay


async def test_an_administrator_looks_at_lite_topics() -> None:
    async with LocalBroker(**LIGHT) as broker:

        async def rmq(*words: str) -> str:
            command = ["admin", *words, "-n", broker.nameserver]
            done = await asyncio.to_thread(CliRunner().invoke, cli, command)
            assert done.exit_code == 0, done.output
            return " ".join(done.output.split())

        peer = await Peer.connect(broker.address)
        await peer.ask(parent(more=",+lite.topic.expiration=60"))
        await peer.ask(bound())
        await peer.send(*(to_lite("a", b"%d" % number) for number in range(4)), to_lite("b"))
        await peer.ask(declare("a", "b"))
        await ack_lites(peer.ask, *(await take_lites(peer.ask))[:1])
        while "P" not in await rmq("topicList"):
            await asyncio.sleep(0)
        shown = await rmq("getBrokerLiteInfo", "-c", "DefaultCluster", "-d")
        assert f"{broker.address} 2 20000 2 1 2 2 1 1" in shown
        assert "P: its lite topics live for 60 minutes; groups: g" in shown
        assert "60 2 g" in await rmq("getParentTopicInfo", "-p", "P")
        shown = await rmq("getLiteTopicInfo", "-p", "P", "-l", "a", "-s")
        assert " 0 4 " in shown
        assert "c of g" in shown
        assert "%LMQ%$P$a %LMQ%$P$b" in await rmq("getLiteClientInfo", "-p", "P", "-g", "g", "-c", "c", "-s")
        shown = await rmq("getLiteGroupInfo", "-p", "P", "-g", "g")
        assert " a 3 " in shown
        assert " b 1 " in shown
        assert "4 1 3" in await rmq("getLiteGroupInfo", "-p", "P", "-g", "g", "-l", "a")
        assert "dispatched" in await rmq("triggerLiteDispatch", "-p", "P", "-g", "g")
        async with relay(broker.address, goes_on=asyncio.Event()) as still:
            registered = await Peer.connect(broker.nameserver)
            await registered.ask(RegisterBroker("DefaultCluster", "other", 0, still, 0, [TopicConfig("P", 1, 1)]))
            for command, told in {
                "getBrokerLiteInfo -c DefaultCluster": broker.address,
                "getParentTopicInfo -p P": "60 2 g",
                "getLiteTopicInfo -p P -l a": " 0 4 ",
                "getLiteClientInfo -p P -g g -c c": "broker-a 2",
                "getLiteGroupInfo -p P -g g": " a 3 ",
                "getLiteGroupInfo -p P -g g -l a": "4 1 3",
            }.items():
                shown = await rmq(*command.split(), "--timeout", "0.5")
                assert told in shown, command
                assert f"{still} cannot be reached" in shown.partition("incomplete: ")[2]
            await registered.close()
        await peer.close()

"""Elected groups of one and of five nodes over real sockets."""

import asyncio
from pathlib import Path

from click.testing import CliRunner

from rmq.cli import cli
from rmq.client.admin import groups
from rmq.errors import Unknown
from rmq.net.commands import UpdateTopic
from tests.broker.groups import GROUP, LocalGroup
from tests.broker.support import bodies, send


async def test_five_nodes_go_on_without_two(tmp_path: Path) -> None:
    """R6: three of five are enough, the leader not among them; the two that were away get what they missed."""
    async with LocalGroup(tmp_path, count=5) as group:
        first = await group.leader()
        leader = await group.connect(first)
        await leader.ask(UpdateTopic("T", read_queue_nums=1, write_queue_nums=1))
        await leader.send(send("T", b"by the first"))
        away = (first, (await group.followers())[0])
        await group.stop(*away)
        leader = await group.connect(await group.leader(but=first))
        assert (await leader.send(send("T", b"by another")))[0].queue_offset == 1
        await group.start(*away)
        await group.level()
        for name in group.nodes:
            assert bodies(await (await group.connect(name)).pull("T", 0)) == [b"by the first", b"by another"]


async def test_a_group_of_one_is_its_own_majority(tmp_path: Path) -> None:
    async with LocalGroup(tmp_path, count=1) as group:
        leader = await group.connect(await group.leader())
        await leader.ask(UpdateTopic("T", read_queue_nums=1, write_queue_nums=1))
        await leader.send(send("T", b"good"))
        await group.stop("n0")
        await group.start("n0")
        leader = await group.connect(await group.leader())
        assert bodies(await leader.pull("T", 0)) == [b"good"]
        assert (await leader.send(send("T")))[0].queue_offset == 1


async def test_who_makes_a_group_of_two_is_warned(tmp_path: Path) -> None:
    """It takes messages only while both are up. The command said nothing."""
    async with LocalGroup(tmp_path, count=1, spare=2) as group:
        for name, is_warned in (("n1", True), ("n2", False)):
            await group.start(name)
            words = ["admin", "addPeer", "-n", group.nameserver, "-b", GROUP, f"{name}-{group.peer_address(name)}"]
            added = await asyncio.to_thread(CliRunner().invoke, cli, words)
            assert added.exit_code == 0, added.output
            assert ("of two nodes both are needed" in added.stderr) == is_warned


async def test_who_waits_for_a_node_that_is_not_there_is_told_what_to_do(tmp_path: Path) -> None:
    """The command was silent for up to an hour; the others wait for that node also when the command has ended."""
    async with LocalGroup(tmp_path, count=1) as group:
        add = ["admin", "addPeer", "-n", group.nameserver, "-b", GROUP, "n7-127.0.0.1:1", "--timeout", "3"]
        waited = await asyncio.to_thread(CliRunner().invoke, cli, add, standalone_mode=False)
        assert isinstance(waited.exception, Unknown)
        assert f"`rmq admin removePeer -b {GROUP} n7` takes it back" in waited.stderr
        async with group.client() as client:
            await groups.remove_peer(client, GROUP, "n7", 5)


async def test_the_largest_message_is_replicated(tmp_path: Path) -> None:
    """A record of 4 MiB is more than what is fetched at once; it took the group its leader."""
    async with LocalGroup(tmp_path) as group:
        leader = await group.connect(await group.leader())
        await leader.ask(UpdateTopic("T", read_queue_nums=1, write_queue_nums=1))
        await leader.send(send("T", bytes(4 * 1024 * 1024)))
        await group.level()


async def test_a_leader_that_no_file_names_is_taken_out(tmp_path: Path) -> None:
    """Story 60: the others, which knew its address from the list that it was taken out of, asked it no more: nobody told it that
    this was committed, the group had no leader for two seconds, and `removePeer` ended with "outcome unknown"."""
    async with LocalGroup(tmp_path, count=3, spare=1) as group, group.client() as client:
        await group.leader()
        await group.start("n3")
        await groups.add_peer(client, GROUP, "n3", group.peer_address("n3"), 20)
        await groups.hand_over(client, GROUP, "n3", 20)
        await groups.remove_peer(client, GROUP, "n3", 20)
        assert await group.leader(but="n3") != "n3"

"""Leadership is handed over, and whoever asked for it is told who leads then."""

import asyncio
import contextlib
from pathlib import Path

import pytest

from rmq.client import Client
from rmq.client.admin import groups
from rmq.errors import Refusal, RmqError
from tests.broker.groups import GROUP, LocalGroup
from tests.broker.pair import Pair
from tests.relaying import relay


async def test_the_next_leader_is_told(tmp_path: Path) -> None:
    async with LocalGroup(tmp_path) as group, group.client() as client:
        first, wanted = await group.leader(), (await group.followers())[0]
        assert await groups.hand_over(client, GROUP, wanted, 30.0) == (group.address(first), wanted)
        was, leads = await groups.hand_over(client, group.address(first), "", 30.0)
        assert (was, leads != wanted) == (group.address(wanted), True)
        assert leads == await group.leader()


async def test_a_node_that_hears_nothing_any_more_does_not_lead(tmp_path: Path) -> None:
    """It was there when it was added, and it still fetches. The command said success."""
    hears = asyncio.Event()
    hears.set()
    async with LocalGroup(tmp_path, spare=1) as group, group.client() as client:
        await group.start("n3")
        async with relay(group.peer_address("n3"), goes_on=hears) as address:
            await groups.add_peer(client, GROUP, "n3", address, 30.0)
            hears.clear()
            with pytest.raises(RmqError, match="leads, not n3"):
                await groups.hand_over(client, GROUP, "n3", 30.0)
            hears.set()


async def test_a_slave_that_becomes_the_master_is_told(pair: Pair) -> None:
    await pair.start(0, "ASYNC_MASTER")
    await pair.start(1, "SLAVE")
    await pair.level()
    async with Client(pair.nameserver.address, clock=pair.clock) as client:
        master = pair.nodes[0].address
        async with asyncio.timeout(30):
            while True:
                with contextlib.suppress(Refusal):  # until the slave's disk is proven
                    assert await groups.hand_over(client, master, "n1", 30.0) == (master, "n1")
                    return
                await pair.clock.advance(0.1)

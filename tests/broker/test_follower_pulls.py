"""Pulls at a node that does not lead any more: they may read what is there, and wait elsewhere."""

import asyncio
from pathlib import Path

import pytest

from rmq.codes import ResponseCode
from rmq.errors import Refusal
from rmq.net.commands import Pull, PullAnswer, UpdateTopic
from tests.broker.groups import LocalGroup
from tests.broker.support import send


async def test_who_takes_a_follower_for_the_leader_does_not_wait_there(tmp_path: Path) -> None:
    """L1: a leader that was cut off from its group, but not from its consumers, answered their pulls as any follower does. New
    messages never came there, and they waited half a minute for them, until they asked for routes."""
    async with LocalGroup(tmp_path) as group:
        name = await group.leader()
        leader = await group.connect(name)
        await leader.ask(UpdateTopic("T", read_queue_nums=1, write_queue_nums=1))
        await leader.ask(send("T", b"1", queue_id=0))
        await group.level()
        follower = await group.connect((await group.followers())[0])
        assert (await follower.ask(Pull("g", "T", 0, 0, sys_flag=6))).messages
        with pytest.raises(Refusal) as refused:
            await follower.ask(Pull("g", "T", 0, 1, sys_flag=6, suspend_timeout_millis=15_000))
        assert refused.value.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert refused.value.hint == group.address(name)
        short = asyncio.create_task(follower.ask(Pull("g", "T", 0, 1, sys_flag=6, suspend_timeout_millis=1_000)))
        await group.clock.advance_until(short.done, 0.05)  # the group lives meanwhile
        answer = await short
        assert isinstance(answer, PullAnswer)
        assert answer.status == ResponseCode.PULL_NOT_FOUND


async def test_who_waits_at_a_leader_that_steps_down_waits_at_the_next_one(tmp_path: Path) -> None:
    async with LocalGroup(tmp_path) as group:
        name = await group.leader()
        leader = await group.connect(name)
        await leader.ask(UpdateTopic("T", read_queue_nums=1, write_queue_nums=1))
        await leader.ask(send("T", b"1", queue_id=0))
        pulled = asyncio.create_task(leader.ask(Pull("g", "T", 0, 1, sys_flag=6, suspend_timeout_millis=15_000)))
        await group.stop(*await group.followers())
        await group.clock.advance_until(pulled.done)
        assert (await pulled).status == ResponseCode.PULL_NOT_FOUND  # at once: it leads no more
        with pytest.raises(Refusal) as refused:
            await leader.ask(Pull("g", "T", 0, 1, sys_flag=6, suspend_timeout_millis=15_000))
        assert refused.value.code == ResponseCode.SERVICE_NOT_AVAILABLE

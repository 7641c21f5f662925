"""`rmq health` before brokers that do not say everything."""

import asyncio
from typing import Any, NoReturn

import pytest

from rmq import cli
from rmq.codes import ResponseCode
from rmq.commands.shared import exits
from rmq.errors import Refusal
from rmq.model import BrokerAddresses
from rmq.net.commands import ClusterInfo, GetClusterInfo, GetRuntimeInfo, RuntimeInfo
from rmq.net.commands.peers import GetGroupStatus
from rmq.net.transport.server import Call
from tests.client.scripted import Broker


async def test_a_group_that_does_not_tell_its_status(capsys: pytest.CaptureFixture[str]) -> None:
    """To a user who may not look at the cluster: members could be missing, and everything was well without a word."""

    def refused(request: Any, call: Call) -> NoReturn:
        raise Refusal(ResponseCode.NO_PERMISSION, "bob may not Get Cluster:*")

    broker = await Broker().start()
    broker.also(GetClusterInfo, lambda request, call: ClusterInfo([BrokerAddresses("c", "a", {0: broker.address})]))
    broker.also(GetRuntimeInfo, lambda request, call: RuntimeInfo({}))
    broker.also(GetGroupStatus, refused)
    assert await asyncio.to_thread(cli.run, ["health", "-n", broker.address]) == exits.OK
    said = capsys.readouterr().err
    assert "rmq: a: its nodes do not tell us which of its members are missing: NO_PERMISSION (16): bob may not" in said
    await broker.stop()

"""Each administrative act leaves a line: who, from where, what, before and after, done or refused."""

import asyncio
import json
import logging
from pathlib import Path
from typing import Any

import pytest

from rmq.codes import ResponseCode
from rmq.commands.shared.logs import JsonFormatter
from rmq.guard.audit import ADMINISTRATIVE
from rmq.model import GroupConfig, QueueData, TopicConfig
from rmq.net.commands import (
    BeginLogin,
    CreateAcl,
    CreateUser,
    DeleteAcl,
    DeleteExpiredLog,
    DeleteGroup,
    DeleteSetting,
    DeleteTopic,
    DeleteTopicInNameserver,
    DeleteUser,
    FinishLogin,
    Ping,
    Send,
    UpdateAcl,
    UpdateConsumerOffset,
    UpdateForbidden,
    UpdateGroup,
    UpdateGroups,
    UpdateTopic,
    UpdateTopics,
    UpdateUser,
    UserInfo,
)
from rmq.net.commands.access import AclInfo, Policy, PolicyEntry
from rmq.net.commands.configuration import UpdateBrokerConfig, UpdateNameserverConfig
from rmq.net.commands.lites import TriggerLiteDispatch
from rmq.net.commands.node import CleanExpiredQueues, CleanUnusedTopics, ResetFlushOffset, SwitchTimerEngine
from rmq.net.commands.peers import AddPeer, Promote, RemovePeer, TransferLeader
from rmq.net.commands.pop import SetRequestMode
from rmq.net.commands.quotas import DeleteQuota, QuotaRow, SetQuota
from rmq.net.commands.registration import PutSetting
from rmq.net.commands.resets import CloneOffsets, ResetOffset
from rmq.net.commands.routes import AddWritePerm, RegisterTopic, WipeWritePerm
from rmq.net.commands.transactions import ResumeCheck
from rmq.net.transport.requestlog import MAX_LINES, WINDOW_S
from rmq.testing import LocalBroker, until
from tests.broker.groups import LocalGroup
from tests.broker.support import Peer, send
from tests.broker.test_access import SETTINGS, login, make_user

BOB = UserInfo("bob", "bob-secret")
ENTRIES = [AclInfo("", [Policy("Custom", [PolicyEntry("Topic:T", [what])])]) for what in ("Pub", "Sub")]
AT_BROKER: list[Any] = [  # in an order in which each one changes something
    UpdateTopic("T", read_queue_nums=1, write_queue_nums=1),
    UpdateTopics([TopicConfig("A"), TopicConfig("B")]),
    UpdateGroup(GroupConfig("g")),
    UpdateGroups([GroupConfig("h")]),
    send("T"),
    ResetOffset("T", "g"),
    CloneOffsets("g", "h", "T", True),
    UpdateConsumerOffset("g", "T", 0, 0),  # lower: no member would
    SetRequestMode("T", "g", "POP"),
    UpdateBrokerConfig("fileReservedTime=5"),
    CreateUser("bob", BOB),
    UpdateUser("bob", UserInfo(user_status="disable")),
    CreateAcl("User:bob", ENTRIES[0]),
    UpdateAcl("User:bob", ENTRIES[1]),
    DeleteAcl("User:bob", "Custom", "Topic:T"),
    DeleteUser("bob"),
    SetQuota(QuotaRow("user:bob", messages_in=5)),
    DeleteQuota("User:bob"),
    UpdateForbidden("h", "T", "false"),
    DeleteGroup("h"),
    DeleteTopic("B"),
    DeleteExpiredLog(),
    CleanExpiredQueues(),
    CleanUnusedTopics(),
    ResetFlushOffset(0),
    SwitchTimerEngine("F"),
    ResumeCheck("T", "no id"),
    TriggerLiteDispatch("g"),
]
AT_NAMESERVER: list[Any] = [
    PutSetting("n", "k", "v"),
    DeleteSetting("n", "k"),
    UpdateNameserverConfig("orderMessageEnable=true"),
    RegisterTopic("New", [QueueData("broker-a", 1, 1, 6)]),
    WipeWritePerm("broker-a"),
    AddWritePerm("broker-a"),
    DeleteTopicInNameserver("A"),
]
AT_GROUP: list[Any] = [Promote(), RemovePeer("nobody"), TransferLeader("nobody")]
STAYS = {
    "DeleteExpiredLog",
    "CleanExpiredQueues",
    "CleanUnusedTopics",
    "ResetFlushOffset",
    "SwitchTimerEngine",
}  # nothing is expired
REFUSED = {"ResumeCheck", "TriggerLiteDispatch", "Promote", "RemovePeer", "TransferLeader"}


def lines(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    """As the node writes them."""
    return [json.loads(JsonFormatter().format(one)) for one in caplog.records if one.name == "rmq.audit"]


async def test_what_was_done_and_what_was_refused(caplog: pytest.LogCaptureFixture) -> None:
    """S12: no password is in the log, and sends leave no line."""
    caplog.set_level(logging.INFO)
    async with LocalBroker(**SETTINGS) as broker:
        root = await login(broker, "root", "root-secret")
        await root.ask(UpdateTopic("T", read_queue_nums=2, write_queue_nums=2))
        await root.ask(UpdateTopic("T", read_queue_nums=4, write_queue_nums=4))
        await root.send(send("T"))
        assert await root.refusal(UpdateTopic("not allowed")) != 0
        await root.ask(DeleteTopic("T"))
        await make_user(root, "bob", PolicyEntry("Topic:T", ["Pub"]))
        bob = await login(broker, "bob", "bob-secret")
        assert await bob.refusal(DeleteTopic("U")) == ResponseCode.NO_PERMISSION
        await root.close()
        await bob.close()
    told = lines(caplog)
    made, changed, bad, gone, *users, denied = told
    assert [(one["what"], one["outcome"], one["user"]) for one in (made, changed, bad, gone, denied)] == [
        ("UpdateTopic", "done", "root"),
        ("UpdateTopic", "done", "root"),
        ("UpdateTopic", "refused", "root"),
        ("DeleteTopic", "done", "root"),
        ("DeleteTopic", "refused", "bob"),
    ]
    assert all(one["id"].startswith(f"{one['source']}#") for one in told)
    assert "before" not in made
    assert (changed["before"]["read_queue_nums"], changed["after"]["read_queue_nums"]) == (2, 4)
    assert (gone["before"]["name"], gone["request"]) == ("T", {"topic": "T"})
    assert "no permission" in denied["why"]
    assert (made["source"].partition(":")[0], made["client"]) == ("127.0.0.1", "client of root")
    assert "CreateUser" in {one["what"] for one in users}
    assert "bob-secret" not in json.dumps(told)


async def test_every_administrative_request_leaves_its_line_with_before_and_after(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """All codes of the one table that change something: a new one fails here until it is tried, and shows what it changes."""
    caplog.set_level(logging.INFO, "rmq.audit")
    async with LocalBroker() as broker:
        for address, requests in ((broker.address, AT_BROKER), (broker.nameserver, AT_NAMESERVER)):
            peer = await Peer.connect(address)
            for request in requests:
                await peer.ask_code(request)
            await peer.close()
    async with LocalGroup(tmp_path) as group:
        peer = await group.connect(await group.leader())
        for request in AT_GROUP:
            await peer.ask_code(request)
        adding = asyncio.create_task(peer.ask_code(AddPeer("n7", "127.0.0.1:1")))  # it never comes
        await until(lambda: lines(caplog)[-1]["what"] == "AddPeer")
        adding.cancel()
        told = lines(caplog)
    assert {one["what"] for one in told} == {kind.__name__ for kind in ADMINISTRATIVE} | {"UpdateConsumerOffset"}
    assert {one["what"] for one in told if one["outcome"] == "refused"} == REFUSED
    for one in told:
        if one["outcome"] == "done":
            changed = one.get("before") != one.get("after")
            assert changed != (one["what"] in STAYS), one
        elif one["outcome"] == "asked":
            assert one["before"] is not None, one
    by_name = {one["what"]: one for one in told}
    assert (by_name["ResetOffset"]["before"], by_name["ResetOffset"]["after"]) == ({"T": {}}, {"T": {"0": 1}})
    assert by_name["UpdateBrokerConfig"]["before"] == {"fileReservedTime": "72"}
    assert by_name["UpdateUser"]["after"] == {"type": "Normal", "status": "disable"}
    assert by_name["SetQuota"]["after"]["messages_in"] == 5
    assert by_name["AddPeer"]["before"]["voters"] == ["n0", "n1", "n2"]
    assert "secret" not in json.dumps(told)


def test_only_administrative_requests_cost_anything() -> None:
    assert {UpdateTopic, DeleteTopic, CreateUser} <= ADMINISTRATIVE
    assert not {Send, Ping} & ADMINISTRATIVE


async def test_strangers_do_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """What they are refused, and logins under names that they make up, are told so often and no more; a user's refusals are told
    all the same."""
    caplog.set_level("INFO")
    async with LocalBroker(**SETTINGS) as local:
        root, stranger = await login(local, "root", "root-secret"), await login(local, "", "")
        await make_user(root, "bob")
        bob = await login(local, "bob", "bob-secret")
        caplog.clear()
        for number in range(2 * MAX_LINES):
            assert await stranger.refusal(UpdateTopic("T")) == ResponseCode.NO_PERMISSION
            await stranger.ask(BeginLogin(f"n,,n=nobody-{number},r={'n' * 16}"))
            await stranger.refusal(FinishLogin("c=biws,r=wrong,p=AAAA"))
        assert await bob.refusal(UpdateTopic("T")) == ResponseCode.NO_PERMISSION
        lines = [line.message for line in caplog.records if line.name in ("rmq.audit", "rmq.access")]
        assert lines.count("a login failed") == MAX_LINES
        assert lines.count("UpdateTopic refused") == MAX_LINES + 1
        await local.clock.advance(WINDOW_S)
        await stranger.refusal(UpdateTopic("T"))
        [told] = [vars(line) for line in caplog.records if line.name == "rmq.audit" and "left_out" in vars(line)]
        assert told["left_out"] == MAX_LINES
        for peer in (root, stranger, bob):
            await peer.close()


async def test_settings_that_hold_secrets_are_told_without_them(caplog: pytest.LogCaptureFixture) -> None:
    """S12: they are refused, in each form that a file may have, and who reads the log does not learn what they were to be."""
    caplog.set_level(logging.INFO)
    texts = (
        'fileReservedTime=5\ninnerClientAuthenticationCredentials={"accessKey":"n","secretKey":"hunter2"}',
        "tls.server.keyPassword = hunter2",
        "init_user=\\\n  hunter2\nfileReservedTime=7",
        "authenticationMetadataPassword=x \\ \nhunter2 \\\nhunter2",
    )
    async with LocalBroker() as broker:
        for address, request in ((broker.address, UpdateBrokerConfig), (broker.nameserver, UpdateNameserverConfig)):
            peer = await Peer.connect(address)
            for text in texts:
                assert await peer.refusal(request(text)) != 0
            await peer.close()
    told = lines(caplog)
    assert [one["outcome"] for one in told] == ["refused"] * 2 * len(texts)
    assert "hunter2" not in json.dumps(told)
    assert told[0]["request"]["text"] == "fileReservedTime=5\ninnerClientAuthenticationCredentials=***"
    assert told[2]["request"]["text"] == "init_user=***\n***\nfileReservedTime=7"

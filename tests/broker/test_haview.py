"""Codes 907 and 1007: a group's status in the words of RocketMQ's tool."""

import json

import pytest

from rmq.broker.replication.haview import epoch_cache, ha_status
from rmq.codes import ResponseCode
from rmq.model import EpochEntry
from rmq.net.commands.peers import LEVEL_S, GetEpochCache, GetGroupStatus, GetHaStatus, GroupStatus, MemberStatus
from rmq.net.remoting.bodies import ANSWER_WRITERS
from tests.broker.support import Peer, send


def member(node: str, end: int, lag: int, level: float = -1.0) -> MemberStatus:
    return MemberStatus(node, f"s-{node}", f"{node}:40911", True, end, end, lag, 0.1, False, False, level)


def status(role: str) -> GroupStatus:
    epochs = [EpochEntry(1, 0, "w1"), EpochEntry(4, 700, "w2")]
    members = [member("n0", 1000, 0), member("n1", 900, 100, LEVEL_S), member("n2", -1, -1), member("n3", 5, 995, LEVEL_S + 0.1)]
    return GroupStatus(role, "n0", "s-n0", "n0", "n0:30911", 4, 0, 1000, 1000, 950, True, True, False, epochs, members)


def spelled(answer: object) -> dict[str, object]:
    found: dict[str, object] = json.loads(ANSWER_WRITERS[type(answer)](answer, True))
    return found


def test_a_leader_tells_of_its_followers() -> None:
    """[HARuntimeInfo]"""
    found = spelled(ha_status(status("leader")))
    assert (found["master"], found["masterCommitLogMaxOffset"], found["inSyncSlaveNums"]) == (True, 1000, 1)
    assert found["haConnectionInfo"] == [
        {
            "addr": "n1:40911",
            "slaveAckOffset": 900,
            "diff": 100,
            "inSync": True,
            "transferFromWhere": 900,
            "transferredByteInSecond": 0,
        },
        {
            "addr": "n2:40911",
            "slaveAckOffset": 0,
            "diff": 1000,
            "inSync": False,
            "transferFromWhere": 0,
            "transferredByteInSecond": 0,
        },
        {
            "addr": "n3:40911",
            "slaveAckOffset": 5,
            "diff": 995,
            "inSync": False,
            "transferFromWhere": 5,
            "transferredByteInSecond": 0,
        },
    ]


def test_a_follower_tells_of_itself() -> None:
    found = spelled(ha_status(status("follower")))
    assert (found["master"], found["haConnectionInfo"]) == (False, [])
    assert found["haClientRuntimeInfo"] == {
        "masterAddr": "n0:30911",
        "maxOffset": 1000,
        "masterFlushOffset": 950,
        "transferredByteInSecond": 0,
        "lastReadTimestamp": 0,
        "lastWriteTimestamp": 0,
    }


def test_each_epoch_ends_where_the_next_begins() -> None:
    """[EpochEntryCache]"""
    assert spelled(epoch_cache("c", "b", 2, status("leader").epochs, status("leader").end)) == {
        "clusterName": "c",
        "brokerName": "b",
        "brokerId": 2,
        "maxOffset": 1000,
        "epochList": [{"epoch": 1, "startOffset": 0, "endOffset": 700}, {"epoch": 4, "startOffset": 700, "endOffset": 1000}],
    }


async def test_of_a_broker_that_stands_alone(peer: Peer) -> None:
    """907, 1007: it is a master without slaves, and its log has one epoch."""
    await peer.ask(send("T"))
    status = await peer.ask(GetHaStatus())
    assert (status.master, status.in_sync_slave_nums, status.ha_connection_info) == (True, 0, [])
    cache = await peer.ask(GetEpochCache())
    assert (cache.broker_name, cache.broker_id, len(cache.epoch_list)) == ("broker-a", 0, 1)
    assert cache.max_offset == cache.epoch_list[-1].end_offset >= status.master_commit_log_max_offset > 0


async def test_a_broker_alone_says_that_it_is_in_no_group(peer: Peer, caplog: pytest.LogCaptureFixture) -> None:
    """Its log had a line for each `rmq admin clusterList`, and each look of a dashboard."""
    with caplog.at_level("INFO", "rmq.requests"):
        assert await peer.refusal(GetGroupStatus()) == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert caplog.messages == []

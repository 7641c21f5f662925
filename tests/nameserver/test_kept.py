"""What administrators let a nameserver keep: entries by namespace and key, order topics, settings; over restarts."""

import json
from pathlib import Path

import pytest

from rmq.codes import ResponseCode as R
from rmq.config.loading import load
from rmq.config.settings import NodeSettings
from rmq.errors import StoreError
from rmq.model import DataVersion, QueueData, TopicConfig
from rmq.nameserver.node import Nameserver
from rmq.net.commands import DeleteSetting, DeleteTopicInNameserver, GetRoute, GetTopicList, RegisterBroker
from rmq.net.commands.configuration import GetNameserverConfig, UpdateNameserverConfig
from rmq.net.commands.registration import GetSetting, ListSettings, PutSetting
from rmq.net.commands.routes import GetUnitSubscribedOtherTopics, GetUnitSubscribedTopics, GetUnitTopics, RegisterTopic
from rmq.testing import TestClock
from tests.broker.support import Peer
from tests.broker.toolcalls import Tool


async def started(folder: Path) -> tuple[Nameserver, Peer]:
    settings = NodeSettings(role="nameserver", store_dir=folder, namesrv_port=0)
    nameserver = Nameserver(settings, TestClock())
    await nameserver.start()
    return nameserver, await Peer.connect(nameserver.address)


async def test_entries_are_kept_and_order_topics_are_told(tmp_path: Path) -> None:
    nameserver, peer = await started(tmp_path)
    assert await peer.refusal(GetSetting("n", "k")) == R.QUERY_NOT_FOUND
    assert await peer.refusal(ListSettings("n")) == R.QUERY_NOT_FOUND
    assert await peer.refusal(PutSetting("", "k", "v")) == R.INVALID_PARAMETER
    await peer.ask(DeleteSetting("n", "k"))  # no error
    await peer.ask(PutSetting("n", "k", "v"))
    await peer.ask(PutSetting("n", "other", "w"))
    await peer.ask(PutSetting("ORDER_TOPIC_CONFIG", "Orders", "broker-a:4"))
    topics = [
        TopicConfig("Orders"),
        TopicConfig("Unit", sys_flag=1),
        TopicConfig("Both", sys_flag=3),
        TopicConfig("Sub", sys_flag=2),
    ]
    await peer.ask(RegisterBroker("C", "broker-a", 0, "127.0.0.1:1", 1, topics))
    assert (await peer.ask(GetRoute("Orders"))).order_conf == ""
    await peer.ask(UpdateNameserverConfig("orderMessageEnable=true\n"))
    assert (await peer.ask(GetRoute("Orders"))).order_conf == "broker-a:4"
    assert (await peer.ask(GetRoute("Unit"))).order_conf == ""
    assert (await peer.ask(GetUnitTopics())).topics == ["Both", "Unit"]
    assert (await peer.ask(GetUnitSubscribedTopics())).topics == ["Both", "Sub"]
    assert (await peer.ask(GetUnitSubscribedOtherTopics())).topics == ["Sub"]
    await peer.ask(DeleteSetting("n", "other"))
    await peer.close()
    await nameserver.stop()
    nameserver, peer = await started(tmp_path)
    assert (await peer.ask(GetSetting("n", "k"))).value == "v"
    assert (await peer.ask(ListSettings("n"))).table == {"k": "v"}
    await peer.close()
    await nameserver.stop()
    (tmp_path / "namesrv" / "kvConfig.json").write_text("{")
    with pytest.raises(StoreError, match="kvConfig.json is not what a nameserver wrote"):
        Nameserver(NodeSettings(role="nameserver", store_dir=tmp_path), TestClock())


async def test_settings_change_at_once_and_stay(tmp_path: Path) -> None:
    nameserver, peer = await started(tmp_path)
    assert "scanNotActiveBrokerInterval=5000\n" in (await peer.ask(GetNameserverConfig())).text
    await peer.ask(UpdateNameserverConfig("scanNotActiveBrokerInterval=2000\nbroker_expiry_ms=5000"))
    assert "scanNotActiveBrokerInterval=2000\n" in (await peer.ask(GetNameserverConfig())).text
    assert (await peer.ask(UpdateNameserverConfig("defaultThreadPoolNums=16"))).about.endswith("defaultThreadPoolNums")
    assert await peer.refusal(UpdateNameserverConfig("bindAddress=0.0.0.0")) == R.NO_PERMISSION
    assert await peer.refusal(UpdateNameserverConfig("kvConfigPath=/etc/passwd")) == R.NO_PERMISSION
    assert await peer.refusal(UpdateNameserverConfig("fileReservedTime=1")) == R.INVALID_PARAMETER  # a broker's
    theirs = RegisterBroker("C", "theirs", 0, "127.0.0.1:2", 0, [TopicConfig("Old")], whole=False)
    await peer.ask(theirs)
    later = theirs._replace(topics=[TopicConfig("New")], data_version=DataVersion(1))
    await peer.ask(later)
    assert {"Old", "New"} <= set((await peer.ask(GetTopicList())).topics)
    await peer.ask(UpdateNameserverConfig("deleteTopicWithBrokerRegistration=true"))
    await peer.ask(later._replace(data_version=DataVersion(2)))
    assert "Old" not in (await peer.ask(GetTopicList())).topics
    await peer.close()
    await nameserver.stop()
    file = tmp_path / "namesrv.conf"
    file.write_text(f"storePathRootDir={tmp_path}\nscanNotActiveBrokerInterval=3000\n")
    loaded = load(file)
    assert (loaded.settings.scan_interval_ms, loaded.settings.broker_expiry_ms) == (2000, 5000)
    assert loaded.origins["scan_interval_ms"] == f"{tmp_path}/namesrv/live.conf:5"
    assert any("was set while the node ran, which wins over" in warning for warning in loaded.warnings)


async def test_a_topic_that_somebody_else_names(tmp_path: Path) -> None:
    """217: it is in the routes over registrations of its broker, until it is deleted there or the broker leaves."""
    nameserver, peer = await started(tmp_path)
    broker = RegisterBroker("C", "broker-a", 0, "127.0.0.1:1", 1, [TopicConfig("Own")])
    await peer.ask(broker)
    queues = [QueueData("broker-a", 2, 3, 6)]
    assert await peer.refusal(RegisterTopic("T", [QueueData("broker-b", 2, 2, 6)])) == R.INVALID_PARAMETER
    assert await peer.refusal(RegisterTopic("T", [QueueData("broker-a", -1, 2, 6)])) == R.INVALID_PARAMETER
    await peer.ask(RegisterTopic("T", queues))
    await peer.ask(broker._replace(data_version=DataVersion(1)))
    assert (await peer.ask(GetRoute("T"))).queues == queues
    await peer.ask(DeleteTopicInNameserver("T"))
    await peer.ask(broker._replace(data_version=DataVersion(2)))
    assert await peer.refusal(GetRoute("T")) == R.TOPIC_NOT_EXIST
    tool = await Tool.connect(nameserver.address, "dashboard")
    row = {"brokerName": "broker-a", "readQueueNums": 1, "writeQueueNums": 1, "perm": 4, "topicSysFlag": 0}
    assert (await tool.ask(217, {"topic": "T"}, json.dumps({"queueDatas": [row]}).encode())).code == 0
    assert (await tool.ask(105, {"topic": "T"})).json()["queueDatas"] == [row]
    await tool.close()
    await peer.close()
    await nameserver.stop()

"""Settings that change while a broker runs: at once, for later starts too; the others are refused by name."""

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest

from rmq.codes import ResponseCode as R
from rmq.config.loading import load
from rmq.config.settings import BROKER_LIVE, name_of
from rmq.errors import Refusal
from rmq.model import TEMPLATE_TOPIC
from rmq.net.commands import GetRoute, GetRuntimeInfo, GetTopicConfig, Pull, UpdateTopic
from rmq.net.commands.configuration import GetBrokerConfig, UpdateBrokerConfig
from rmq.net.commands.timers import Recall
from rmq.testing import LocalBroker, TestClock
from tests.broker.javaclient import JavaClient
from tests.broker.support import HELD, SUBSCRIBED, Peer, beat, bodies, send
from tests.broker.test_delays import delayed
from tests.broker.transactions import checks, half


@pytest.fixture
def clock() -> TestClock:
    return TestClock()


async def config(peer: Peer) -> dict[str, str]:
    text = (await peer.ask(GetBrokerConfig())).text
    return dict(line.split("=", 1) for line in text.splitlines())


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such names")
async def test_a_store_whose_path_is_no_utf8_is_told_by_codes(tmp_path: Path) -> None:
    """As of a directory named in Latin-1: clusterList of the whole cluster failed, and the log's line of the start was lost."""
    store = tmp_path / os.fsdecode(b"st\xf6")
    async with LocalBroker(store_dir=store) as broker:
        peer = await Peer.connect(broker.address)
        assert (await config(peer))["storePathRootDir"] == f"{tmp_path}/st\\udcf6"
        about = (await peer.ask(GetRuntimeInfo())).table
        assert f"commitLogDiskRatio_{tmp_path}/st\\udcf6/commitlog" in about
        await peer.close()


async def test_what_is_set_holds_at_once_and_after_a_restart(tmp_path: Path, clock: TestClock) -> None:
    async with LocalBroker(store_dir=tmp_path, clock=clock) as broker:
        peer = await Peer.connect(broker.address)
        before = await config(peer)
        assert (before["fileReservedTime"], before["autoCreateTopicEnable"], before["brokerName"]) == ("72", "true", "broker-a")
        assert not [key for key in before if "redential" in key]
        theirs = {"flushDiskType": "ASYNC_FLUSH", "deleteWhen": "04", "brokerRole": "ASYNC_MASTER", "brokerIP1": "127.0.0.1"}
        assert before.items() >= theirs.items(), "as RocketMQ spells them"
        await peer.ask(
            UpdateBrokerConfig("# a comment\nfileReservedTime=48\nautoCreateTopicEnable = false\ndefaultTopicQueueNums=2\n")
        )
        assert await peer.refusal(send("Unknown")) == R.TOPIC_NOT_EXIST
        assert (await peer.ask(GetTopicConfig(TEMPLATE_TOPIC))).write_queue_nums == 2
        answer = await peer.ask(UpdateBrokerConfig("sendMessageThreadPoolNums=8\nreserved_hours=36"))
        assert answer.about == "kept, and without effect here: sendMessageThreadPoolNums"
        doubtful = await peer.ask(UpdateBrokerConfig("diskMaxUsedSpaceRatio=95"))
        assert "sends are refused, before expired files are deleted" in doubtful.about
        assert not (await peer.ask(UpdateBrokerConfig("diskMaxUsedSpaceRatio=75"))).about
        after = await config(peer)
        assert (after["fileReservedTime"], after["sendMessageThreadPoolNums"]) == ("36", "8")
        assert json.loads((await peer.ask(GetBrokerConfig())).version)["counter"] == 4
        await peer.close()
        await broker.stop_broker()
        conf = tmp_path / "broker.conf"
        conf.write_text(f"storePathRootDir={tmp_path}\nfileReservedTime=96\n")
        loaded = load(conf)
        assert (loaded.settings.reserved_hours, loaded.settings.auto_create_topic) == (36, False)
        assert loaded.origins["reserved_hours"].startswith(f"{tmp_path}/config/live.conf:")
        assert [one for one in loaded.warnings if "reserved_hours was set while the node ran, which wins over" in one]


async def test_what_may_not_be_set_is_refused_by_name(peer: Peer) -> None:
    """All or nothing."""
    before = await config(peer)
    for text, code in {
        "brokerClusterName=x": R.INVALID_PARAMETER,  # no live setting
        "fileReservedTime=soon": R.INVALID_PARAMETER,
        "fileReservedTme=1": R.INVALID_PARAMETER,
        "brokerPermission=3": R.INVALID_PARAMETER,
        "regionId=x": R.INVALID_PARAMETER,  # not served
        "diskMaxUsedSpaceRatio=90\ndiskSpaceCleanForciblyRatio=200": R.INVALID_PARAMETER,
        "storePathRootDir=/tmp": R.NO_PERMISSION,
        "storePathCommitLog=/tmp": R.NO_PERMISSION,
        "rocketmqHome=/tmp/$(id)": R.NO_PERMISSION,
        "namesrvAddr=1.2.3.4:1": R.NO_PERMISSION,
        "listenPort=1": R.NO_PERMISSION,
        "innerClientAuthenticationCredentials={}": R.NO_PERMISSION,
        "fileReservedTime=1\nbrokerIP1=1.2.3.4": R.NO_PERMISSION,
        "no line": R.INVALID_PARAMETER,
        "sendMessageThreadPoolNums=" + "8" * 2000: R.INVALID_PARAMETER,
    }.items():
        assert await peer.refusal(UpdateBrokerConfig(text)) == code, text
    assert await config(peer) == before
    await peer.ask(UpdateBrokerConfig(""))


async def test_what_cannot_be_written_keeps_no_other_setting_back(broker: LocalBroker, peer: Peer) -> None:
    """New topics' queues stand in a record. What makes room on a full disk is often set together with others."""
    await peer.send(*(send("T") for _ in range(3)))
    broker.serving.appender.refuse("full", "full", "full")
    wanted = UpdateBrokerConfig("defaultTopicQueueNums=2\nmaxTransferCountOnMessageInMemory=1")
    with pytest.raises(Refusal, match="kept and in force, but for defaultTopicQueueNums: not stored: full; set it again"):
        await peer.ask(wanted)
    assert len(bodies(await peer.pull("T", 0))) == 1
    assert (await config(peer))["maxTransferCountOnMessageInMemory"] == "1"
    broker.serving.appender.refuse("", "", "")
    await peer.ask(wanted)
    assert (await peer.ask(GetTopicConfig(TEMPLATE_TOPIC))).write_queue_nums == 2


async def test_short_polling(broker: LocalBroker, peer: Peer) -> None:
    """longPollingEnable=false: a pull that finds nothing is answered after shortPollingTimeMills."""
    await peer.send(send("T"))
    await peer.ask(UpdateBrokerConfig("longPollingEnable=false\nshortPollingTimeMills=3000"))
    pulling = asyncio.create_task(peer.pull("T", 1, HELD, suspend_timeout_millis=60_000))
    began_s = broker.clock.monotonic()
    await broker.clock.advance_until(pulling.done, 0.5)
    assert 2 <= broker.clock.monotonic() - began_s < 20
    assert (await pulling).status == R.PULL_NOT_FOUND


async def test_tools_of_java_get_text_and_a_remark(broker: LocalBroker) -> None:
    async with JavaClient.connect(broker.address) as java:
        header, body = await java.ask(GetBrokerConfig())
        assert b"brokerName=broker-a\n" in body
        assert json.loads(header.ext["version"])["counter"] == 0
        header, body = await java.ask(UpdateBrokerConfig("clientWorkerThreads=4\n"))
        assert (header.code, header.remark, body) == (0, "kept, and without effect here: clientWorkerThreads", b"")


async def test_how_often_a_producer_is_asked(broker: LocalBroker, peer: Peer) -> None:
    """transactionTimeOut, transactionCheckMax at once, transactionCheckInterval from the next check on."""
    await peer.ask(beat("c"))
    await peer.ask(UpdateBrokerConfig("transactionTimeOut=1000\ntransactionCheckInterval=2000\ntransactionCheckMax=2"))
    await peer.send(half())
    await broker.clock.advance_until(lambda: len(checks(peer)) == 1, 0.5)
    began_s = broker.clock.monotonic()
    await broker.clock.advance_until(lambda: len(checks(peer)) == 2, 0.5)
    assert broker.clock.monotonic() - began_s < 30
    await broker.clock.advance_until(lambda: not broker.serving.tables.halves.open.rows, 0.5)
    assert len(checks(peer)) == 2, "then it is put aside"


async def test_keys_that_steer_only_javas_insides(tmp_path: Path, clock: TestClock) -> None:
    """Accepted, kept over a restart, and the remark says that they do nothing."""
    text = "enablePopBufferMerge=true\nenableSingleTopicRegister=true\nenableSplitRegistration=true\nenableLmqQuota=true\n"
    async with LocalBroker(store_dir=tmp_path, clock=clock) as broker:
        async with JavaClient.connect(broker.address) as java:
            header, _ = await java.ask(UpdateBrokerConfig(text))
        names = [line.split("=")[0] for line in text.splitlines()]
        assert (header.code, header.remark) == (0, f"kept, and without effect here: {', '.join(names)}")
        await broker.stop_broker()
        await broker.start_broker()
        peer = await Peer.connect(broker.address)
        assert (await config(peer)).items() >= dict(line.split("=") for line in text.splitlines()).items()
        await peer.close()


async def test_keys_of_priorities_and_retries_are_live(peer: Peer) -> None:
    """What each does is tested where it is done (test_kinds.py, test_group_rules.py)."""
    wanted = {"priorityOrderAsc": "false", "popFromRetryProbabilityForPriority": "50", "useSeparateRetryQueue": "true"}
    answer = await peer.ask(UpdateBrokerConfig("".join(f"{key}={value}\n" for key, value in wanted.items())))
    assert answer.about == ""
    assert (await config(peer)).items() >= wanted.items()


async def test_a_broker_that_is_to_be_emptied(tmp_path: Path, clock: TestClock) -> None:
    """brokerPermission=4: routes say so at once, and it is kept; what still comes by an old route is stored, except for
    order topics [AbstractSendMessageProcessor.msgCheck]."""
    async with LocalBroker(store_dir=tmp_path, clock=clock) as broker:
        peer, routes = await Peer.connect(broker.address), await Peer.connect(broker.nameserver)
        await broker.create_topic("Ordered")
        await peer.ask(UpdateTopic("Ordered", order=True))
        await peer.send(send("T"))
        await peer.ask(UpdateBrokerConfig("brokerPermission=4"))
        async with asyncio.timeout(60):
            while (await routes.ask(GetRoute("T"))).queues[0].perm != 4:
                await asyncio.sleep(0)
        await peer.send(send("T"))
        assert await peer.refusal(send("Ordered")) == R.NO_PERMISSION
        assert len((await peer.pull("T", 0)).messages) > 0
        await peer.ask(UpdateBrokerConfig("brokerPermission=2"))
        await peer.send(send("Ordered"))
        assert (await peer.refusal(Pull("g", "T", 0, 0))) == R.NO_PERMISSION
        await peer.close()
        await routes.close()
    (tmp_path / "broker.conf").write_text(f"storePathRootDir={tmp_path}\n")
    assert load(tmp_path / "broker.conf").settings.permission == 2


OTHER = {  # by RocketMQ's key: not what a broker has without being told
    "fileReservedTime": "48", "deleteWhen": "01;23", "diskMaxUsedSpaceRatio": "70", "diskSpaceCleanForciblyRatio": "80",
    "cleanFileForciblyEnable": "false", "diskSpaceWarningLevelRatio": "85", "slaveReadEnable": "true",
    "enablePropertyFilter": "true", "maxTransferBytesOnMessageInMemory": "4096", "maxTransferCountOnMessageInMemory": "3",
    "maxTransferBytesOnMessageInDisk": "2048", "maxTransferCountOnMessageInDisk": "2", "autoCreateTopicEnable": "false",
    "autoCreateSubscriptionGroup": "false", "defaultTopicQueueNums": "2", "recallMessageEnable": "true",
    "timerMaxDelaySec": "60", "transactionTimeOut": "1000", "transactionCheckInterval": "2000", "transactionCheckMax": "2",
    "rejectTransactionMessage": "true", "longPollingEnable": "false", "shortPollingTimeMills": "100",
    "useServerSideResetOffset": "false", "notifyConsumerIdsChangedEnable": "false", "enableTopicMessageTypeCheck": "true",
    "priorityOrderAsc": "false", "popFromRetryProbabilityForPriority": "50", "popFromRetryProbability": "100",
    "useSeparateRetryQueue": "true", "brokerPermission": "4", "estimateAccumulation": "false",
    "differing_subscriptions": "allow", "maxLiteSubscriptionCount": "7", "liteSubscriptionCheckTimeoutMills": "10000",
    "minLiteTTl": "1000", "liteTtlCheckInterval": "5000",
}  # fmt: skip


async def test_every_live_setting_is_told_and_kept(tmp_path: Path, clock: TestClock) -> None:
    """Also a second change of the same one; a restart takes the last."""
    assert {name_of(key) for key in OTHER} == BROKER_LIVE
    async with LocalBroker(store_dir=tmp_path, clock=clock) as broker:
        peer = await Peer.connect(broker.address)
        before = await config(peer)
        assert not {key for key, value in OTHER.items() if before[key] == value}
        for key, value in OTHER.items():
            await peer.ask(UpdateBrokerConfig(f"{key}={value}"))
        assert (await config(peer)).items() >= OTHER.items()
        await peer.ask(UpdateBrokerConfig("transactionCheckMax=3"))
        await peer.close()
        await broker.stop_broker()
        await broker.start_broker()
        peer = await Peer.connect(broker.address)
        assert (await config(peer)).items() >= (OTHER | {"transactionCheckMax": "3"}).items()
        await peer.close()


async def test_what_clients_may_do_changes_at_once(broker: LocalBroker, peer: Peer) -> None:
    """Settings whose effect is tested elsewhere with a broker that begins with them."""

    async def code(key: str, request: object) -> tuple[int, int]:
        """Of the request before the change and after it."""
        before = await peer.ask_code(request)
        await peer.ask(UpdateBrokerConfig(f"{key}={OTHER[key]}"))
        return before, await peer.ask_code(request)

    [timer] = await peer.send(delayed(b"timer", TIMER_DELAY_SEC=50))
    await peer.send(*(send("T") for _ in range(5)))
    by_sql = Pull("g", "T", 0, 0, subscription="a = 1", expression_type="SQL92", sys_flag=SUBSCRIBED)
    assert await code("enablePropertyFilter", by_sql) == (R.SYSTEM_ERROR, 0)
    assert await code("rejectTransactionMessage", half()) == (0, R.NO_PERMISSION)
    assert await code("timerMaxDelaySec", delayed(b"late", TIMER_DELAY_SEC=61)) == (0, R.MESSAGE_ILLEGAL)
    assert await code("recallMessageEnable", Recall("T", timer.recall_handle, "p")) == (R.NO_PERMISSION, 0)
    assert await peer.ask_code(Pull("new", "T", 0, 0)) == 0
    await peer.ask(UpdateBrokerConfig("autoCreateSubscriptionGroup=false"))
    assert await peer.ask_code(Pull("newer", "T", 0, 0)) == R.SUBSCRIPTION_GROUP_NOT_EXIST
    assert len(bodies(await peer.pull("T", 0))) == 5
    await peer.ask(UpdateBrokerConfig("maxTransferCountOnMessageInMemory=3"))
    assert len(bodies(await peer.pull("T", 0))) == 3
    await peer.ask(UpdateBrokerConfig("maxTransferCountOnMessageInMemory=32\nmaxTransferBytesOnMessageInMemory=1024"))
    await peer.send(send("T", b"x" * 1000))
    assert len(bodies(await peer.pull("T", 0))) == 5, "the sixth would be too much"

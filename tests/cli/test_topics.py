"""mqadmin's commands for topics and for all groups of a broker, against a real node, as an operator would use them."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import msgpack
import pytest

from rmq import cli
from rmq.client import Message
from rmq.client.admin import calls as admin, topics
from rmq.clock import SystemClock
from rmq.commands.shared import exits
from rmq.commands.shared.options import MOST_LIST_BYTES
from rmq.config.settings import NodeSettings
from rmq.nameserver.node import Nameserver
from rmq.net.codec.limits import Limits
from rmq.net.remoting.requestbodies import read_topics
from rmq.testing import LocalBroker
from tests.cli.test_node import Printed, Running, printed_json, sent

LONG = "T" * 127  # as long as a topic's name may be


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    found = Running(tmp_path_factory.mktemp("node") / "store").ready()
    yield found
    assert found.stop() == 0


@pytest.mark.parametrize("topic", ["Perm", LONG])
def test_the_perm_of_a_topic_changes_and_nothing_else(running: Running, capsys: Printed, topic: str) -> None:
    where, place = ["-n", running.namesrv, "-t", topic], ["-c", "DefaultCluster"]
    printed_json(capsys, "admin", "updateTopic", *where, *place, "-r", "3", "-w", "2", "--order", "-a", "+message.type=FIFO")
    before = printed_json(capsys, "admin", "topicRoute", *where)["rows"]
    changed = printed_json(capsys, "admin", "updateTopicPerm", *where, "-b", running.broker, "-p", "4")
    assert changed == [{"address": running.broker, "before": 6, "perm": 4}]
    assert printed_json(capsys, "admin", "topicRoute", *where)["rows"] == [before[0] | {"perm": 4}]
    assert cli.run(["send", topic, "x", "-n", running.namesrv]) == exits.FAILED  # nobody takes it
    capsys.readouterr()
    assert printed_json(capsys, "admin", "updateTopicPerm", *where, *place, "-p", "6")[0]["before"] == 4
    assert printed_json(capsys, "admin", "topicRoute", *where)["rows"] == before
    assert printed_json(capsys, "admin", "topicClusterList", *where) == [{"cluster": "DefaultCluster"}]


def test_the_perm_of_a_topic_that_is_not_there(running: Running, capsys: Printed) -> None:
    printed_json(capsys, "admin", "updateTopic", "-n", running.namesrv, "-t", "There", "-c", "DefaultCluster")
    place = ["-b", running.broker, "-p", "4", "-n", running.namesrv]
    for topic, where, code in (("Missing", place, exits.FAILED), ("There", ["-c", "no", *place[2:]], exits.USAGE)):
        assert cli.run(["admin", "updateTopicPerm", "-t", topic, *where]) == code
    assert cli.run(["admin", "updateTopicPerm", "-t", "There", "-c", "x", *place]) == exits.USAGE
    assert "either -c CLUSTER or -b BROKER" in capsys.readouterr().err


def test_topics_come_from_a_file_all_or_none(running: Running, capsys: Printed, tmp_path: Path) -> None:
    rows = [{"topicName": name, "readQueueNums": 2, "writeQueueNums": 2, "perm": 6} for name in ("FileA", "FileB")]
    file = tmp_path / "topics.json"
    arguments = ["admin", "updateTopicList", "-n", running.namesrv, "-c", "DefaultCluster", "-f", str(file)]
    for bad, code in (("{", exits.USAGE), ("7", exits.USAGE), (json.dumps([*rows, {"topicName": "no/good"}]), exits.FAILED)):
        file.write_text(bad)
        assert cli.run(arguments) == code, bad
    file.write_bytes(b" " * (8 << 20) + b"[]")
    assert cli.run(arguments) == exits.USAGE
    assert "in parts" in capsys.readouterr().err
    assert "FileA" not in {row["topic"] for row in printed_json(capsys, "admin", "topicList", "-n", running.namesrv)}
    file.write_text(json.dumps(rows))
    assert printed_json(capsys, *arguments)["addresses"] == [running.broker]
    route = printed_json(capsys, "admin", "topicRoute", "-n", running.namesrv, "-t", "FileB")
    assert route["total_write_queues"] == 2


def test_groups_come_from_a_file_all_or_none(running: Running, capsys: Printed, tmp_path: Path) -> None:
    rows = [{"groupName": name, "retryMaxTimes": 3, "attributes": {"+priority.factor": "80"}} for name in ("file-a", "g" * 120)]
    file = tmp_path / "groups.json"
    arguments = ["admin", "updateSubGroupList", "-n", running.namesrv, "-b", running.broker, "-f", str(file)]
    for bad, code in (("{", exits.USAGE), ('"x"', exits.USAGE), (json.dumps([*rows, {"groupName": "no/good"}]), exits.FAILED)):
        file.write_text(bad)
        assert cli.run(arguments) == code, bad
    assert cli.run(["admin", "getConsumerConfig", "-n", running.namesrv, "-g", "file-a"]) == exits.USAGE
    file.write_text(json.dumps(rows))
    assert printed_json(capsys, *arguments)["addresses"] == [running.broker]
    for row in rows:
        (found,) = printed_json(capsys, "admin", "getConsumerConfig", "-n", running.namesrv, "-g", str(row["groupName"]))
        assert (found["retry_max_times"], found["attributes"]) == (3, "priority.factor=80")


def test_a_file_of_topics_that_is_taken_fits_into_a_request() -> None:
    """A broker closed the connection of one with 55 000 topics, and nobody knew what had become of them."""
    rows = b",".join(b'{"topicName":"%06x"}' % number for number in range(MOST_LIST_BYTES // 24))
    assert MOST_LIST_BYTES * 0.9 < len(rows) < MOST_LIST_BYTES
    request = read_topics({}, b'{"topicConfigList":[%s]}' % rows)
    assert len(msgpack.packb(request)) < Limits().max_structured_bytes


def test_a_broker_may_be_kept_from_being_chosen(running: Running, capsys: Printed) -> None:
    sent(capsys, running, "Wiped", "x")
    group = printed_json(capsys, "admin", "topicRoute", "-n", running.namesrv, "-t", "Wiped")["rows"][0]["broker"]
    (wiped,) = printed_json(capsys, "admin", "wipeWritePerm", "-n", running.namesrv, "-b", group)
    assert (wiped["address"], wiped["topics"] > 0) == (running.namesrv, True)
    assert printed_json(capsys, "admin", "topicRoute", "-n", running.namesrv, "-t", "Wiped")["rows"][0]["perm"] == 4
    assert printed_json(capsys, "admin", "addWritePerm", "-n", running.namesrv, "-b", group)[0]["topics"] > 0
    assert printed_json(capsys, "admin", "topicRoute", "-n", running.namesrv, "-t", "Wiped")["rows"][0]["perm"] == 6
    for command in ("wipeWritePerm", "addWritePerm"):
        assert cli.run(["admin", command, "-n", running.namesrv, "-b", "nobody"]) == exits.USAGE
        assert f"there are: {group}" in capsys.readouterr().err


def test_what_waits_for_the_groups_of_a_broker(running: Running, capsys: Printed) -> None:
    sent(capsys, running, "Flow", "a", "b", "c")
    where = ["-n", running.namesrv]
    assert cli.run(["consume", "Flow", *where, "-g", "flowing", "-c", "2", "-o", "body"]) == 0
    capsys.readouterr()
    (row,) = printed_json(capsys, "admin", "statsAll", *where, "-t", "Flow")
    assert (row["topic"], row["group"], row["accumulation"]) == ("Flow", "flowing", 1)
    printed_json(capsys, "admin", "updateTopic", *where, "-t", "Idle", "-c", "DefaultCluster")
    everything = printed_json(capsys, "admin", "statsAll", *where)
    assert {"Flow", "Idle"} <= {row["topic"] for row in everything}
    assert not [row for row in everything if row["topic"].startswith("%")]
    assert "Idle" not in {row["topic"] for row in printed_json(capsys, "admin", "statsAll", *where, "-a")}
    shown = printed_json(capsys, "admin", "brokerConsumeStats", *where, "-b", running.broker)
    mine = [row for row in shown["rows"] if (row["topic"], row["group"]) == ("Flow", "flowing")]
    assert sum(row["diff"] for row in mine) == 1
    behind = printed_json(capsys, "admin", "brokerConsumeStats", *where, "-b", running.broker, "-l", "1")
    assert [row["diff"] for row in behind["rows"] if row["topic"] == "Flow"] == [1]
    assert behind["diff_total"] == sum(row["diff"] for row in behind["rows"])
    assert printed_json(capsys, "admin", "statsAll", *where, "-t", "Missing") == []
    assert printed_json(capsys, "admin", "cleanUnusedTopic", *where)["addresses"] == [running.broker]


def test_a_wrong_topic_is_not_a_group_that_has_read_everything(running: Running, capsys: Printed) -> None:
    """It was told as "Consume Diff Total: 0", with exit code 0: a script that watches the lag saw none."""
    where = ["-n", running.namesrv]
    sent(capsys, running, "Watched", "a")
    assert cli.run(["consume", "Watched", *where, "-g", "watched", "-c", "1", "-o", "body"]) == 0
    assert cli.run(["admin", "consumerProgress", *where, "-g", "watched", "-t", "Wacthed"]) == exits.FAILED
    assert "TOPIC_NOT_EXIST" in capsys.readouterr().err
    assert cli.run(["admin", "consumerProgress", *where, "-g", "watched", "-t", "Watched"]) == 0


async def test_what_went_through_a_topic_is_counted_for_a_day() -> None:
    """Also beside a group that was deleted, and a topic that was."""
    async with LocalBroker() as broker, broker.client() as client:
        await broker.create_topic(LONG, queues=2)
        await client.producer().send_batch([Message(LONG, b"%d" % number) for number in range(5)])
        async with client.consumer("readers", [LONG], start="first") as consumer:
            read = 0
            while read < 5:
                read += len(await consumer.receive())
            await consumer.commit()

        async def counted() -> list[topics.Flow]:
            await broker.clock.advance(11)
            return await topics.flows(client, [LONG, "Missing", "%RETRY%readers"])

        while not (found := await counted())[0].out_day:
            pass
        assert [(flow.topic, flow.group, flow.accumulation, flow.in_day, flow.out_day) for flow in found] == [
            (LONG, "readers", 0, 5, 5)
        ]
        assert found[0].in_tps > 0
        assert found[0].out_tps > 0
        await admin.delete_group(client, "readers", broker=broker.address, clean_offsets=True)
        assert [(flow.group, flow.in_day) for flow in await topics.flows(client, [LONG])] == [("", 5)]
        await admin.delete_topic(client, LONG, broker=broker.address)
        assert await topics.flows(client, [LONG]) == []


def test_a_group_follows_another_and_leaves_out_what_waits(running: Running, capsys: Printed) -> None:
    sent(capsys, running, "Copied", "a", "b", "c")
    where = ["-n", running.namesrv]
    assert cli.run(["consume", "Copied", *where, "-g", "first", "-c", "2", "-o", "body"]) == 0
    clone = ["admin", "cloneGroupOffset", *where, "-s", "first", "-d", "second", "-t", "Copied"]
    assert cli.run(clone) == exits.FAILED  # there is no such group
    assert "second" in capsys.readouterr().err
    printed_json(capsys, "admin", "updateSubGroup", *where, "-g", "second", "-c", "DefaultCluster")
    typo = ["admin", "cloneGroupOffset", *where, "-s", "furst", "-d", "second", "-t", "Copied"]
    assert cli.run(typo) == exits.FAILED
    assert "furst has no offset in Copied" in capsys.readouterr().err
    assert printed_json(capsys, *clone)["addresses"] == [running.broker]

    def behind(group: str) -> int:
        shown = printed_json(capsys, "admin", "brokerConsumeStats", *where, "-b", running.broker)["rows"]
        return sum(row["diff"] for row in shown if (row["topic"], row["group"]) == ("Copied", group))

    assert behind("second") == behind("first") == 1
    assert printed_json(capsys, "admin", "skipAccumulatedMessage", *where, "-g", "first", "-t", "Copied")
    assert (behind("first"), behind("second")) == (0, 1)


def test_producers_of_a_broker(running: Running, capsys: Printed) -> None:
    assert printed_json(capsys, "admin", "producer", "-n", running.namesrv, "-b", running.broker) == []
    assert cli.run(["admin", "producer", "-n", running.namesrv, "-b", "nobody"]) == exits.USAGE
    assert "registered: " in capsys.readouterr().err


def test_how_many_queues_an_ordered_topic_has_is_checked(running: Running, capsys: Printed) -> None:
    """The nameserver keeps any text, and clients cannot read it."""
    command = ["admin", "updateOrderConf", "-n", running.namesrv, "-t", "InOrder"]
    for wrong in ("junk", "a:", ":4", "a:0", "a:4;", "a:4,b:4", "a:x"):
        assert cli.run([*command, "-m", "put", "-v", wrong]) == exits.USAGE, wrong
    assert "write BROKER:QUEUES" in capsys.readouterr().err
    assert printed_json(capsys, *command, "-m", "get") == [{"topic": "InOrder", "value": None}]
    good = "broker-a:4;broker-b:4"
    assert printed_json(capsys, *command, "-m", "put", "-v", good) == [{"topic": "InOrder", "value": good}]


async def test_where_no_broker_is_registered_every_question_fails(capsys: Printed) -> None:
    """An empty table says that all is well."""
    nameserver = Nameserver(NodeSettings(role="nameserver", namesrv_port=0), SystemClock())
    await nameserver.start()
    questions = [
        "clusterList",
        "clusterList -c C",
        "topicList",
        "consumerProgress",
        "getConsumerConfig -g g",
        "getBrokerConfig -c C",
    ]
    for question in questions:
        asked = ["admin", *question.split(), "-n", nameserver.address]
        assert await asyncio.to_thread(cli.run, asked) == exits.FAILED, question
        assert "no broker is registered" in capsys.readouterr().err
    await nameserver.stop()

"""`rmq msg` and mqadmin's queryMsgBy... against a real broker."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from rmq import cli
from rmq.client import Client, ClientSettings, Message, MessageQueue, SendResult
from rmq.client.admin import calls, lookups
from rmq.client.shared.traceformat import Outcome, SubAfter, encode
from rmq.commands.shared import exits
from rmq.log.records import record
from rmq.model import RETRY_PREFIX, GroupConfig, TopicConfig
from rmq.net.commands import RegisterBroker, Send, SendAnswer
from rmq.net.transport.server import LATER, Call, Later
from rmq.testing import LocalBroker
from tests.broker.javaclient import JavaClient
from tests.broker.support import BORN, Peer, beat
from tests.client.scripted import Broker as Scripted
from tests.faults.node import NodeProcess
from tests.relaying import relay

Printed = pytest.CaptureFixture[str]


async def run(broker: LocalBroker, capsys: Printed, *arguments: str) -> tuple[int, str, str]:
    """Exit code, stdout, stderr."""
    capsys.readouterr()
    code = await asyncio.to_thread(cli.run, [*arguments, "-n", broker.nameserver])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


async def asked(broker: LocalBroker, capsys: Printed, *arguments: str) -> Any:
    code, out, err = await run(broker, capsys, *arguments, "-o", "json")
    assert code == exits.OK, err
    return json.loads(out)


async def send(broker: LocalBroker, *messages: Message) -> list[SendResult]:
    async with broker.client() as client, client.producer() as producer:
        return [await producer.send(message) for message in messages]


async def test_a_message_is_found_by_everything_it_has(capsys: Printed) -> None:
    async with LocalBroker() as broker:
        await broker.create_topic("T", 1)
        one, two = await send(
            broker,
            Message("T", b"one", tags="new", keys=["red", "round"], properties={"colour": "red"}),
            Message("T", b"\x00\xff", keys=["red"]),
        )
        found = await asked(broker, capsys, "msg", "unique", "T", one.message_id)
        assert found["complete"]
        message = found["messages"][0]
        assert (message["body"], message["keys"], message["tags"]) == ("one", ["red", "round"], "new")
        assert (message["topic"], message["queue"], message["offset"], message["broker"]) == ("T", 0, 0, "broker-a")
        assert message["properties"]["colour"] == "red"
        by_place = await asked(broker, capsys, "msg", "id", message["offset_message_id"])
        assert by_place == {**message, "broker": broker.address}
        for way in (("msg", "id", one.message_id, "-t", "T"), ("msg", "key", "T", "round"), ("msg", "key", "T", "new", "--tag")):
            assert (await asked(broker, capsys, *way))["messages"] == [message]
        assert await asked(broker, capsys, "msg", "at", "T", "broker-a", "0", "0") == message
        both = (await asked(broker, capsys, "msg", "key", "T", "red"))["messages"]
        assert [row.get("body") or row["body_base64"] for row in both] == ["one", "AP8="]
        assert len((await asked(broker, capsys, "msg", "key", "T", "red", "-m", "1"))["messages"]) == 1
        code, out, _ = await run(broker, capsys, "msg", "unique", "T", two.message_id)
        assert code == exits.OK
        assert "Body:              00ff (hex)" in out
        assert f"Message ID:        {two.message_id}" in out


async def test_printing_by_time(capsys: Printed) -> None:
    async with LocalBroker() as broker:
        await broker.create_topic("T", 2)
        await send(broker, *(Message("T", b"early %d" % number) for number in range(4)))
        await broker.clock.advance(10)
        middle = broker.clock.wall_ms() - 1000
        await send(broker, *(Message("T", b"late %d" % number) for number in range(40)))

        async def bodies(*arguments: str) -> set[str]:
            code, out, err = await run(broker, capsys, "msg", "print", "T", *arguments)
            assert code == exits.OK, err
            return {line.split("  ")[-1] for line in out.splitlines()}

        early, late = {f"early {number}" for number in range(4)}, {f"late {number}" for number in range(40)}
        assert await bodies() == early | late
        assert await bodies("--from", str(middle)) == late
        assert await bodies("--to", str(middle)) == early
        assert await bodies("-q", "0") | await bodies("-q", "1") == early | late
        assert len(await bodies("-m", "7")) == 7
        code, out, _ = await run(broker, capsys, "msg", "print", "T", "-o", "json")
        assert code == exits.OK
        assert {json.loads(line)["body"] for line in out.splitlines()} == early | late


async def test_mqadmins_names(capsys: Printed) -> None:
    async with LocalBroker() as broker:
        await broker.create_topic("T", 1)
        (one,) = await send(broker, Message("T", b"one", keys=["k"]))
        by_key = (await asked(broker, capsys, "admin", "queryMsgByKey", "-t", "T", "-k", "k", "-b", "0"))["messages"]
        by_unique = await asked(broker, capsys, "admin", "queryMsgByUniqueKey", "-t", "T", "-i", one.message_id)
        assert by_key == by_unique["messages"]
        place = by_key[0]["offset_message_id"]
        by_id = await asked(broker, capsys, "admin", "queryMsgById", "-i", place, "-t", "T")
        number = ("-b", "broker-a", "-i", "0", "--offset", "0")
        by_offset = await asked(broker, capsys, "admin", "queryMsgByOffset", "-t", "T", *number)
        assert by_id["message_id"] == by_offset["message_id"] == one.message_id
        code, out, _ = await run(broker, capsys, "admin", "querymsgbykey", "-t", "T", "-k", "k")
        assert code == exits.OK
        assert out.startswith("#Message ID")
        assert one.message_id in out


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["msg", "key", "T", "nobody"], exits.FAILED, "no message with key nobody in T"),
        (["msg", "unique", "T", "0" * 32], exits.FAILED, "no message with id"),
        (["msg", "id", "0" * 32], exits.USAGE, "-t TOPIC"),
        (["msg", "id", "xyz"], exits.USAGE, "names no place"),
        (["msg", "at", "T", "broker-a", "0", "9"], exits.FAILED, "has messages 0 to 0, not 9"),
        (["msg", "key", "Unknown", "k"], exits.FAILED, "Unknown"),
        (["msg", "key", "T", "k", "--from", "yesterday"], exits.USAGE, "is no time"),
    ],
)
async def test_what_is_not_there_is_said(arguments: list[str], code: int, said: str, capsys: Printed) -> None:
    async with LocalBroker() as broker:
        await broker.create_topic("T", 1)
        await send(broker, Message("T", b"one", keys=["k"]))
        found, _, err = await run(broker, capsys, *arguments)
        assert found == code
        assert said in err


async def test_an_id_of_no_message(capsys: Printed) -> None:
    """D9: the place is right, no record begins there."""
    async with LocalBroker() as broker:
        await broker.create_topic("T", 1)
        await send(broker, Message("T", b"one", keys=["k"]))
        place = (await asked(broker, capsys, "msg", "key", "T", "k"))["messages"][0]["offset_message_id"]
        code, _, err = await run(broker, capsys, "msg", "id", f"{int(place, 16) + 1:032X}")
        assert code == exits.FAILED
        assert "can not find message by the offset" in err


async def test_what_was_acknowledged_is_found_after_kills(tmp_path: Path) -> None:
    """C16, D10: twice kill -9 while the index is behind; every unique id is found, and the store checks."""
    node, ids = NodeProcess(tmp_path / "store", segment_bytes="16MiB"), list[str]()
    for number in range(3):
        await node.start()
        async with Client(f"127.0.0.1:{node.namesrv_port}") as client, client.producer() as producer:
            for one in range(100):
                ids.append((await producer.send(Message("K", b"x" * 200, keys=[f"{number}-{one}"]))).message_id)
            newest = await lookups.by_key(client, "K", f"{number}-99")
            assert [message.message_id for message in newest.messages] == ids[-1:]
            if number == 2:
                for each in ids:
                    assert len((await lookups.by_key(client, "K", each, unique=True)).messages) == 1
        await (node.kill() if number < 2 else node.stop())
    assert await asyncio.to_thread(cli.run, ["store", "verify", str(tmp_path / "store")]) == exits.OK


async def test_the_trace_of_a_message(capsys: Printed) -> None:
    """As mqadmin prints it (tests/interop/test_traces.py compares); what a stranger wrote there obeys nobody's terminal."""
    async with LocalBroker(trace_topic=True) as broker, broker.client(settings=ClientSettings(trace=True)) as client:
        sent = await client.producer("shop").send(Message("Orders", b"x", keys=["k"]))
        evil = SubAfter("r", sent.message_id, 3, False, "", Outcome.FAILED, -(10**18), "g\x1b[2J")
        await client.producer().send(Message("RMQ_SYS_TRACE_TOPIC", encode(evil).encode(), keys=[sent.message_id]))
        asking = ("admin", "queryMsgTraceById", "-i", sent.message_id)
        async with asyncio.timeout(30):
            while "Pub" not in (printed := (await run(broker, capsys, *asking))[1]):
                await broker.clock.advance(1)
        rows = [line.split() for line in printed.splitlines()]
        assert rows[0] == ["#Type", "#ProducerGroup", "#ClientHost", "#SendTime", "#CostTimes", "#Status"]
        assert rows[1][:3] == ["Pub", "shop", printed.split()[8]]
        assert rows[1][-1] == "success"
        assert rows[3] == ["#Type", "#ConsumerGroup", "#ClientHost", "#ConsumerTime", "#CostTimes", "#Status"]
        assert (rows[4][:2], rows[4][-2:]) == (["Sub", r"g\x1b[2J"], ["3ms", "failed"])
        notes = await asked(broker, capsys, *asking)
        assert sorted(note["type"] for note in notes) == ["Pub", "SubAfter"]
        code, _, err = await run(broker, capsys, *asking[:3], "unknown")
        assert code == exits.FAILED
        assert "do its clients trace" in err


async def consumed(broker: LocalBroker, *arguments: str) -> tuple[str, str]:
    """What `rmq consume T` prints on stdout and stderr; it listens to signals, so it is a process of its own."""
    command = [sys.executable, "-m", "rmq.cli", "consume", "T", "-n", broker.nameserver, *arguments]
    running = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE)
    out, err = await running.communicate()
    assert running.returncode == exits.OK, err
    return out.decode(), err.decode()


async def test_a_body_that_does_not_inflate(capsys: Printed) -> None:
    """Its producer says that it is compressed, and it is not: it is shown as it is stored, and those behind it come."""
    async with LocalBroker() as broker:
        await broker.create_topic("T", 1)
        peer = await Peer.connect(broker.address)
        draft = record.draft("T", b"\x01\x02", b"", sys_flag=1, born_timestamp=1000, born_host=BORN)
        await peer.ask(Send("p", "T", 0, draft))
        await peer.close()
        await send(broker, Message("T", b"behind it"))
        code, out, _ = await run(broker, capsys, "msg", "print", "T")
        assert code == exits.OK
        first, second = out.splitlines()
        assert "0102 (as stored: the body at" in first
        assert second.endswith("behind it")
        for form, shown in (("text", "0102 (as stored"), ("body", "behind it\n"), ("json", '"stored_body_base64":"AQI="')):
            out, err = await consumed(broker, "-g", form, "-c", "2", "-o", form)
            assert shown in out
            assert "behind it" in out
            assert ("does not inflate" in err) == (form == "body")


async def test_a_time_that_no_calendar_has(capsys: Printed) -> None:
    """As of a producer that gives nanoseconds: the number is shown."""
    async with LocalBroker() as broker:
        await broker.create_topic("T", 1)
        peer = await Peer.connect(broker.address)
        draft = record.draft("T", b"body", b"", born_timestamp=1_764_000_000_000_000_000, born_host=BORN)
        await peer.ask(Send("p", "T", 0, draft))
        await peer.close()
        code, out, err = await run(broker, capsys, "msg", "at", "T", "broker-a", "0", "0")
        assert (code, "Born Timestamp:    1764000000000000000" in out) == (exits.OK, True), err


async def test_what_others_know_is_found_beside_a_broker_that_is_silent(capsys: Printed) -> None:
    """The command said that there was no answer, and nothing else; also where nobody else has the topic."""
    async with LocalBroker() as broker, LocalBroker() as other, relay(other.address, goes_on=asyncio.Event()) as still:
        await broker.create_topic("T", 1)
        (sent,) = await send(broker, Message("T", b"x", keys=["k"]))
        registered = await Peer.connect(broker.nameserver)
        await registered.ask(RegisterBroker("C", "0-other", 0, still, 0, [TopicConfig("T", 1, 1), TopicConfig("U", 1, 1)]))
        for command in (("unique", "T", sent.message_id), ("key", "T", "k")):
            code, out, err = await run(broker, capsys, "msg", *command, "--timeout", "0.5")
            assert (code, sent.message_id in out) == (exits.FAILED, True), err
            assert "incomplete: a broker does not answer" in err
        code, out, err = await run(broker, capsys, "msg", "print", "T", "--timeout", "0.5")
        assert (code, "broker-a" in out, f"incomplete: 0-other: {still}" in err) == (exits.FAILED, True, True), err
        for command, failure in ((("key", "U", "k"), exits.UNKNOWN), (("print", "U"), exits.UNREACHABLE)):
            code, out, err = await run(broker, capsys, "msg", *command, "--timeout", "0.5")
            assert (code, out, still in err) == (failure, "", True), err
        await registered.close()


async def test_a_time_behind_messages_of_a_clock_that_was_ahead() -> None:
    """The first message of a time to come ended the list, and nothing was shown."""
    day_ms = 86_400_000
    async with LocalBroker() as broker, broker.client() as client:
        await broker.create_topic("T", 1)
        begins = {}
        for moved_ms, body in ((0, b"early"), (3650 * day_ms, b"ahead"), (-3649 * day_ms, b"now"), (day_ms, b"later")):
            broker.clock.jump_wall(moved_ms)
            begins[body] = broker.clock.wall_ms()
            await client.producer().send(Message("T", body))
        found = lookups.between(client, "T", begin_ms=begins[b"now"], end_ms=begins[b"later"] - 1)
        assert [one.body async for one in found] == [b"now"]
        span = await lookups.span(client, MessageQueue("T", "broker-a", 0), begins[b"now"], begins[b"later"] - 1)
        assert [one.body for one in await lookups.newest(client, span)] == [b"now"]


async def test_what_others_know_is_found_beside_a_broker_that_refuses(capsys: Printed) -> None:
    """The command ended with that refusal, and showed nothing; where nobody has it, both are said."""
    async with LocalBroker() as broker, LocalBroker(message_index=False) as other:
        await broker.create_topic("T", 1)
        (sent,) = await send(broker, Message("T", b"x", keys=["k"]))
        registered = await Peer.connect(broker.nameserver)
        await registered.ask(RegisterBroker("C", "a", 0, other.address, 0, [TopicConfig("T", 1, 1)]))
        for command in (("unique", "T", sent.message_id), ("key", "T", "k")):
            code, out, err = await run(broker, capsys, "msg", *command)
            assert (code, sent.message_id in out) == (exits.FAILED, True), err
            assert "incomplete: a broker does not answer, refuses" in err
        code, _, err = await run(broker, capsys, "msg", "key", "T", "another")
        assert (code, "messageIndexEnable" in err) == (exits.FAILED, True), err
        await registered.close()


async def test_what_a_silent_broker_does_not_say_is_left_out(capsys: Printed) -> None:
    """These commands ended with its failure, and showed nothing of the others; a change was made nowhere."""
    async with LocalBroker() as broker, LocalBroker() as other, relay(other.address, goes_on=asyncio.Event()) as still:
        await broker.create_topic("T", 1)
        async with broker.client() as client, client.consumer("g", "T", start="first") as consumer:
            await client.producer().send(Message("T", b"x"))
            await anext(consumer)
        registered = await Peer.connect(broker.nameserver)
        topics = [TopicConfig(name, 1, 1) for name in ("T", RETRY_PREFIX + "g", RETRY_PREFIX + "elsewhere")]
        await registered.ask(RegisterBroker("DefaultCluster", "other", 0, still, 0, topics))
        for command, shown in {
            "brokerStatus -c DefaultCluster": broker.address,
            "getBrokerConfig -c DefaultCluster": broker.address,
            "getConsumerConfig -g g": broker.address,
            "topicStatus -t T": "broker-a",
            "statsAll": "g ",
            "consumerProgress": "g ",
            "consumerProgress -g g -s true": "broker-a",
            "startMonitoring --rounds 1": " g ",
            "topicList -c": " g",
            "groupForbidden -c DefaultCluster -g g -t T": broker.address,
            "listUser -c DefaultCluster": "UserName",
            "listAcl -c DefaultCluster": "Subject",
            "listQuota -c DefaultCluster": "Subject",
            "getBrokerLiteInfo -c DefaultCluster": broker.address,
            "haStatus": "Broker Name",
            "getBrokerEpoch": "clusterName",
        }.items():
            code, out, err = await run(broker, capsys, "admin", *command.split(), "--timeout", "0.5")
            assert (code, shown in out) == (exits.FAILED, True), (command, out, err)
            assert [still in line for line in err.splitlines() if "incomplete" in line] == [True], (command, err)
        for command in ("consumerProgress -g elsewhere", "getBrokerConfig -b other"):
            code, out, err = await run(broker, capsys, "admin", *command.split(), "--timeout", "0.5")
            assert (code, out, still in err) == (exits.UNREACHABLE, "", True), (command, err)
        assert (await run(broker, capsys, "admin", "updateSubGroup", "-g", "h", "-b", "broker-a"))[0] == exits.OK
        for command in ("updateSubGroup -g g -c DefaultCluster -r 9", "cloneGroupOffset -s g -d h -t T --offline"):
            code, _, err = await run(broker, capsys, "admin", *command.split(), "--timeout", "0.5")
            assert (code, f"done at {broker.address}, not at {still}" in err) == (exits.UNKNOWN, True), (command, err)
        words = "resetOffset -g g -t T -b broker-a -q 0 --to first"
        code, out, err = await run(broker, capsys, "admin", *words.split(), "--timeout", "0.5")
        assert (code, "g goes on there" in out) == (exits.OK, True), err
        await registered.close()


async def test_what_a_broker_that_refuses_does_not_say_is_left_out(capsys: Printed) -> None:
    """As beside one that stands still: these commands ended with its refusal, and a change was made nowhere."""
    refusing = await Scripted("0-other").start()
    async with LocalBroker() as broker:
        async with broker.client() as client:
            await calls.update_group(client, GroupConfig("g"), broker=broker.address)
        registered = await Peer.connect(broker.nameserver)
        await registered.ask(RegisterBroker("DefaultCluster", "0-other", 0, refusing.address, 0, [TopicConfig("T", 1, 1)]))
        for command in ("brokerStatus -c DefaultCluster", "getBrokerConfig -c DefaultCluster", "getConsumerConfig -g g"):
            code, out, err = await run(broker, capsys, "admin", *command.split())
            said = broker.address in out, f"incomplete: {refusing.address}: REQUEST" in err
            assert (code, *said) == (exits.FAILED, True, True), (command, err)
        words = ["updateSubGroup", "-g", "g", "-c", "DefaultCluster", "-r", "9"]
        code, _, err = await run(broker, capsys, "admin", *words)
        assert (code, f"done at {broker.address}, not at {refusing.address}" in err) == (exits.FAILED, True), err
        code, out, err = await run(broker, capsys, "admin", "brokerStatus", "-b", "0-other")
        assert (code, out) == (exits.FAILED, ""), err
        await registered.close()
    await refusing.stop()


async def test_a_message_cannot_steer_the_terminal(capsys: Printed) -> None:
    """Nor look like several: its line is one line, and says what is in it."""
    steering = "\x1b[2Jall is well\r\n"
    async with LocalBroker() as broker:
        await broker.create_topic("T", 1)
        await send(broker, Message("T", steering.encode(), tags="a\x1b[8m", keys=["k\x9b1m"], properties={"name": steering}))
        _, line, _ = await run(broker, capsys, "msg", "print", "T")
        _, block, _ = await run(broker, capsys, "msg", "at", "T", "broker-a", "0", "0")
        received, _ = await consumed(broker, "-c", "1")
        assert line == received
        assert line.endswith(r"  a\x1b[8m  k\x9b1m  \x1b[2Jall is well\r\n" + "\n")
        assert r" name=\x1b[2Jall is well\r\n" in block
        assert all(letter.isprintable() or letter == "\n" for letter in line + block)
        assert len(block.splitlines()) == 18
        _, text, _ = await run(broker, capsys, "msg", "print", "T", "-o", "json")
        assert json.loads(text)["keys"] == ["k\x9b1m"]
        assert text.rstrip("\n").isprintable()


async def test_a_member_cannot_steer_the_terminal(capsys: Printed) -> None:
    """Nor end a command by what it says of itself."""
    steering, shown = "\x1b[2Jall is well", r"\x1b[2Jall is well"
    queue = json.dumps({"topic": steering, "brokerName": "b", "queueId": 0})
    held = {queue: {"cachedMsgCount": 1, "lastConsumeTimestamp": 1}}
    async with LocalBroker() as broker, JavaClient.connect(broker.address) as java:
        await broker.create_topic("T", 1)
        (sent,) = await send(broker, Message("T", b"x"))
        assert (await java.ask(beat("me@1", "g")))[0].code == 0
        for started in ("9" * 20, "9" * 5000):
            said = {"properties": {"PROP_CONSUMER_START_TIMESTAMP": started}, "mqTable": held}
            java.answers[307] = json.dumps({**said, "jstack": f"{steering}\n\tat f(a)\n"}).encode()
            code, out, err = await run(broker, capsys, "admin", "consumerStatus", "-g", "g", "-i", "me@1", "-s")
            assert (code, err.count("\n")) == (exits.FAILED, 1), err
            assert f"me@1 has of {shown}/b/0 1 messages" in err
            assert f"{shown}\n        at f(a)\n" in out
            code, out, _ = await run(broker, capsys, "admin", "consumerStatus", "-g", "g", "-o", "json")
            assert (code, json.loads(out)[0]["started"]) == (exits.FAILED, None)
            _, _, err = await run(broker, capsys, "admin", "startMonitoring", "--rounds", "1")
            assert f"me@1 has of {shown}/b/0 1 messages" in err
        java.answers[309] = json.dumps({"consumeResult": "CR_LATER", "remark": steering}).encode()
        handle = ("admin", "queryMsgById", "-t", "T", "-i", sent.message_id, "-g", "g", "-d", "me@1")
        assert shown in (await run(broker, capsys, *handle))[1]
        _, text, _ = await run(broker, capsys, "msg", "at", "T", "broker-a", "0", "0", "-o", "json")
        by_place = ("admin", "queryMsgById", "-i", json.loads(text)["offset_message_id"], "-g", "g", "-d", "me@1")
        assert shown in (await run(broker, capsys, *by_place))[1], "its broker has no name then"
        java.answers[307] = java.answers[309] = steering
        for command in (handle, ("admin", "consumerStatus", "-g", "g")):
            code, _, err = await run(broker, capsys, *command)
            assert (code, shown in err, "\x1b" in err) == (exits.FAILED, True, False), err


async def test_a_note_with_a_number_that_is_no_long(capsys: Printed) -> None:
    """Anybody may write notes; with -o json one ended the command as a bug."""
    async with LocalBroker(trace_topic=True) as broker:
        note = SubAfter("r", "M1", 3, False, "", Outcome.SUCCESS, 5, "g")
        async with broker.client() as client, client.producer() as producer:
            for each in (note._replace(cost_ms=10**20 - 1), note):
                await producer.send(Message("RMQ_SYS_TRACE_TOPIC", encode(each).encode(), keys=["M1"]))
        (found,) = await asked(broker, capsys, "admin", "queryMsgTraceById", "-i", "M1")
        assert found["cost_ms"] == 3


async def test_a_send_that_is_not_its_first_and_reaches_nobody(capsys: Printed) -> None:
    """It ended with 3, which says that nothing was done: whoever did it again sent the others twice."""
    broker = await Scripted("a", {"T": 1}).start()
    stopping: list[asyncio.Task[None]] = []

    def last(request: Send, call: Call) -> Later:
        call.answer(SendAnswer(0, 0, 0))
        stopping.append(asyncio.create_task(broker.stop()))
        return LATER

    broker.also(Send, last)
    arguments = ["send", "T", "one", "two", "-n", broker.address, "--timeout", "1"]
    assert await asyncio.to_thread(cli.run, arguments) == exits.UNKNOWN
    said = capsys.readouterr().err
    assert "sent 1 message to T" in said
    assert "look before doing it again" in said
    await asyncio.gather(*stopping)

"""POP state of a store that Apache RocketMQ wrote (golden set s16): what was handed out comes back, what was acknowledged not."""

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from rmq.broker.adoption.tables import parse_json
from rmq.broker.pending.receipts import OPEN, REVIVE_GROUP
from rmq.log.records import record
from rmq.log.records.record import Record
from rmq.model import REVIVE_PREFIX
from rmq.testing import LocalBroker, TestClock
from tests.broker.popping import ack, bodies, pop, popped
from tests.broker.support import Peer, everything
from tests.golden import after, all_records, setting, told, unpack

NAME = "s16-pop"
CLUSTER = "GoldenCluster"
HOUR_MS = 3_600_000
RETURNED = "%RETRY%s16_PG_s16-pop"


def acked(said: dict[str, Any], group: str) -> set[str]:
    return {row["msgId"] for row in said["pop"] if row["op"] == "ack" and row["group"] == group}


def adopting(name: str, root: Path, clock: TestClock) -> LocalBroker:
    """Our broker on the golden set that was unpacked to `root`."""
    return LocalBroker(
        store_dir=root,
        clock=clock,
        idle_timeout_ms=86_400_000,
        segment_bytes=setting(name, "mappedFileSizeCommitLog"),
        max_message_bytes=8192,
        cluster_name=CLUSTER,
        broker_name="broker-a",
    )


async def test_what_was_popped_under_rocketmq_comes_back_unless_it_was_acknowledged(tmp_path: Path) -> None:
    """C10: receipts in the revive log, those that wait in the timer still, revived messages, messages in order."""
    root, said = unpack(NAME, tmp_path), told(NAME)
    clock = TestClock(wall_ms=said["stoppedAtMs"])
    async with adopting(NAME, root, clock) as broker:
        peer = await Peer.connect(broker.address)
        assert bodies(await take_all(peer, clock, "s16_PGO", "s16-ord", order=True)) == [], "handed out in order, and not done"
        sent = {row["result"]["msgId"]: row["body"] for row in said["sent"] if row["topic"] == "s16-pop"}
        for group, hours in (("s16_PG", 3), ("s16_PG2", 0)):
            expected = set(sent) - acked(said, group)
            got: set[str] = set()
            for _ in range(40 * hours or 3):
                for message_id in await ids(peer, group):
                    assert message_id in expected, "it was acknowledged under RocketMQ"
                    got.add(message_id)
                if got == expected:
                    break
                clock.jump_wall(HOUR_MS // 20)
                await clock.advance(2)
            assert got == expected
        clock.jump_wall(HOUR_MS)
        numbers = [one.queue_offset for one in await take_all(peer, clock, "s16_PGO", "s16-ord", order=True)]
        assert numbers[:2] == [2, 3], "two of four were acknowledged"
        await peer.close()
        await broker.stop_broker()
    exported = json.loads((root / "config" / "consumerOffset.json").read_bytes())["offsetTable"]
    assert exported[f"rmq_sys_REVIVE_LOG_{CLUSTER}@CID_RMQ_SYS_REVIVE_GROUP"]
    order = json.loads((root / "config" / "consumerOrderInfo.json").read_bytes())
    assert order["table"]["s16-ord@s16_PGO"]["0"]["o"][0] == 2


@pytest.mark.parametrize("name", ["s26-popmerge", "s27-popmerge-killed"])
async def test_with_a_buffer_of_receipts_the_same_messages_come_as_under_rocketmq(tmp_path: Path, name: str) -> None:
    """enablePopBufferMerge. What RocketMQ's memory alone knew comes again after its kill, here and there."""
    root, said = unpack(name, tmp_path), told(name)
    clock = TestClock(wall_ms=said["stoppedAtMs"])
    async with adopting(name, root, clock) as broker:
        peer = await Peer.connect(broker.address)
        for group, numbers in after(name)["popAfterRestart"].items():
            expected = sorted(b"m%d" % number for number in numbers)
            got: list[bytes] = []
            for _ in range(30):
                request = pop("Orders", group=group, hidden_ms=HOUR_MS)
                found = popped(await peer.ask(request), request)
                await ack(peer.ask, *found, group=group)
                got += bodies(found)
                if len(got) >= len(expected):
                    break
                clock.jump_wall(5000)
                await clock.advance(2)
            assert sorted(got) == expected, group
        clock.jump_wall(HOUR_MS)
        await clock.advance(5)
        for group in after(name)["popAfterRestart"]:
            assert bodies(await take_all(peer, clock, group, "Orders")) == []
        await peer.close()


async def test_a_receipt_that_comes_out_of_the_timer_late_waits_for_its_acknowledgements(tmp_path: Path) -> None:
    """After a long stop all of it is due at once; the acknowledgements stand behind, in a later slot of the timer."""
    root = unpack("s26-popmerge", tmp_path)
    clock = TestClock(wall_ms=told("s26-popmerge")["stoppedAtMs"] + HOUR_MS)
    sizes = {"segment_bytes": 65536, "max_message_bytes": 8192}
    async with LocalBroker(store_dir=root, clock=clock, cluster_name=CLUSTER, broker_name="broker-a", **sizes) as broker:
        peer = await Peer.connect(broker.address)
        revive = f"rmq_sys_REVIVE_LOG_{CLUSTER}"
        while len(await everything(peer, revive)) + len(await everything(peer, revive, 1)) < 25:
            await clock.advance(0.1)
        await clock.advance(2)
        first = bodies(await take_all(peer, clock, "GD", "Orders"))
        assert first == [b"m%d" % number for number in range(12, 24)], "the popped ones may be acknowledged"
        back: list[bytes] = []
        while len(back) < 7:
            await clock.advance(1)
            back += bodies(await take_all(peer, clock, "GD", "Orders"))
        assert sorted(back) == sorted(b"m%d" % number for number in (3, 4, 5, 6, 7, 10, 11))
        await peer.close()


async def test_acknowledgements_that_are_due_in_the_timer_come_before_what_is_due_of_their_receipts(tmp_path: Path) -> None:
    """The receipt came out of the timer, then the machine stood still until its acknowledgements and its end were due."""
    root, slot_ms = unpack("s26-popmerge", tmp_path), 1_795_331_411_000  # GC's pop of eight, five acknowledged
    clock = TestClock(wall_ms=slot_ms + 500)
    sizes = {"segment_bytes": 65536, "max_message_bytes": 8192}
    async with LocalBroker(store_dir=root, clock=clock, cluster_name=CLUSTER, broker_name="broker-a", **sizes) as broker:
        peer = await Peer.connect(broker.address)
        revive = f"rmq_sys_REVIVE_LOG_{CLUSTER}"
        while len(await everything(peer, revive)) < 7:
            await clock.advance(0.1)
        [revive] = [job.work for job in broker.serving.jobs() if job.name == "revive"]
        clock.jump_wall(20_000)
        if (pending := revive()) is not None:  # before the timer has its turn
            await pending
        back: list[bytes] = []
        while len(back) < 6:
            await clock.advance(1)
            found = await take_all(peer, clock, "GC", "Orders")
            back += [one.body for one in found if one.tries]
        await clock.advance(5)
        back += bodies(await take_all(peer, clock, "GC", "Orders"))
        assert sorted(back) == sorted(b"m%d" % number for number in (5, 6, 7, 9, 10, 11))
        await peer.close()


async def test_how_far_revive_need_not_look_counts_acknowledgements_that_rocketmq_does_not_count(tmp_path: Path) -> None:
    """RocketMQ names the last checkpoint that it is done with, we the last record before an open one: three `ack`s further."""
    root, revive = unpack("s26-popmerge", tmp_path), f"rmq_sys_REVIVE_LOG_{CLUSTER}"
    key = f"{revive}@CID_RMQ_SYS_REVIVE_GROUP"
    theirs = parse_json((root / "config" / "consumerOffset.json").read_bytes())["offsetTable"][key]
    clock = TestClock(wall_ms=told("s26-popmerge")["stoppedAtMs"])
    sizes = {"segment_bytes": 65536, "max_message_bytes": 8192}
    async with LocalBroker(store_dir=root, clock=clock, cluster_name=CLUSTER, **sizes) as broker:
        peer = await Peer.connect(broker.address)
        passed = [(await everything(peer, revive, queue_id))[theirs[str(queue_id)] + 1 :] for queue_id in (0, 1)]
        await peer.close()
        await broker.stop_broker()
    ours = json.loads((root / "config" / "consumerOffset.json").read_bytes())["offsetTable"][key]
    assert (theirs, ours) == ({"0": 0, "1": 0}, {"0": 3, "1": 3})
    assert [record.bytes_to_properties(one.properties)["TAGS"] for queue in passed for one in queue] == ["ack"] * 6


async def test_acknowledgements_in_the_timer_count_for_a_receipt_that_has_left_it(tmp_path: Path) -> None:
    """RocketMQ stopped in the second between the two: the receipt is in its revive log already, what acknowledges it is not."""
    root = cut_before_the_first_acknowledgement(unpack(NAME, tmp_path))
    async with adopting(NAME, root, TestClock(wall_ms=told(NAME)["stoppedAtMs"])) as broker:
        [revive] = [job.work for job in broker.serving.jobs() if job.name == "revive"]
        if (pending := revive()) is not None:  # before the timer has its turn
            await pending
        peer = await Peer.connect(broker.address)
        sent = [unique_key(one) for one in await everything(peer, "s16-pop")]
        assert [unique_key(one) for one in await everything(peer, RETURNED)] == sent[5:8], "of the receipt's eight five are done"
        await peer.close()


def cut_before_the_first_acknowledgement(root: Path) -> Path:
    """The store as if RocketMQ's timer had stopped when it had handed on a receipt, and nothing that acknowledges it."""
    revived = [one for one in all_records(root) if one.topic.startswith(REVIVE_PREFIX)]
    first = next(one for one in revived if record.bytes_to_properties(one.properties)["TAGS"] != OPEN)
    for segment in (root / "commitlog").iterdir():
        with segment.open("r+b") as file:
            size = segment.stat().st_size
            file.truncate(min(max(first.physical_offset - int(segment.name), 0), size))
            file.truncate(size)
    timercheck = root / "config" / "timercheck"
    read_ms = int(record.bytes_to_properties(first.properties)["TIMER_OUT_MS"])
    timercheck.write_bytes(struct.pack(">q", read_ms) + timercheck.read_bytes()[8:])
    offsets = root / "config" / "consumerOffset.json"
    said = parse_json(offsets.read_bytes())
    said["offsetTable"] = {name: at for name, at in said["offsetTable"].items() if REVIVE_GROUP not in name}
    offsets.write_text(json.dumps(said))
    return root


def unique_key(stored: Record) -> str:
    return record.bytes_to_properties(stored.properties)["UNIQ_KEY"]


async def take_all(peer: Peer, clock: TestClock, group: str, topic: str, **fields: Any) -> list[Any]:
    request = pop(topic, group=group, **fields)
    return popped(await peer.ask(request), request)


async def ids(peer: Peer, group: str) -> list[str]:
    request = pop("s16-pop", group=group)
    answer = await peer.ask(request)
    found = [unique_key(one) for one in record.iterate(answer.messages)]
    await ack(peer.ask, *popped(answer, request), group=group)
    return found

"""Delay levels by a list of one's own (messageDelayLevel): served, changed later, of a directory that RocketMQ wrote."""

import json
import struct
from pathlib import Path

import pytest

from rmq import cli
from rmq.broker.pending.delays import source_of
from rmq.commands.shared import exits
from rmq.config.settings import NodeSettings, parse
from rmq.delivery.due import level_slot
from rmq.errors import InvalidArgument
from rmq.log.records import record
from rmq.log.records.record import bytes_to_properties
from rmq.model import DELAY_TOPIC
from rmq.testing import LocalBroker
from tests.broker.javaclient import JavaClient
from tests.broker.support import Peer, everything
from tests.broker.test_delays import arrived, delayed

LEVELS = " ".join(["7s", *["1h"] * 18, "20s"])  # two more than RocketMQ's own


async def test_any_list_is_served_and_what_waits_keeps_its_delay(tmp_path: Path) -> None:
    """After a restart with another list, too; the highest level is the last of the list."""
    async with LocalBroker(store_dir=tmp_path / "store", delay_levels=LEVELS) as broker:
        await broker.create_topic("T", 1)
        peer = await Peer.connect(broker.address)
        await peer.send(delayed(b"short", DELAY=1), delayed(b"long", DELAY=99))
        [short] = await everything(peer, DELAY_TOPIC, 0)
        assert bytes_to_properties(short.properties)["RMQ_DELAY_MS"] == "7000"
        assert source_of(short)[0].due_ms == level_slot(short.store_timestamp, 7000)
        assert record.entry_code(short) == short.store_timestamp + 7000
        await peer.close()
    assert cli.run(["store", "verify", str(tmp_path / "store"), "--index-slots", "10000", "-o", "json"]) == 0
    async with LocalBroker(store_dir=tmp_path / "store", delay_levels="1h") as broker:
        peer = await Peer.connect(broker.address)
        found = await arrived(peer, broker.clock, 2)
        assert [message.body for message in found] == [b"short", b"long"]
        for message, waits_ms in zip(found, (7000, 20_000), strict=True):
            due_ms = int(bytes_to_properties(message.properties)["RMQ_SRC"].split()[-1])
            assert waits_ms <= due_ms - short.store_timestamp < waits_ms + 1000
            assert waits_ms <= message.store_timestamp - short.store_timestamp  # a start on a busy machine may take longer
        await peer.send(delayed(b"own", DELAY=1, RMQ_DELAY_MS=1))  # nobody sets his own
        [_, waiting] = await everything(peer, DELAY_TOPIC)
        assert bytes_to_properties(waiting.properties)["RMQ_DELAY_MS"] == "3600000"
        await peer.close()


async def test_messages_whose_headers_look_alike_wait_by_it_too() -> None:
    """The codec makes such messages as they wait where levels are RocketMQ's own, and is told nothing of this list."""
    async with LocalBroker(delay_levels=LEVELS) as broker, JavaClient.connect(broker.address) as java:
        await broker.create_topic("T", 1)
        peer = await Peer.connect(broker.address)
        for number in range(4):
            said = {"UNIQ_KEY": f"{number}A", "DELAY": "1", "__transactionId__": "x"}
            answer, _ = await java.send(b"%d" % number, i=record.properties_to_bytes(said).decode())
            assert answer.code == 0
        waiting = await everything(peer, DELAY_TOPIC, 0)
        assert [one.body for one in waiting] == [b"0", b"1", b"2", b"3"]
        for one in waiting:
            assert record.entry_code(one) == one.store_timestamp + 7000
            assert bytes_to_properties(one.properties)["__transactionId__"] == "x"
        await peer.close()


async def test_due_times_of_another_list_are_not_damage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Checked by the configuration, where it is given."""
    store = tmp_path / "store"
    async with LocalBroker(store_dir=store) as broker:
        await broker.create_topic("T", 1)
        peer = await Peer.connect(broker.address)
        await peer.send(delayed(DELAY=1))
        [waiting] = await everything(peer, DELAY_TOPIC)
        await peer.close()
    unit = store / "consumequeue" / DELAY_TOPIC / "0" / f"{0:020d}"
    data = bytearray(unit.read_bytes())
    data[12:20] = struct.pack(">q", waiting.store_timestamp + 7000)  # as RocketMQ writes it with a list that begins with 7s
    unit.write_bytes(data)
    asked = ["store", "verify", str(store), "--index-slots", "10000", "-o", "json"]
    assert cli.run(asked) == exits.OK
    assert "not checked" in json.dumps(json.loads(capsys.readouterr().out))
    for levels, code in (("7s 1d", exits.OK), ("9s", exits.DAMAGED)):
        (tmp_path / "broker.conf").write_text(f"messageDelayLevel={levels}\n")
        assert cli.run([*asked, "--config", str(tmp_path / "broker.conf")]) == code
        assert "not checked" not in capsys.readouterr().out


@pytest.mark.parametrize("wrong", ["", "1", "1x", "0s", "1s,2s", "1.5s", " ".join(["1s"] * 63)])
def test_lists_that_mean_nothing_are_refused(wrong: str) -> None:
    with pytest.raises(InvalidArgument, match="delay_levels"):
        NodeSettings(delay_levels=wrong)


def test_a_list_in_rocketmqs_form_is_read() -> None:
    levels = str(parse("delay_levels", " 1s 2m  3h 4d "))
    assert NodeSettings(delay_levels=levels).delays_ms == (1000, 120_000, 10_800_000, 345_600_000)

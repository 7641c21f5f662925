"""A store's directory that is moved under its running node, or covered by another one, as by a disk that is mounted late."""

from pathlib import Path

import pytest

from rmq.codes import ResponseCode as R
from rmq.errors import Refusal, StoreError
from rmq.net.commands import UpdateTopic
from rmq.net.commands.configuration import UpdateBrokerConfig
from rmq.testing import LocalBroker
from tests.broker.support import Peer, bodies, send


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


async def fill(broker: LocalBroker, body: bytes) -> Peer:
    peer = await Peer.connect(broker.address)
    await peer.ask(UpdateTopic("T", read_queue_nums=1, write_queue_nums=1))
    await peer.ask(send("T", body))
    return peer


async def first_of(broker: LocalBroker) -> bytes:
    peer = await Peer.connect(broker.address)
    try:
        return bodies(await peer.pull("T", 0))[0]
    finally:
        await peer.close()


async def test_a_store_that_comes_in_the_place_of_a_running_one_stays_as_it_is(tmp_path: Path) -> None:
    """D16: the node wrote into it by name, and what had been acknowledged there was lost."""
    place, disk, covered = tmp_path / "store", tmp_path / "disk", tmp_path / "covered"
    async with LocalBroker(store_dir=place) as broker:
        await (await fill(broker, b"old")).close()
    place.rename(disk)
    broker = LocalBroker(store_dir=place)
    async with broker:
        peer = await fill(broker, b"new")
        place.rename(covered)
        disk.rename(place)
        before = content(place)
        for _ in range(9):
            await broker.clock.advance(10)
        with pytest.raises(Refusal, match="not the directory that was opened.*start it again") as refused:
            await peer.ask(send("T", b"refused"))
        assert refused.value.code == R.SERVICE_NOT_AVAILABLE
        await peer.close()
        with pytest.raises(StoreError, match="not the directory that was opened"):
            await broker.stop_broker()
        assert content(place) == before
        await broker.start_broker()
        assert await first_of(broker) == b"old"
        await broker.stop_broker()
        place.rename(disk)
        covered.rename(place)
        await broker.start_broker()
        assert await first_of(broker) == b"new"


async def test_a_store_that_is_moved_away_under_its_node_takes_nothing_more(tmp_path: Path) -> None:
    """It went on until the log's file was full; where the directory was deleted all of that was lost."""
    place, away = tmp_path / "store", tmp_path / "away"
    async with LocalBroker(store_dir=place) as broker:
        peer = await fill(broker, b"kept")
        place.rename(away)
        await broker.clock.advance_until(lambda: any("not the directory" in why for why in broker.serving.waits_for()), 1.0)
        assert await peer.refusal(send("T", b"refused")) == R.SERVICE_NOT_AVAILABLE
        away.rename(place)
        await broker.clock.advance_until(lambda: not broker.serving.waits_for(), 1.0)
        await peer.ask(send("T", b"taken"))
        await peer.close()


async def test_settings_are_not_kept_in_a_store_that_came_in_the_place_of_this_one(tmp_path: Path) -> None:
    """They were written into it, and held at its next start."""
    place = tmp_path / "store"
    async with LocalBroker(store_dir=place) as broker:
        peer = await fill(broker, b"kept")
        place.rename(tmp_path / "away")
        place.mkdir()
        assert await peer.refusal(UpdateBrokerConfig("fileReservedTime=1\n")) == R.SERVICE_NOT_AVAILABLE
        assert not list(place.iterdir())
        place.rmdir()
        (tmp_path / "away").rename(place)
        await peer.close()

"""Damage in the log of a member of a group: put right with what the others have, at a start and while it runs."""

import asyncio
import contextlib
import io
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from rmq import cli
from rmq.broker.replication import peerrepair
from rmq.broker.replication.peerrepair import read_log
from rmq.codes import ResponseCode
from rmq.commands.shared import exits
from rmq.errors import Refusal, RmqError
from rmq.log.files.disk import RealDisk
from rmq.log.records.record import host_bytes
from rmq.log.repair import repair
from rmq.log.repair.peerrepair import read_part
from rmq.log.repair.verify import Verifier
from rmq.model import EpochEntry
from rmq.net.commands import GetRuntimeInfo, Ping, UpdateTopic
from rmq.net.commands.peers import AddPeer, GetGroupStatus, GroupStatus, IntroducePeer, ReadLog, TransferLeader
from rmq.testing import until
from tests.broker.groups import GROUP, LocalGroup
from tests.broker.support import Peer, bodies, flip_voters, send
from tests.broker.test_fixed import Pair
from tests.log.conftest import Bench

ALL = ("n0", "n1", "n2")


@pytest.fixture
async def group(tmp_path: Path) -> AsyncIterator[LocalGroup]:
    """Six messages, committed by all three nodes; how far each is was saved."""
    async with LocalGroup(tmp_path) as group:
        leader = await group.connect(await group.leader())
        await leader.ask(UpdateTopic("T", read_queue_nums=1, write_queue_nums=1))
        await leader.send(*(send("T", b"message %d" % number) for number in range(6)))
        await group.level()
        await group.clock.advance(11)
        yield group


def flip(store: Path, body: bytes) -> None:
    """Another byte in the middle of that body, in the first file of the log."""
    path = store / "commitlog" / f"{0:020d}"
    content = path.read_bytes()
    at = content.index(body) + len(body) // 2
    with path.open("r+b") as file:
        file.seek(at)
        file.write(bytes((content[at] ^ 1,)))


def repair_by_hand(root: Path) -> None:
    """As `rmq store repair --yes`."""
    report = Verifier(RealDisk(), str(root), 10_000).run()
    for step in repair.plan(RealDisk(), str(root), report, 16 << 20, host_bytes("127.0.0.1", 1)):
        step.do()


def crashed(store: Path) -> None:
    """The next start walks the end of the log."""
    (store / "rmq" / "run").unlink()


async def equal(group: LocalGroup, *names: str) -> None:
    """R2: all that is committed is the same in all logs, byte for byte."""
    await group.level()
    end = (await group.status(names[0])).end
    assert len({(group.store(name) / "commitlog" / f"{0:020d}").read_bytes()[:end] for name in names}) == 1


async def elected(group: LocalGroup) -> None:
    await group.clock.advance(1.5)  # their patience
    await group.leader()


async def lead(group: LocalGroup, name: str) -> None:
    while (leader := await group.leader()) != name:
        peer = await group.connect(leader)
        with contextlib.suppress(Refusal):  # the leader has not heard of it lately
            await peer.ask(TransferLeader(name))
        await group.clock.advance(0.1)


async def asked(address: str) -> GroupStatus:
    """The status of a node that is being started."""
    async with asyncio.timeout(20):
        while True:
            try:
                peer = await Peer.connect(address, "status")
            except RmqError:
                await asyncio.sleep(0)
                continue
            try:
                found: GroupStatus = await peer.ask(GetGroupStatus())
            except Refusal:  # its store is not open yet
                continue
            finally:
                await peer.close()
            return found


async def test_a_member_repairs_its_log_from_the_others_and_may_lead_again(
    group: LocalGroup, caplog: pytest.LogCaptureFixture
) -> None:
    """Stories 47 and 48, D8: one wrong bit in the middle."""
    name = (await group.followers())[0]
    await group.stop(name)
    flip(group.store(name), b"message 3")
    crashed(group.store(name))
    await group.start(name)
    await equal(group, *ALL)
    follower = await group.connect(name)
    assert bodies(await follower.pull("T", 0)) == [b"message %d" % number for number in range(6)]
    assert (await group.status(name)).damaged == ""
    assert "they are whole again" in caplog.text
    await follower.close()
    await lead(group, name)


async def test_damage_where_voters_stand_is_repaired_behind_a_stop_in_order(
    group: LocalGroup, caplog: pytest.LogCaptureFixture
) -> None:
    """D8: who votes is read at each start, and from nothing that does not agree with its checksum."""
    name = (await group.followers())[0]
    await group.stop(name)
    flip_voters(group.store(name))
    await group.start(name)
    await equal(group, *ALL)
    assert "they are whole again" in caplog.text


async def test_damage_that_a_start_does_not_see_is_repaired_when_an_operator_reads_it(
    group: LocalGroup, caplog: pytest.LogCaptureFixture
) -> None:
    """Docs/operators, when a disk lies: verify names the place; while that node leads, the message there is read."""
    name = (await group.followers())[0]
    await group.stop(name)
    flip(group.store(name), b"message 3")
    findings = Verifier(RealDisk(), str(group.store(name)), 10_000).run().findings
    assert [found.where for found in findings if found.damage] == ["commitlog"]
    await group.start(name)
    await group.level()
    assert not (await group.status(name)).damaged
    await lead(group, name)
    read = ["msg", "at", "T", GROUP, "0", "3", "-n", group.nameserver]
    with contextlib.redirect_stderr(io.StringIO()) as said:
        assert await asyncio.to_thread(cli.run, read) == exits.FAILED
    assert "a member of a group takes them from the others by itself" in said.getvalue()
    await until(lambda: "they are whole again" in caplog.text)
    assert await asyncio.to_thread(cli.run, read) == exits.OK


async def test_two_of_three_are_damaged_at_different_places(group: LocalGroup, caplog: pytest.LogCaptureFixture) -> None:
    """Neither takes part before it is whole, and yet each repairs the other; the third is not even there."""
    await group.stop(*ALL)
    for name, body in (("n1", b"message 2"), ("n2", b"message 4")):
        flip(group.store(name), body)
        crashed(group.store(name))
    await group.clock.advance_until(asyncio.create_task(group.start("n1", "n2")).done)
    await elected(group)
    await equal(group, "n1", "n2")
    assert caplog.text.count("they are whole again") == 2
    await group.start("n0")
    await equal(group, *ALL)


async def test_a_damaged_node_asks_a_member_that_its_settings_do_not_name(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Docs/operators: once a node was added the list in the log counts. Its bytes may be the only ones that are left."""
    async with LocalGroup(tmp_path, spare=1) as group:
        first = await group.leader()
        leader = await group.connect(first)
        await leader.ask(UpdateTopic("T", read_queue_nums=1, write_queue_nums=1))
        await leader.send(*(send("T", b"message %d" % number) for number in range(6)))
        await group.start("n3")
        await leader.ask(AddPeer("n3", group.peer_address("n3")))
        await group.level()
        await group.clock.advance(11)
        victim = (await group.followers())[0]
        await group.stop(*(name for name in group.nodes if name != "n3"))
        flip(group.store(victim), b"message 3")
        crashed(group.store(victim))
        async with asyncio.timeout(30):
            await group.clock.advance_until(asyncio.create_task(group.start(victim)).done)
        assert "they are whole again, as n3 has them" in caplog.text


async def test_damage_that_all_share_lets_nobody_lead_until_one_is_repaired_by_hand(group: LocalGroup) -> None:
    """D8: nobody votes, nobody takes anything, each says where and what for; tombstones spread as any bytes do."""
    await group.stop(*ALL)
    for name in ALL:
        flip(group.store(name), b"message 3")
        crashed(group.store(name))
    starting = [asyncio.create_task(group.start(name)) for name in ALL]
    for name in ALL:
        address = group.address(name)
        status = await asked(address)
        assert (status.role, status.node) == ("damaged", name)
        while not all(f"{other}: damaged there" in status.damaged for other in ALL if other != name):
            await group.clock.advance(1)
            status = await asked(address)
    peer = await Peer.connect(group.address("n0"))
    assert "are damaged" in (await peer.ask(GetRuntimeInfo())).table["storeDamaged"]
    with pytest.raises(Refusal, match="being repaired.*try again later") as refused:
        await peer.ask(send("T", b"x"))
    assert refused.value.code == ResponseCode.SERVICE_NOT_AVAILABLE
    await peer.close()
    for task in starting:
        assert not task.done()
        task.cancel()
    await asyncio.wait(starting)
    group.nodes.clear()
    repair_by_hand(group.store("n0"))
    await group.clock.advance_until(asyncio.create_task(group.start(*ALL)).done)
    await elected(group)
    await equal(group, *ALL)
    for name in ALL:
        peer = await group.connect(name)
        found = [body for number in (0, 3, 4) for body in bodies(await peer.pull("T", number))]
        assert found[:3] == [b"message 0", b"message 1", b"message 2"]
        assert found[-2:] == [b"message 4", b"message 5"]
    await group.stop(*ALL)
    for name in ALL:
        report = Verifier(RealDisk(), str(group.store(name)), 10_000).run()
        assert report.clean, (name, report.findings)


async def test_a_message_is_taken_from_who_has_it_not_its_tombstone_from_who_lost_it(group: LocalGroup) -> None:
    """D8: n0 was repaired by hand too early; n1 waits for n2, though n0 is there."""
    await group.stop(*ALL)
    for name in ("n0", "n1"):
        flip(group.store(name), b"message 3")
        crashed(group.store(name))
    repair_by_hand(group.store("n0"))
    address = group.address("n1")
    starting = asyncio.create_task(group.start("n0", "n1"))
    while "n0: at" not in (status := await asked(address)).damaged:
        await group.clock.advance(1)
    assert "it has a tombstone" in status.damaged
    await group.start("n2")
    await group.clock.advance_until(starting.done)
    await starting
    await elected(group)
    await group.level()
    peer = await group.connect("n1")
    assert bodies(await peer.pull("T", 3)) == [b"message 3", b"message 4", b"message 5"]


async def test_damage_that_the_leader_meets_while_it_serves_ends_its_leadership_and_is_repaired(group: LocalGroup) -> None:
    """D8, story 48: a reader is refused once, no restart is needed."""
    name = await group.leader()
    others = [other for other in ALL if other != name]
    await group.stop(*others)
    await group.stop(name)
    flip(group.store(name), b"message 3")
    await group.start(name)
    await group.start(*others)
    await elected(group)
    await lead(group, name)
    peer = await group.connect(name)
    with pytest.raises(Refusal, match="are damaged"):
        await peer.pull("T", 3)
    await group.leader(but=name)  # the clock is not moved: a leader that does not hear its followers hands nothing over
    await equal(group, *ALL)
    assert bodies(await peer.pull("T", 3)) == [b"message 3", b"message 4", b"message 5"]
    assert (await group.status(name)).damaged == ""


async def test_a_slave_repairs_its_log_from_its_master_and_a_master_from_its_slave(tmp_path: Path) -> None:
    """Fixed roles: the nameservers say who the others are."""
    pair = Pair(tmp_path)
    await pair.begin()
    for number, role in ((0, "ASYNC_MASTER"), (1, "SLAVE")):
        await pair.start(number, role)
    peer = await Peer.connect(pair.nodes[0].address)
    await peer.ask(UpdateTopic("N", read_queue_nums=1, write_queue_nums=1))
    await peer.send(*(send("N", b"message %d" % number) for number in range(6)))
    await pair.level()
    await pair.clock.advance(11)
    await peer.close()
    for number, role in ((1, "SLAVE"), (0, "ASYNC_MASTER")):
        await pair.stop(number)
        flip(tmp_path / str(number), b"message 3")
        crashed(tmp_path / str(number))
        starting = asyncio.create_task(pair.start(number, role))
        await pair.clock.advance_until(starting.done)
        await starting
        await pair.level()
        reader = await Peer.connect(pair.nodes[number].address)
        assert bodies(await reader.pull("N", 0)) == [b"message %d" % number for number in range(6)]
        await reader.close()
    for number in (1, 0):
        await pair.stop(number)
    await pair.nameserver.stop()


async def test_a_file_that_is_gone_or_too_short_comes_back(tmp_path: Path) -> None:
    """D8: files in the middle of a log; a stop in order does not hide that."""
    async with LocalGroup(tmp_path, segment_bytes=1 << 18, max_message_bytes=1 << 16) as group:
        leader = await group.connect(await group.leader())
        await leader.ask(UpdateTopic("T", read_queue_nums=1, write_queue_nums=1))
        for number in range(60):
            await leader.send(send("T", bytes((number,)) * 20_000))
        await group.level()
        await group.clock.advance(11)
        name = (await group.followers())[0]
        files = [group.store(name) / "commitlog" / f"{number << 18:020d}" for number in (1, 2)]
        await group.stop(name)
        contents = [path.read_bytes() for path in files]
        files[0].unlink()
        files[1].write_bytes(contents[1][:50_000])
        await group.start(name)
        await group.level()
        assert [path.read_bytes() for path in files] == contents


async def test_bytes_are_not_given_when_a_new_epoch_begins_meanwhile() -> None:
    """R5: whose they are is not sure then."""
    bench = Bench().begin()
    bench.fill(3)
    asked = ReadLog("g", 0, bench.store.log.end)
    assert (await read_log(bench.store, asked)).epochs == list(bench.store.epochs)
    reading = asyncio.create_task(read_log(bench.store, asked))
    await asyncio.sleep(0)
    bench.store.epochs = (*bench.store.epochs, EpochEntry(2, 200, "w"))
    with pytest.raises(Refusal, match="ask again"):
        await reading


async def test_parts_are_read_one_after_the_other(group: LocalGroup, monkeypatch: pytest.MonkeyPatch) -> None:
    """S5: who asks for many at once has one read and in memory."""
    other, asked = (await group.followers())[0], await group.leader()
    go_on, reading, most = threading.Event(), 0, 0

    def slow(*about: Any) -> bytes:
        nonlocal reading, most
        reading += 1
        most = max(most, reading)
        go_on.wait(10)
        reading -= 1
        return read_part(*about)

    monkeypatch.setattr(peerrepair, "read_part", slow)
    insider = await Peer.connect(group.peer_address(asked))
    await insider.ask(IntroducePeer(GROUP, other, (await group.status(other)).store, 1 << 40))
    parts = [asyncio.create_task(insider.ask(ReadLog(GROUP, 0, 100))) for _ in range(20)]
    await until(lambda: reading > 0)
    await insider.ask(Ping())
    go_on.set()
    assert {len(part.data) for part in await asyncio.gather(*parts)} == {100}
    assert most == 1
    await insider.close()

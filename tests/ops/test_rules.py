"""Each alert of `ops/alerts.yml`: the fault is made at real nodes, it fires, and clears when the fault is gone."""

import contextlib
import re
from pathlib import Path

import pytest

from rmq.broker.node import Broker
from rmq.clock import SystemClock
from rmq.config.settings import NodeSettings
from rmq.errors import Refusal
from rmq.grpc.seen import Seen
from rmq.grpc.visitors import OneForAll
from rmq.model import GroupConfig
from rmq.nameserver.node import Nameserver
from rmq.net.commands import UpdateConsumerOffset, UpdateGroup, UpdateTopic
from rmq.net.commands.retries import SendBack
from rmq.ops.certs import Authority
from rmq.testing import LocalBroker, TestClock, until
from tests.broker.groups import LocalGroup, OwnDisk
from tests.broker.helddisk import HeldDisk
from tests.broker.support import Peer, send, small_node
from tests.broker.transactions import COMMIT, end, half
from tests.ops.promtool import RULES, Told, firing, needs_promtool, told
from tests.ports import free_port

DOCS = Path(__file__).parents[2] / "docs" / "monitoring.md"
LOST, BEHIND, ALONE, WIPED = (
    {"RmqNodeDown", "RmqFollowerBehind", "RmqMemberMissing"},
    {"RmqNodeDown", "RmqFollowerBehind"},
    {"RmqNodeDown", "RmqNoLeader"},
    {"RmqNodeDown", "RmqNoLeader", "RmqMemberMayNotVote"},
)
AWAY, EMPTY = {"RmqNodeDown", "RmqNotRegistered"}, {"RmqNotRegistered", "RmqNameserversDiffer"}
BUSY = {"RmqLagGrows", "RmqManyRetries", "RmqDeadLetters", "RmqTransactionsWithoutAnswer", "RmqDiskFillsUp", "RmqClockOffset"}
BODY = 88  # from where a record begins
HELD, FULL, DAMAGED = {"RmqUnflushed"}, {"RmqDiskFull", "RmqDiskFillsUp"}, {"RmqDamaged"}
CUT_OFF, ENDS = {"RmqProxyCutOff"}, {"RmqCertificateEnds"}
NONE: set[str] = set()


def test_each_rule_is_tried_and_has_its_paragraph() -> None:
    rules = re.findall(r"- alert: (\w+)\n(?:.*\n)*?\s+runbook: docs/monitoring\.md#(\w+)\n", RULES.read_text())
    tried = set().union(LOST, BEHIND, ALONE, WIPED, AWAY, EMPTY, BUSY, HELD, FULL, DAMAGED, CUT_OFF, ENDS)
    assert {name for name, _ in rules} == tried
    headings = re.findall(r"^#+ (Rmq\w+)$", DOCS.read_text(), re.M)
    assert [name for name, _ in rules] == headings
    assert [link for _, link in rules] == [name.lower() for name in headings]


@needs_promtool
async def test_a_group_that_loses_its_nodes(tmp_path: Path) -> None:
    disks = {name: OwnDisk() for name in ("n0", "n1", "n2")}
    async with LocalGroup(tmp_path, disks=disks) as group:
        seen: list[Told] = []

        async def look() -> None:
            nodes = {name: [group.nodes[name]] if name in group.nodes else [] for name in ("n0", "n1", "n2")}
            seen.append(await told(group.clock.wall_ms() / 1000, nodes))

        leader, (lost, other) = await group.leader(), await group.followers()
        peer = await group.connect(leader)
        await peer.ask(UpdateTopic("T", read_queue_nums=1, write_queue_nums=1))
        await group.level()
        await look()
        await group.stop(lost)
        for _ in range(20):
            await peer.send(send("T", bytes(1_000_000)))
        await look()
        while not missed(group.nodes[leader]):  # while the others go on
            await group.clock.advance(0.2)
            await group.level()
        await look()
        await group.stop(other)
        await group.clock.advance_until(lambda: not leads(group.nodes[leader]))
        await look()
        await group.stop(leader)
        disks[lost] = OwnDisk()
        await group.start(lost)
        await look()
        await group.start(leader, other)
        await group.clock.advance_until(lambda: not any(node.waits_for() for node in group.nodes.values()))
        await group.level()
        await look()
    firing(tmp_path, [(one, one) for one in seen], [NONE, BEHIND, LOST, ALONE, WIPED, NONE])


def leads(node: Broker) -> bool:
    status = node.serving.membership.status
    return status is not None and status().role == "leader"


def missed(node: Broker) -> bool:
    status = node.serving.membership.status
    return status is not None and any(status().misses(member) for member in status().members)


@needs_promtool
async def test_nameservers_that_go_and_come_back_empty(tmp_path: Path) -> None:
    clock = TestClock(running=False)
    ports = [free_port(), free_port()]
    names = [Nameserver(NodeSettings(role="nameserver", namesrv_port=port), clock) for port in ports]
    for one in names:
        await one.start()
    addresses = tuple(one.address for one in names)
    settings = small_node(tmp_path, namesrv_addresses=addresses)
    node = Broker(settings, clock)
    await node.start()
    seen: list[Told] = []

    async def look(second: Nameserver | None) -> None:
        parts = {"ns1": [names[0]], "ns2": [second] if second else [], "b": [node]}
        seen.append(await told(clock.wall_ms() / 1000, parts))

    await look(names[1])
    await names[1].stop()
    await until(lambda: not all(node.serving.registration.registered().values()))
    await look(None)
    again = Nameserver(NodeSettings(role="nameserver", namesrv_port=ports[1]), clock)
    await again.start()
    await look(again)
    await clock.advance_until(lambda: all(node.serving.registration.registered().values()))
    await look(again)
    firing(tmp_path, [(one, one) for one in seen], [NONE, AWAY, EMPTY, NONE])
    for part in (node, again, names[0]):
        await part.stop()


@needs_promtool
async def test_a_proxy_whose_nameserver_goes_and_comes_back(tmp_path: Path) -> None:
    seen: list[Told] = []
    async with LocalBroker() as broker, broker.client() as client:
        proxy = Seen(client, OneForAll(client), "here:8081")
        async with proxy.looking():

            async def look(trouble: bool) -> None:
                await broker.clock.advance_until(lambda: bool(proxy.waits_for()) == trouble)
                seen.append(await told(broker.clock.wall_ms() / 1000, {"proxy": [proxy]}))

            await look(False)
            await broker.stop_nameserver()
            await look(True)
            await broker.start_nameserver()
            await look(False)
    firing(tmp_path, [(one, one) for one in seen], [NONE, CUT_OFF, NONE])


@needs_promtool
async def test_a_certificate_that_ends_soon_and_is_renewed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    authority = Authority.make(tmp_path / "certs", SystemClock())
    made = authority.issue("node", ["127.0.0.1"], days=13)
    tls = {"tls_cert": str(made.cert), "tls_key": str(made.key), "tls_ca": str(authority.files.cert)}
    seen: list[Told] = []
    async with LocalBroker(tls_mode="permissive", **tls) as broker:
        for days in (13, 300, -1):
            authority.issue("node", ["127.0.0.1"], days=days)
            await broker.clock.advance(1.1)
            seen.append(await told(broker.clock.wall_ms() / 1000, {"both": broker.parts}))
    firing(tmp_path, [(one, one) for one in seen], [ENDS, NONE, ENDS])
    assert "ends in 13.0 days" in caplog.text
    assert "has ended" in caplog.text


class Disk(HeldDisk):
    used = 0.3

    def used_ratio(self, path: str) -> float:
        return self.used


class Alone:
    """A broker alone, whose clock stands still. `phases`: what it told. `await start()`, ... `await stop()`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock, self.disk, self.phases = TestClock(running=False), Disk(), list[tuple[Told, Told]]()
        self._began_s = self.clock.wall_ms() / 1000

    async def start(self) -> None:
        settings = small_node(self.folder / "s", transaction_timeout_ms=0)
        self.node = Broker(settings, self.clock, self.disk)
        await self.node.start()
        self.peer = await Peer.connect(self.node.address)

    async def stop(self) -> None:
        await self.peer.close()
        await self.node.stop()

    async def fill(self, count: int) -> int:
        """Where the first of so many messages of T stands."""
        await self.peer.ask(UpdateTopic("T", read_queue_nums=1, write_queue_nums=1))
        await self.peer.ask(UpdateGroup(GroupConfig("g")))
        await self.peer.ask(UpdateConsumerOffset("g", "T", 0, 0))
        return (await self.peer.send(*(send("T", b"x") for _ in range(count))))[0].physical_offset

    async def look(self) -> Told:
        return await told(self._began_s + self.clock.monotonic(), {"b": [self.node]})

    async def steady(self) -> None:
        """A phase in which nothing happens."""
        await self.clock.advance(11)
        log = self.node.serving.store.log
        await until(lambda: log.durable_end == log.end)
        self.phases.append((one := await self.look(), one))


@needs_promtool
async def test_clients_in_trouble_and_a_disk_that_fills_up(tmp_path: Path) -> None:
    alone = Alone(tmp_path)
    await alone.start()
    first = await alone.fill(1100)
    [prepared] = await alone.peer.send(half())
    await alone.clock.advance(60)
    await alone.steady()
    alone.clock.jump_wall(9_000)
    begin = await alone.look()
    await alone.peer.send(*(send("T", b"x") for _ in range(500)))
    for level in [0] * 200 + [-1]:
        await alone.peer.ask(SendBack(first, "g", level))
    alone.disk.used = 0.5
    for _ in range(4):
        await alone.clock.advance(50)
    alone.phases.append((begin, await alone.look()))
    await alone.peer.close()
    alone.peer = await Peer.connect(alone.node.address)  # the first one was idle for too long
    alone.clock.jump_wall(-9_000)
    await alone.peer.ask(end(prepared, COMMIT))
    await alone.peer.ask(UpdateConsumerOffset("g", "T", 0, 1600))
    alone.disk.used = 0.3
    await alone.clock.advance(11)
    await alone.steady()
    await alone.stop()
    firing(tmp_path, alone.phases, [NONE, BUSY, NONE])


@needs_promtool
async def test_a_disk_that_hangs_is_full_or_gives_back_other_bytes(tmp_path: Path) -> None:
    alone = Alone(tmp_path)
    await alone.start()
    first = await alone.fill(10)
    await alone.steady()
    alone.disk.flushes.clear()
    await alone.peer.send(send("T", b"x"))
    await alone.clock.advance(8)
    alone.phases.append((one := await alone.look(), one))
    alone.disk.flushes.set()
    for used in (0.93, 0.2, 0.2):
        alone.disk.used = used
        await alone.steady()
    await alone.stop()
    for _ in range(2):  # and back again
        flip(sorted((tmp_path / "s" / "commitlog").iterdir())[0], first)
        await alone.start()
        with contextlib.suppress(Refusal):
            await alone.peer.pull("T", 0)
        await alone.steady()
        await alone.stop()
    firing(tmp_path, alone.phases, [NONE, HELD, FULL, NONE, NONE, DAMAGED, NONE])


def flip(file: Path, offset: int) -> None:
    """One bit of the body of the record there."""
    with file.open("r+b") as opened:
        opened.seek(offset + BODY)
        byte = opened.read(1)[0]
        opened.seek(offset + BODY)
        opened.write(bytes([byte ^ 1]))

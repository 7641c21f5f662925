"""One look at the cluster: what nameservers and nodes say now, and what is wrong."""

import asyncio
from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from rmq.client import Client
from rmq.client.admin import calls, groups, one, standing
from rmq.client.admin.standing import NOWHERE, GroupStatus, MemberAddress
from rmq.client.shared.routes import newest
from rmq.dashboard.bounded import BROKERS_S, MEMBERS_S, NAMESERVERS_S, ask_all
from rmq.dashboard.formats import bytes_of, real, whole
from rmq.errors import Unreachable
from rmq.model import PERM_WRITE, BrokerAddresses, Route

_NEARLY_FULL = 0.85  # of the disk [diskSpaceCleanForciblyRatio]
_DAY_S = 86_400.0
_TAKES_NOTHING = (
    "damaged",
    "its disk",
    "disk full",
)  # other reasons to wait: the node's group tells them, or they do not concern messages
WIPED = "the nameservers tell clients not to send there: rmq admin wipeWritePerm did it, addWritePerm ends it"
_LEAST_S = 600.0  # fewer than ten minutes of messages are too few for a forecast


class Node(NamedTuple):
    """A node of a broker group. `broker_id`: -1 if no nameserver tells it. `silent`: why it did not answer, or ""."""

    group: BrokerAddresses
    broker_id: int
    address: str
    facts: dict[str, str]
    status: GroupStatus | None
    silent: str

    @property
    def role(self) -> str:
        if self.status is not None:
            return self.status.role
        return "alone" if not self.silent and self.broker_id == 0 else "?"

    @property
    def votes(self) -> str:
        return standing.votes(self.status) if self.status else "-"

    def rate(self, name: str) -> float:
        """The average over 10 s out of `a b c` (10 s, 60 s, 600 s)."""
        words = self.facts.get(name, "").split()
        return real(words[0]) or 0.0 if words else 0.0

    def between(self, way: str, until: str, since: str) -> int:
        """Messages put or got between two counts, such as "TodayNow" and "TodayMorning"."""
        return self._count(f"msg{way}Total{until}") - self._count(f"msg{way}Total{since}")

    def _count(self, name: str) -> int:
        return whole(self.facts.get(name, "")) or 0

    @property
    def disk_ratio(self) -> float | None:
        return real(self.facts.get("commitLogDiskRatio", ""))

    @property
    def disk_free(self) -> float:
        """Bytes."""
        return bytes_of(self.facts.get("commitLogDirCapacity", "").partition("Free : ")[2].rstrip("."))

    def disk_days(self, now_ms: int) -> float | None:
        """Days until the disk is full, if messages come as fast as since the oldest one and none is deleted."""
        oldest = self._count("earliestMessageTimeStamp")
        seconds = (now_ms - oldest) / 1000
        kept = self._count("commitLogMaxOffset") - self._count("commitLogMinOffset")
        if oldest <= 0 or seconds < _LEAST_S or kept <= 0:
            return None
        return self.disk_free / (kept / seconds) / _DAY_S


class Trouble(NamedTuple):
    """`grave`: messages cannot be stored or read; otherwise somebody should look. `page`: the page that shows more. `group`: the
    broker group that has it, "" if none alone has."""

    grave: bool
    text: str
    page: str
    group: str = ""


class Look(NamedTuple):
    """`nameservers`: what each said, or why it did not answer. `nodes`: sorted by cluster, group and broker id. `wiped`: broker
    groups that clients are told not to write to."""

    nameservers: dict[str, list[BrokerAddresses]]
    deaf: dict[str, str]
    nodes: list[Node]
    wiped: list[str]

    @property
    def places(self) -> list[MemberAddress]:
        return [(node.group, node.broker_id, node.address) for node in self.nodes]

    @property
    def statuses(self) -> dict[str, GroupStatus]:
        return {node.address: node.status for node in self.nodes if node.status is not None}

    def lag(self, node: Node) -> int | None:
        """Bytes of the log that the node lacks."""
        if node.status is None:
            return None
        return standing.furthest(self.places, self.statuses)[node.group.name] - node.status.end

    @property
    def clusters(self) -> list[str]:
        return sorted({node.group.cluster for node in self.nodes})


async def registered(client: Client) -> tuple[dict[str, list[BrokerAddresses]], dict[str, str]]:
    """Broker groups by nameserver, and why the other nameservers did not answer."""
    asked = {address: one.cluster_info(client, address) for address in client.session.nameservers.addresses}
    found, deaf = await ask_all(asked, NAMESERVERS_S)
    return {address: info.brokers for address, info in found.items()}, deaf


async def broker_groups(client: Client) -> list[BrokerAddresses]:
    """All broker groups that any nameserver knows, sorted, each as it registered last. Raises Unreachable, with the reasons, if
    no nameserver tells any."""
    found, deaf = await registered(client)
    if not found:
        raise Unreachable(_mute(deaf))
    return merged(found)


def _mute(deaf: dict[str, str]) -> str:
    return "No nameserver answers, or lets the dashboard ask: " + "; ".join(f"{address}: {why}" for address, why in deaf.items())


def merged(answers: dict[str, list[BrokerAddresses]]) -> list[BrokerAddresses]:
    return sorted(newest([Route(brokers, []) for brokers in answers.values()]), key=lambda group: (group.cluster, group.name))


async def look(client: Client, only: Collection[str] = (), seconds: float = BROKERS_S) -> Look:
    """Looks now. Never raises RmqError: the look also says who did not answer. `only`: broker groups, none for all of them.
    `seconds`: how long to wait for a node."""
    answers, deaf = await registered(client)
    if only:
        answers = {address: [group for group in groups if group.name in only] for address, groups in answers.items()}
    places: list[MemberAddress] = [
        (group, broker_id, address) for group in merged(answers) for broker_id, address in sorted(group.addresses.items())
    ]
    addresses = list(dict.fromkeys(address for _, _, address in places))
    (facts, silent), wiped = await asyncio.gather(
        ask_all({address: calls.runtime_info(client, address) for address in addresses}, seconds),
        _wiped(client, {group.name: group.cluster for group, _, _ in places}),
    )
    # A node that stands alone answers None. Connections are open by now, so each node answers at once.
    asked = {address: groups.group_status(client, address) for address in addresses if address in facts}
    statuses = {address: status for address, status in (await ask_all(asked, MEMBERS_S))[0].items() if status is not None}
    missing = standing.silent(places, statuses)
    unregistered = {address for _, _, address in missing if address not in (NOWHERE, *addresses)}
    late, _ = await ask_all({address: groups.group_status(client, address) for address in unregistered}, MEMBERS_S)
    statuses |= {address: status for address, status in late.items() if status is not None}
    nodes = [
        Node(*place, facts.get(place[2], {}), statuses.get(place[2]), _why(place, {*facts, *statuses}, silent))
        for place in [*places, *_others(missing, places, {*facts, *statuses})]
    ]
    nodes.sort(key=lambda node: (node.group.cluster, node.group.name, node.broker_id < 0, node.broker_id))
    return Look(answers, deaf, nodes, wiped)


async def _wiped(client: Client, clusters: Mapping[str, str]) -> list[str]:
    """Broker groups that clients are told not to write to, sorted. `clusters`: by broker group. Each has a topic of its cluster's
    name from its start, so one question tells it of a whole cluster."""
    routes, _ = await ask_all({each: calls.topic_route(client, each) for each in set(clusters.values())}, NAMESERVERS_S)
    rows = [row for route in routes.values() for row in route.queues]
    return sorted({row.broker_name for row in rows if not row.perm & PERM_WRITE and row.broker_name in clusters})


def _others(missing: list[MemberAddress], places: list[MemberAddress], heard: set[str]) -> list[MemberAddress]:
    """Members that are not registered. A group knows its members by the addresses that nodes dial, and clients may dial others:
    if as many registered nodes are silent as members are missing, they are the same nodes."""
    found = []
    for name in dict.fromkeys(group.name for group, _, _ in missing):
        silent = {address for group, _, address in places if group.name == name} - heard
        lost = [place for place in missing if place[0].name == name]
        if {address for _, _, address in lost} & silent or len(lost) != len(silent):
            found += [place for place in lost if place[2] not in silent]
    return found


def _why(place: MemberAddress, heard: set[str], silent: dict[str, str]) -> str:
    _, broker_id, address = place
    if address in heard:
        return ""
    return silent.get(address) or ("no nameserver tells it, and it does not answer" if broker_id < 0 else "no answer")


def troubles(seen: Look, now_ms: int) -> list[Trouble]:
    """What is wrong, the gravest first."""
    return sorted(_troubles(seen, now_ms), key=lambda trouble: not trouble.grave)


def _troubles(seen: Look, now_ms: int) -> Iterator[Trouble]:
    if not seen.nameservers:
        yield Trouble(True, _mute(seen.deaf), "/nameservers")
        return
    for address, why in seen.deaf.items():
        yield Trouble(False, f"The nameserver {address} does not answer: {why}", "/nameservers")
    views = {frozenset((group.name, *group.addresses.items()) for group in answers) for answers in seen.nameservers.values()}
    if len(views) > 1:
        yield Trouble(
            False, "The nameservers tell different brokers: one has just started, or a broker cannot reach it.", "/nameservers"
        )
    ill = {name: why for kind, name, why in standing.ills(seen.places, seen.statuses) if kind == "group"}
    for name, why in ill.items():
        yield Trouble(True, f"{name}: {why}", "/cluster", name)
    full = tuple(
        f"{node.group.name}: the disk of {node.status.node} is full"
        for node in seen.nodes
        if node.status and "disk full" in node.facts.get("waitsFor", "")
    )  # which the node says itself, with what to do
    warnings = [*standing.warnings(seen.places, seen.statuses)]
    for sentence in warnings:
        if "no leader is registered" not in sentence and not sentence.startswith(full):
            yield Trouble("does not hear a majority" in sentence, sentence, "/cluster", sentence.partition(": ")[0])
    yield from _gone(seen, warnings)
    for node in seen.nodes:
        yield from (trouble._replace(group=node.group.name) for trouble in _of_node(node, ill, now_ms))
    read_only = {node.group.name for node in seen.nodes if "it only reads" in node.facts.get("waitsFor", "")}
    for name in seen.wiped:
        if name not in read_only:
            yield Trouble(True, f"{name}: {WIPED}", "/nameservers", name)


def _gone(seen: Look, warnings: Collection[str]) -> Iterator[Trouble]:
    """Members that no nameserver tells and that do not answer, unless their leader misses them, too (`warnings`)."""
    names = {member.address: member.node for status in seen.statuses.values() for member in status.members}
    for node in seen.nodes:
        name = f"{node.group.name}: {names.get(node.address, 'a node')}"
        if node.broker_id < 0 and node.silent and not any(each.startswith(f"{name} is missing") for each in warnings):
            yield Trouble(False, f"{name} at {node.address} is missing: {node.silent}", "/cluster", node.group.name)


def _of_node(node: Node, ill: dict[str, str], now_ms: int) -> Iterator[Trouble]:
    name = f"{node.group.name} at {node.address}"
    alone = not any(broker_id for broker_id in node.group.addresses) and node.group.name not in ill
    if node.silent and node.broker_id >= 0:
        yield Trouble(alone, f"{name} is registered and does not answer: {node.silent}", "/cluster")
    if trouble := node.facts.get("registrationTrouble"):
        yield Trouble(False, f"{name} is not registered at {trouble}", "/nameservers")
    if trouble := node.facts.get("sendTrouble"):
        yield Trouble(True, f"{name}: {trouble}", "/cluster")
    if left_out := node.facts.get("topicsLeftOut"):
        yield Trouble(False, f"{name}: topics are left out by {left_out}", "/nameservers")
    stopped = [why for why in node.facts.get("waitsFor", "").split(" | ") if why.startswith(_TAKES_NOTHING)]
    for why in stopped:
        grave = node.role in ("alone", "leader")
        yield Trouble(grave, f"{name} {'takes no messages' if grave else 'does not follow'}: {why}", "/cluster")
    ratio, days = node.disk_ratio or 0.0, node.disk_days(now_ms)
    if ratio >= _NEARLY_FULL and not stopped:
        yield Trouble(False, f"{name}: its disk is {ratio:.0%} full; when there is no room left sends are refused", "/cluster")
    elif days is not None and days < 3:
        yield Trouble(
            False, f"{name}: its disk is full in {days:.1f} days if messages come as they do and none is deleted", "/cluster"
        )

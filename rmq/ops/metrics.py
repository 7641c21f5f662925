"""`/metrics` of a broker, for Prometheus: which nameservers have it, who leads its group, how far the nodes are, who may not
vote and why."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from rmq.net.commands.peers import GroupStatus, MemberStatus
from rmq.ops import scrape

_LABELS = ("cluster", "broker", "node")

Why = dict[str, bool]


def served(
    host: str,
    port: int,
    cluster: str,
    broker: str,
    status: Callable[[], GroupStatus] | None,
    registrations: Callable[[], Mapping[str, str]] = dict,
) -> AbstractAsyncContextManager[str]:
    """Listens while the context is open; gives "host:port". `status`: None for a broker that stands alone; `registrations`: by
    nameserver what is wrong. Raises OSError if it cannot listen."""

    def found() -> Iterator[Metric]:
        yield registered(cluster, broker, registrations())
        if status is not None:
            yield from families(cluster, broker, status())

    return scrape.served(host, port, _Families(found))


class _Families(Collector):
    def __init__(self, ask: Callable[[], Iterable[Metric]]) -> None:
        self._ask = ask

    def collect(self) -> Iterable[Metric]:
        return self._ask()


def registered(cluster: str, broker: str, troubles: Mapping[str, str]) -> Metric:
    """Which nameservers took this broker's last registration."""
    about = "1 if this nameserver took the last registration of this broker"
    family = GaugeMetricFamily("rmq_nameserver_registered", about, labels=("cluster", "broker", "nameserver"))
    for nameserver, trouble in troubles.items():
        family.add_metric((cluster, broker, nameserver), float(not trouble))
    return family


def families(cluster: str, broker: str, status: GroupStatus) -> Iterator[Metric]:
    """All metrics of one node. `cluster`, `broker`: labels."""
    own = (cluster, broker, status.node)
    for name, about, value in (
        ("leader", "1 if this node leads its group", status.role == "leader"),
        ("lease_good", "1 if this node leads and a majority was in touch with it lately", status.lease_good),
        ("epoch", "epoch of the group as this node knows it", status.epoch),
        ("log_start_offset", "where the log of this node begins", status.log_start),
        ("log_end_offset", "where the log of this node ends", status.end),
        ("durable_offset", "how far the log of this node is flushed", status.durable),
        ("committed_offset", "committed, as far as this node knows", status.committed),
        ("damaged", "1 if bytes of this node's log are damaged and not repaired yet", bool(status.damaged)),
    ):
        yield _gauge(name, about, ((own, value),))
    labels = [(cluster, broker, member.node) for member in status.members]
    for name, about, values in (
        ("member_lag_bytes", "what a node lacks of this node's log", [member.lag for member in status.members]),
        ("member_seen_seconds", "how long ago it was heard of", [member.seen_seconds_ago for member in status.members]),
    ):
        known = [(label, value) for label, value in zip(labels, values, strict=True) if value >= 0]
        yield _gauge(name, f"{about}; absent if this node does not know", known)
    yield _gauge(
        "member_missing",
        "1 if the leader, which tells it, has not heard of a node for 10 s, or never",
        [(label, status.misses(member)) for label, member in zip(labels, status.members, strict=True) if status.role == "leader"],
    )
    reasons = GaugeMetricFamily(
        "rmq_group_member_may_not_vote", "1 if this keeps a node from voting, or from following", labels=(*_LABELS, "reason")
    )
    for label, member in zip(labels, status.members, strict=True):
        for reason, holds in why_not(member, status.fixed).items():
            reasons.add_metric((*label, reason), float(holds))
    yield reasons


def why_not(member: MemberStatus, fixed: bool) -> Why:
    """What keeps a node from counting, by reason. With fixed roles nobody votes."""
    return {"not_a_voter": not member.voter and not fixed, "unproven": member.unproven, "disk_full": member.disk_full}


def _gauge(name: str, about: str, values: Iterable[tuple[tuple[str, str, str], float]]) -> Metric:
    family = GaugeMetricFamily(f"rmq_group_{name}", about, labels=_LABELS)
    for labels, value in values:
        family.add_metric(labels, float(value))
    return family

"""Makes tables with mqadmin's columns of brokers' answers. Pure: no I/O, no clock."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

from rmq.client.admin import standing
from rmq.client.admin.calls import count, rate
from rmq.codes import version_name
from rmq.commands.shared.output import Cell, Table
from rmq.commands.views import groupviews
from rmq.errors import BadBytes
from rmq.model import BROADCASTING, BrokerAddresses, MessageQueue, QueueProgress, QueueStats, Route
from rmq.net.commands import ConsumerConnection, ConsumeStats

Facts = Mapping[str, str]


def moment(timestamp_ms: int) -> datetime | int | None:
    """Local time; None for never. What no calendar has, as a client's clock may say, stays a number."""
    try:
        return datetime.fromtimestamp(timestamp_ms / 1000, UTC).astimezone() if timestamp_ms > 0 else None
    except (ValueError, OverflowError, OSError):
        return timestamp_ms


def cluster_list(
    rows: Sequence[tuple[BrokerAddresses, int, str, Facts | None]], statuses: standing.Statuses, now_ms: int
) -> Table:
    """`rows`: broker group, broker id (-1: a member that is not registered), address, runtime info (None: it did not answer)."""
    columns = {
        "cluster": "Cluster Name", "broker": "Broker Name", "id": "BID", "address": "Addr", "version": "Version",
        "in_tps": "InTPS(LOAD)", "out_tps": "OutTPS(LOAD)", "timer": "Timer(Progress)", "page_cache_wait_ms": "PCWait(ms)",
        "hours": "Hour", "space": "SPACE", "activated": "ACTIVATED", **groupviews.COLUMNS,
    }  # fmt: skip
    furthest = standing.furthest((row[:3] for row in rows), statuses)
    return Table(
        columns,
        [
            (
                group.cluster,
                group.name,
                broker_id if broker_id >= 0 else None,
                address,
                *_load(facts, now_ms),
                *groupviews.cells(address, statuses, furthest.get(group.name, 0)),
            )
            for group, broker_id, address, facts in rows
        ],
    )


def check(facts: Facts, address: str) -> None:
    """Raises BadBytes where a number of these tables is none."""
    try:
        _load(facts, 0)
        _totals(facts)
    except BadBytes as error:
        raise BadBytes(f"{address}: {error}") from error


def _load(facts: Facts | None, now_ms: int) -> tuple[Cell, ...]:
    if facts is None:
        return ("no answer", None, None, None, None, None, None, False)
    oldest = count(facts, "earliestMessageTimeStamp")
    hours = round((now_ms - oldest) / 3_600_000, 2) if oldest > 0 else 0.0
    timer = f"{facts.get('timerReadBehind', '0')}-{facts.get('timerOffsetBehind', '0')}({facts.get('timerCongestNum', '0')})"
    return (
        facts.get("brokerVersionDesc", "-"), rate(facts, "putTps"), rate(facts, "getTransferredTps"), timer,
        count(facts, "pageCacheLockTimeMills"), hours, rate(facts, "commitLogDiskRatio"),
        facts.get("brokerActive") == "true",
    )  # fmt: skip


def cluster_totals(rows: Iterable[tuple[BrokerAddresses, int, str, Facts | None]]) -> Table:
    """clusterList -m: messages received and delivered, yesterday and today."""
    columns = {
        "cluster": "Cluster Name",
        "broker": "Broker Name",
        "in_yesterday": "InTotalYest",
        "out_yesterday": "OutTotalYest",
        "in_today": "InTotalToday",
        "out_today": "OutTotalToday",
    }
    return Table(columns, [(group.cluster, group.name, *_totals(facts)) for group, _, _, facts in rows])


def _totals(facts: Facts | None) -> tuple[Cell, ...]:
    if facts is None:
        return (None,) * 4
    return tuple(
        count(facts, f"msg{way}Total{until}") - count(facts, f"msg{way}Total{since}")
        for until, since in (("TodayMorning", "YesterdayMorning"), ("TodayNow", "TodayMorning"))
        for way in ("Put", "Get")
    )


def broker_status(facts_of: Mapping[str, Facts]) -> Table:
    """`facts_of`: address -> runtime info."""
    columns = {"address": "Addr", "name": "Name", "value": "Value"}
    return Table(columns, [(address, name, facts[name]) for address, facts in facts_of.items() for name in sorted(facts)])


def topic_list(topics: Iterable[str]) -> Table:
    return Table({"topic": "Topic"}, [(topic,) for topic in sorted(topics)])


def topic_consumers(rows: Iterable[tuple[str, str, str]]) -> Table:
    """topicList -c. `rows`: cluster, topic, consumer group ("" if none)."""
    return Table({"cluster": "Cluster Name", "topic": "Topic", "group": "Consumer Group"}, sorted(rows))


def topic_route(route: Route) -> Table:
    columns = {
        "cluster": "ClusterName",
        "broker": "BrokerName",
        "addresses": "BrokerAddrs",
        "read_queues": "ReadQueue",
        "write_queues": "WriteQueue",
        "perm": "Perm",
    }
    groups = {group.name: group for group in route.brokers}
    rows = [
        (
            groups[queue.broker_name].cluster,
            queue.broker_name,
            ";".join(f"{broker_id}:{address}" for broker_id, address in sorted(groups[queue.broker_name].addresses.items())),
            queue.read_queue_nums,
            queue.write_queue_nums,
            queue.perm,
        )
        for queue in sorted(route.queues)
        if queue.broker_name in groups
    ]
    totals: dict[str, tuple[str, Cell]] = {
        "total_read_queues": ("Total read queues", sum(queue.read_queue_nums for queue in route.queues)),
        "total_write_queues": ("Total write queues", sum(queue.write_queue_nums for queue in route.queues)),
    }
    return Table(columns, rows, totals)


def topic_status(queues: Iterable[QueueStats], put_tps: float) -> Table:
    columns = {
        "broker": "Broker Name",
        "queue": "QID",
        "min_offset": "Min Offset",
        "max_offset": "Max Offset",
        "last_updated": "Last Updated",
    }
    rows = [
        (row.queue.broker_name, row.queue.queue_id, row.min_offset, row.max_offset, moment(row.last_update_timestamp))
        for row in sorted(queues)
    ]
    return Table(columns, rows, {"topic_put_tps": ("Topic Put TPS", put_tps)})


def group_progress(stats: ConsumeStats, holders: Mapping[MessageQueue, str] | None = None) -> Table:
    """consumerProgress -g. `holders`: who reads a queue; None: no column of them."""
    columns = {
        "topic": "Topic", "broker": "Broker Name", "queue": "QID", "broker_offset": "Broker Offset",
        "consumer_offset": "Consumer Offset", "diff": "Diff", "inflight": "Inflight", "last_time": "LastTime",
    }  # fmt: skip
    if holders is not None:
        columns["client_ip"] = "Client IP"
    rows = [
        (
            *row.queue,
            row.broker_offset,
            row.consumer_offset,
            lag(row),
            in_flight(row),
            moment(row.last_timestamp),
            *([] if holders is None else [holders.get(row.queue)]),
        )
        for row in sorted(stats.queues)
    ]
    totals: dict[str, tuple[str, Cell]] = {
        "consume_tps": ("Consume TPS", stats.consume_tps),
        "consume_diff_total": ("Consume Diff Total", sum(lag(row) for row in stats.queues)),
        "consume_inflight_total": ("Consume Inflight Total", sum(in_flight(row) for row in stats.queues)),
    }
    return Table(columns, rows, totals)


def lag(row: QueueProgress) -> int:
    """Messages stored and not yet consumed."""
    return row.broker_offset - row.consumer_offset


def in_flight(row: QueueProgress) -> int:
    """Messages handed out and not yet consumed."""
    return max(row.pull_offset - row.consumer_offset, 0)


def groups_progress(rows: Sequence[tuple[str, ConsumeStats, ConsumerConnection | None]]) -> Table:
    """consumerProgress without -g. `rows`: group, progress, who is connected (None: nobody)."""
    columns = {
        "group": "Group",
        "count": "Count",
        "version": "Version",
        "type": "Type",
        "model": "Model",
        "tps": "TPS",
        "diff_total": "Diff Total",
    }
    return Table(
        columns,
        [
            (
                group,
                *_members(connected),
                stats.consume_tps,
                None if is_broadcast(connected) else sum(lag(row) for row in stats.queues),
            )
            for group, stats, connected in sorted(rows, key=lambda row: row[0])
        ],
    )


def is_broadcast(connected: ConsumerConnection | None) -> bool:
    """A broadcasting group: each member keeps its own offsets, so no broker knows them."""
    return connected is not None and connected.message_model == BROADCASTING


def _members(connected: ConsumerConnection | None) -> tuple[Cell, ...]:
    if connected is None or not connected.connections:
        return (0, "OFFLINE", None, None)
    oldest = version_name(min(connection.version for connection in connected.connections))
    kinds = {"CONSUME_PASSIVELY": "PUSH", "CONSUME_ACTIVELY": "PULL", "CONSUME_POP": "POP"}
    return (
        len(connected.connections),
        oldest,
        kinds.get(connected.consume_type, connected.consume_type),
        connected.message_model,
    )

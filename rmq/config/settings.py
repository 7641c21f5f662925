"""Settings of one process: what they are, what is allowed, and which contradict each other.

`NodeSettings` is checked whenever it is made; `loading` reads the sources. RocketMQ's own keys that are not settings of ours
are judged by `keys`. Kept out: flags' spelling and printing (commands), resolving host names, making directories.
"""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rmq.config import access
from rmq.config.kinds import (
    WILDCARDS,
    HiddenValue,
    addresses,
    choice,
    delay_levels,
    delays_ms,
    flag,
    host,
    hours,
    identifier,
    integer,
    networks,
    one_of,
    optional,
    path,
    peers,
    setting as _setting,
    size,
)
from rmq.config.observing import ObservingSettings
from rmq.config.security import contradictions
from rmq.errors import InvalidArgument

_HIGHEST = 2**31 - 1
STORE_DIR = Path("rmq-data")
DEFAULT_NAMESRV = "127.0.0.1:9876"
MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSettings(ObservingSettings):
    """Settings of one node. Raises InvalidArgument, naming the field and what is allowed, when made with wrong values.

    Names end in their unit. Numbers are RocketMQ's defaults where it has one.
    """

    role: str = _setting("all", choice("nameserver", "broker", "all"), "what this process is")
    cluster_name: str = _setting("DefaultCluster", identifier(), "name of the cluster", "brokerClusterName")
    broker_name: str = _setting("broker-a", identifier(), "name of the broker group", "brokerName")
    zone: str = _setting("", optional(identifier()), "where the broker stands: routes for clients of this zone name it")
    broker_id: int = _setting(0, integer(0, _HIGHEST), "0: leader (RocketMQ's master)", "brokerId")
    listen_host: str = _setting("127.0.0.1", host(), "address to listen on; 0.0.0.0: all of IPv4", "bindAddress")
    listen_port: int = _setting(10911, integer(0, 65535), "port of the broker; 0: any free one", "listenPort")
    advertised_host: str = _setting("", optional(host()), "host that clients are told; empty: listen_host", "brokerIP1")
    namesrv_port: int = _setting(9876, integer(0, 65535), "port of the nameserver; 0: any free one")
    namesrv_addresses: tuple[str, ...] = _setting((), addresses(), "nameservers to register with", "namesrvAddr")
    broker_role: str = _setting(
        "",
        choice("", "ASYNC_MASTER", "SYNC_MASTER", "SLAVE"),
        "copies with fixed roles; empty: this node stands alone",
        "brokerRole",
    )
    in_sync_replicas: int = _setting(
        1, integer(1, 100), "SYNC_MASTER: nodes that have a message before it is answered", "inSyncReplicas"
    )
    total_replicas: int = _setting(
        1,
        integer(1, 100),
        "fixed roles: nodes that the group should have; fewer are reported as missing",
        "totalReplicas",
    )
    peer_port: int = _setting(
        0, integer(0, 65535), "fixed roles: port for the other nodes of the group; 0: the clients'", "haListenPort"
    )
    elected: bool = _setting(False, flag(), "the nodes of the group elect their leader", "enableDLegerCommitLog")
    peers: tuple[str, ...] = _setting((), peers(), "nodes of the elected group, as id-host:port", "dLegerPeers")
    peers_on_client_port: bool = _setting(False, flag(), "the nodes of the group may come to the clients' port, too")
    peer_sources: tuple[str, ...] = _setting((), networks(), "networks that the nodes come from besides their own addresses")
    node_id: str = _setting("", optional(identifier()), "id of this node among the peers", "dLegerSelfId")
    peer_group: str = _setting("", optional(identifier()), "RocketMQ's second name of the group; as broker_name", "dLegerGroup")
    preferred_leader: str = _setting("", optional(identifier()), "node that leads when it can", "preferredLeaderId")
    follower_reads: bool = _setting(False, flag(), "readers far behind are sent to a follower", "slaveReadEnable")
    property_filter: bool = _setting(False, flag(), "who pulls may filter by SQL92 (who pops always may)", "enablePropertyFilter")
    unclean: bool = _setting(False, flag(), "this node may vote and lead though it may have lost bytes that were acknowledged")
    store_dir: Path = _setting(STORE_DIR, path(), "directory of the store", "storePathRootDir")  # noqa: RUF009
    permission: int = _setting(
        6, one_of(2, 4, 6), "what this broker lets clients do: 6 read and write, 4 read, 2 write", "brokerPermission"
    )
    flush: str = _setting(
        "async",
        choice("async", "sync", ASYNC_FLUSH="async", SYNC_FLUSH="sync"),
        "sync: a send is answered after fsync",
        "flushDiskType",
    )
    segment_bytes: int = _setting(1024 * MIB, size(4096, 2**31), "bytes of one CommitLog file", "mappedFileSizeCommitLog")
    queue_file_bytes: int = _setting(6_000_000, size(20, 2**31), "bytes of one ConsumeQueue file", "mappedFileSizeConsumeQueue")
    batch_queue_file_bytes: int = _setting(
        13_800_000, size(46, 2**31), "bytes of one such file of a topic with inner batches", "mapperFileSizeBatchConsumeQueue"
    )
    timer_log_file_bytes: int = _setting(100 * MIB, size(4096, 2**31), "bytes of one timerlog file", "mappedFileSizeTimerLog")
    reserved_hours: int = _setting(72, integer(1, 1_000_000), "how long messages are kept", "fileReservedTime")
    keep_unarchived: bool = _setting(False, flag(), "log files stay, whatever the disk says, until they are archived")
    delete_hours: tuple[int, ...] = _setting((4,), hours(), "hours of the day in which expired files are deleted", "deleteWhen")
    max_used_percent: int = _setting(
        75, integer(10, 95), "when the disk is fuller, expired files are deleted at any hour", "diskMaxUsedSpaceRatio"
    )
    clean_forcibly_percent: int = _setting(
        85,
        integer(30, 85),
        "when the disk is fuller, the oldest files go though not expired",
        "diskSpaceCleanForciblyRatio",
    )
    clean_forcibly: bool = _setting(
        True, flag(), "on a disk that is too full files go though not expired", "cleanFileForciblyEnable"
    )
    refuse_sends_percent: int = _setting(
        90, integer(35, 90), "when the disk is fuller, sends are refused", "diskSpaceWarningLevelRatio"
    )
    message_index: bool = _setting(True, flag(), "an index, by which messages are found by key", "messageIndexEnable")
    index_slots: int = _setting(5_000_000, integer(1, _HIGHEST), "hash slots of one index file", "maxHashSlotNum")
    index_entries: int = _setting(20_000_000, integer(2, _HIGHEST), "entries of one index file", "maxIndexNum")
    max_message_bytes: int = _setting(4 * MIB, size(1, 128 * MIB), "longest body", "maxMessageSize")
    max_transfer_bytes: int = _setting(
        256 * 1024, size(1024, 128 * MIB), "bytes in the answer to one pull", "maxTransferBytesOnMessageInMemory"
    )
    max_transfer_count: int = _setting(
        32, integer(1, 10_000), "messages in the answer to one pull", "maxTransferCountOnMessageInMemory"
    )
    max_transfer_disk_bytes: int = _setting(
        64 * 1024, size(1024, 128 * MIB), "the same where the disk has to be read", "maxTransferBytesOnMessageInDisk"
    )
    max_transfer_disk_count: int = _setting(
        8, integer(1, 10_000), "messages, where the disk has to be read", "maxTransferCountOnMessageInDisk"
    )
    long_polling: bool = _setting(
        True, flag(), "pulls wait as long as they ask for; false: short_polling_ms", "longPollingEnable"
    )
    short_polling_ms: int = _setting(
        1_000, integer(1, 60_000), "how long pulls wait for messages without long_polling", "shortPollingTimeMills"
    )
    server_side_resets: bool = _setting(
        True,
        flag(),
        "the broker sets a group to another offset; false: its connected members do",
        "useServerSideResetOffset",
    )
    max_topics: int = _setting(
        50_000,
        integer(20, 100_000),
        "most topics; beyond them only those of groups are made, up to twice as many",
    )
    max_groups: int = _setting(20_000, integer(10, 100_000), "most consumer groups")
    auto_create_topic: bool = _setting(True, flag(), "a send may make its topic", "autoCreateTopicEnable")
    auto_create_group: bool = _setting(True, flag(), "a consumer may make its group", "autoCreateSubscriptionGroup")
    notify_members: bool = _setting(
        True, flag(), "members of a group are told at once when members come or go", "notifyConsumerIdsChangedEnable"
    )
    differing_subscriptions: str = _setting(
        "warn",
        choice("allow", "warn", "refuse"),
        "members of a group that subscribe to something else than others: nothing is said, a warning, or they are no members",
    )
    check_message_types: bool = _setting(
        False, flag(), "a send is refused unless it is of its topic's message.type", "enableTopicMessageTypeCheck"
    )
    light_queues: bool = _setting(False, flag(), "light queues (%LMQ%) are served, and can be read", "enableLmq")
    light_dispatch: bool = _setting(
        False, flag(), "with light_queues: a message goes to the light queues that it names, too", "enableMultiDispatch"
    )
    max_light_queues: int = _setting(
        20_000,
        integer(1, 1_000_000),
        "most light queues; a message that would make another one is refused",
        "maxLmqConsumeQueueNum",
    )
    max_lite_subscriptions: int = _setting(
        100_000,
        integer(1, 1_000_000),
        "most subscriptions of clients to lite topics, all together",
        "maxLiteSubscriptionCount",
    )
    lite_subscription_timeout_ms: int = _setting(
        180_000,
        integer(10_000, 86_400_000),
        "milliseconds after which a client that neither declares nor pops wants no lite topics any more",
        "liteSubscriptionCheckTimeoutMills",
    )
    lite_min_ttl_ms: int = _setting(
        900_000,
        integer(0, 2**31 - 1),
        "milliseconds that a lite topic lives at least, whatever lite.topic.expiration of its topic says",
        "minLiteTTl",
    )
    lite_expiry_interval_ms: int = _setting(
        120_000, integer(1000, 86_400_000), "milliseconds between two looks for lite topics to delete", "liteTtlCheckInterval"
    )
    priority_ascending: bool = _setting(
        True, flag(), "the higher the number of a queue, the more urgent its messages", "priorityOrderAsc"
    )
    urgent_retry_percent: int = _setting(
        0,
        integer(0, 100),
        "percent of pops by priority that look at returned messages first",
        "popFromRetryProbabilityForPriority",
    )
    retry_percent: int = _setting(
        20, integer(0, 100), "percent of all other pops that look at returned messages first", "popFromRetryProbability"
    )
    filtered_lag: bool = _setting(True, flag(), "the lag of a group counts only messages that it wants", "estimateAccumulation")
    separate_retry_queues: bool = _setting(
        False, flag(), "a popped message comes back in the queue whose id it had before", "useSeparateRetryQueue"
    )
    recall_messages: bool = _setting(False, flag(), "a timed message may be taken back before it comes", "recallMessageEnable")
    delay_levels: str = _setting(
        "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h",
        delay_levels(),
        "how long messages of each delay level wait",
        "messageDelayLevel",
    )
    timer_max_delay_s: int = _setting(259_200, integer(1, 2**31), "how far ahead a timed message may be due", "timerMaxDelaySec")
    default_topic_queue_nums: int = _setting(8, integer(1, 1024), "queues of TBW102", "defaultTopicQueueNums")
    transaction_timeout_ms: int = _setting(
        6_000, integer(0, 86_400_000), "how long a half message is left alone", "transactionTimeOut"
    )
    transaction_check_interval_ms: int = _setting(
        30_000, integer(100, 86_400_000), "how often its producer is asked after that time", "transactionCheckInterval"
    )
    transaction_check_max: int = _setting(
        15, integer(1, 10_000), "how often it is asked at most; then the half message is put aside", "transactionCheckMax"
    )
    reject_transactions: bool = _setting(False, flag(), "half messages are refused", "rejectTransactionMessage")
    broker_expiry_ms: int = _setting(120_000, integer(1_000, 3_600_000), "nameserver: a broker silent this long is gone")
    scan_interval_ms: int = _setting(
        5_000, integer(1_000, 600_000), "nameserver: how often it looks for silent brokers", "scanNotActiveBrokerInterval"
    )
    order_messages: bool = _setting(
        False, flag(), "nameserver: routes tell how many queues an ordered topic has at each broker", "orderMessageEnable"
    )
    drop_unnamed_topics: bool = _setting(
        False,
        flag(),
        "nameserver: a topic that a broker of RocketMQ names no more leaves the routes",
        "deleteTopicWithBrokerRegistration",
    )
    client_expiry_ms: int = _setting(120_000, integer(1_000, 3_600_000), "a client silent this long has left its groups")
    max_frame_bytes: int = _setting(16 * MIB, size(64 * 1024, 1024 * MIB), "largest frame on a connection")
    max_connections: int = _setting(10_000, integer(1, 1_000_000), "connections in all")
    max_connections_per_address: int = _setting(2_000, integer(1, 1_000_000), "connections from one address")
    idle_timeout_ms: int = _setting(120_000, integer(1_000, 86_400_000), "a connection idle this long is closed")
    vip_port: bool = _setting(True, flag(), "listen_port - 2 is served too, where old clients look (VIP channel)")
    forward_at_stop_ms: int = _setting(
        35_000,
        integer(0, 3_600_000),
        "stop: how long clients of RocketMQ, which ask for routes every 30 s, are forwarded to the next leader",
    )
    stop_grace_ms: int = _setting(10_000, integer(0, 600_000), "stop: how long requests in work may take to end")

    def __post_init__(self) -> None:
        for row in dataclasses.fields(self):
            check(row.name, getattr(self, row.name))
        for problem in (*contradictions(self), *_contradictions(self)):
            raise InvalidArgument(problem)

    @property
    def delays_ms(self) -> tuple[int, ...]:
        """Of delay level 1, 2, ..."""
        return delays_ms(self.delay_levels)

    @property
    def store_host(self) -> str:
        """Host that is advertised to clients and lies in message ids; never a wildcard. Not resolved."""
        return self.advertised_host or self.listen_host

    @property
    def peer_addresses(self) -> dict[str, str]:
        """The nodes of an elected group as configured, by name."""
        return {peer.partition("-")[0]: peer.partition("-")[2] for peer in self.peers}

    def own_peers_address(self, address: str) -> str:
        """Where the other nodes of the group reach this one; `address`: where clients do."""
        if self.elected:
            return self.peer_addresses[self.node_id]
        return f"{address.rpartition(':')[0]}:{self.peer_port}" if self.peer_port else address

    @property
    def with_broker(self) -> bool:
        return self.role in ("broker", "all")

    @property
    def with_nameserver(self) -> bool:
        return self.role in ("nameserver", "all")


def _contradictions(settings: NodeSettings) -> Iterator[str]:
    if settings.advertised_host in WILDCARDS:
        yield f"advertised_host: {settings.advertised_host} is not an address that clients can dial; name this host's own one"
    if settings.with_broker and settings.store_host in WILDCARDS:
        yield (
            f"listen_host: {settings.listen_host} does not say what clients should dial; "
            "set advertised_host (RocketMQ: brokerIP1, flag --advertise) too"
        )
    if settings.segment_bytes < 2 * settings.max_message_bytes:  # a record that still does not fit is refused when it comes
        yield (
            f"segment_bytes: {settings.segment_bytes} is too small for max_message_bytes {settings.max_message_bytes}; "
            f"at least {2 * settings.max_message_bytes}"
        )
    grouped = settings.with_broker and (settings.elected or bool(settings.broker_role))
    yield from access.contradictions(settings, grouped or bool(settings.namesrv_addresses) or settings.role != "broker")
    if settings.elected and settings.with_broker:
        yield from _group_contradictions(settings)
    elif settings.with_broker and (settings.broker_role == "SLAVE") != (settings.broker_id > 0):
        yield (
            f"broker_id: {settings.broker_id} with broker_role {settings.broker_role or '(none)'}: the master has 0, "
            "a SLAVE any other"
        )
    if grouped and settings.signed_in_tls_only and not settings.dials_tls:
        yield "signed_in_tls_only: nodes hand requests of RocketMQ's clients on to the leader, so they need TLS (tls_dial = true)"
    if settings.role == "all" and settings.listen_port == settings.namesrv_port != 0:
        yield f"namesrv_port: {settings.namesrv_port} is the broker's listen_port too; choose another"


def _group_contradictions(settings: NodeSettings) -> Iterator[str]:
    ids = [peer.partition("-")[0] for peer in settings.peers]
    if settings.node_id not in ids:
        yield (
            f"node_id: {settings.node_id!r} is none of the peers {', '.join(ids) or '(none are given)'}; "
            "set node_id (RocketMQ: dLegerSelfId) and peers (dLegerPeers)"
        )
    own = next((peer for peer in settings.peers if peer.partition("-")[0] == settings.node_id), "")
    if own.rpartition(":")[2] == str(settings.listen_port) and not settings.peers_on_client_port:
        yield (
            f"peers: {own} is the clients' port; give the group one of its own, so that a firewall can keep strangers out, "
            "or set peers_on_client_port = true"
        )
    if settings.peer_group not in ("", settings.broker_name):
        yield f"peer_group: {settings.peer_group} must be broker_name {settings.broker_name}: one group, one name"
    if settings.preferred_leader not in ("", *ids):
        yield f"preferred_leader: {settings.preferred_leader} is none of the peers {', '.join(ids)}"


_ROWS = {row.name: row for row in dataclasses.fields(NodeSettings)}
BY_ROCKETMQ = {row.metadata["rocketmq"]: name for name, row in _ROWS.items() if row.metadata["rocketmq"]}
NAMES = tuple(_ROWS)
ALIASES = {"useTLS": "tls_dial"}  # keys of RocketMQ that say the same as another one
BROKER_LIVE = frozenset({  # change while a broker runs
    "reserved_hours", "delete_hours", "max_used_percent", "clean_forcibly_percent", "clean_forcibly",
    "refuse_sends_percent", "follower_reads", "property_filter", "max_transfer_bytes", "max_transfer_count",
    "max_transfer_disk_bytes", "max_transfer_disk_count", "auto_create_topic", "auto_create_group",
    "default_topic_queue_nums", "recall_messages", "timer_max_delay_s", "transaction_timeout_ms",
    "transaction_check_interval_ms", "transaction_check_max", "reject_transactions", "long_polling",
    "short_polling_ms", "server_side_resets", "notify_members", "differing_subscriptions",
    "check_message_types", "priority_ascending",
    "urgent_retry_percent", "retry_percent", "separate_retry_queues", "permission",
    "filtered_lag", "max_lite_subscriptions", "lite_subscription_timeout_ms", "lite_min_ttl_ms", "lite_expiry_interval_ms",
})  # fmt: skip
NAMESERVER_LIVE = frozenset(("broker_expiry_ms", "scan_interval_ms", "order_messages", "drop_unnamed_topics"))
LIVE_FILES = {"config/live.conf": BROKER_LIVE, "namesrv/live.conf": NAMESERVER_LIVE}
"""Below the store: what was set while the node ran."""


def about(name: str) -> str:
    """One line on a setting."""
    return str(_ROWS[name].metadata["about"])


def allowed(name: str) -> str:
    """What a setting may be, in words."""
    return str(_ROWS[name].metadata["kind"].allowed)


def rocketmq_key(name: str) -> str:
    """RocketMQ's key for a setting ("" if it has none)."""
    return str(_ROWS[name].metadata["rocketmq"])


def name_of(key: str) -> str:
    """The setting that a key of ours or of RocketMQ means ("" if none)."""
    return key if key in _ROWS else BY_ROCKETMQ.get(key) or ALIASES.get(key, "")


def parse(name: str, raw: object) -> Any:
    """Value of a setting from what a file, variable or flag says. Raises InvalidArgument: what is allowed."""
    try:
        return _ROWS[name].metadata["kind"].parse(raw)
    except InvalidArgument as error:  # of a file that the value names
        raise InvalidArgument(f"{name}: {error}") from None
    except HiddenValue:
        raise InvalidArgument(f"{name}: what stands there is not allowed; allowed: {allowed(name)}") from None
    except (ValueError, TypeError) as error:
        raise InvalidArgument(f"{name}: {raw!r} is not allowed; allowed: {allowed(name)}") from error


def check(name: str, value: object) -> None:
    """Raises InvalidArgument unless `value` is already what `parse` would give."""
    parsed = parse(name, value)
    if type(value) is not type(parsed) or value != parsed:
        raise InvalidArgument(f"{name}: {value!r} is not allowed; allowed: {allowed(name)}")

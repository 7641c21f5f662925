"""Settings of one process: what they are, what is allowed, and where each effective value came from.

Sources, weakest first: defaults, the file (TOML, or RocketMQ's `key=value`), the environment (RMQ_*, NAMESRV_ADDR), flags.
`NodeSettings` is checked whenever it is made; `load` reads the sources. RocketMQ's own keys that are not settings of ours
are judged by `rmq.config.keys`. Kept out: flags' spelling and printing (commands), resolving host names, making directories.
"""

import dataclasses
import difflib
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from rmq.config import access, keys
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
    optional,
    path,
    peers,
    setting as _setting,
    size,
)
from rmq.config.observing import ObservingSettings
from rmq.config.security import contradictions, is_loopback, open_door
from rmq.errors import InvalidArgument

_HIGHEST = 2**31 - 1
_STORE_DIR = Path("rmq-data")
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
        1, integer(1, 100), "fixed roles: nodes that the group should have; fewer are told as missing", "totalReplicas"
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
    property_filter: bool = _setting(False, flag(), "consumers may filter by SQL92", "enablePropertyFilter")
    unclean: bool = _setting(False, flag(), "this node may vote and lead though it may have lost bytes that were acknowledged")
    store_dir: Path = _setting(_STORE_DIR, path(), "directory of the store", "storePathRootDir")  # noqa: RUF009
    flush: str = _setting(
        "async",
        choice("async", "sync", ASYNC_FLUSH="async", SYNC_FLUSH="sync"),
        "sync: a send is answered after fsync",
        "flushDiskType",
    )
    segment_bytes: int = _setting(1024 * MIB, size(4096, 2**31), "bytes of one CommitLog file", "mappedFileSizeCommitLog")
    queue_file_bytes: int = _setting(6_000_000, size(20, 2**31), "bytes of one ConsumeQueue file", "mappedFileSizeConsumeQueue")
    timer_log_file_bytes: int = _setting(100 * MIB, size(4096, 2**31), "bytes of one timerlog file", "mappedFileSizeTimerLog")
    reserved_hours: int = _setting(72, integer(1, 1_000_000), "how long messages are kept", "fileReservedTime")
    keep_unarchived: bool = _setting(False, flag(), "log files stay, whatever the disk says, until they are archived")
    delete_hours: tuple[int, ...] = _setting((4,), hours(), "hours of the day in which expired files are deleted", "deleteWhen")
    max_used_percent: int = _setting(
        75, integer(10, 95), "of the disk; above: expired files go at any hour", "diskMaxUsedSpaceRatio"
    )
    clean_forcibly_percent: int = _setting(
        85, integer(30, 85), "of the disk; above: the oldest files go though not expired", "diskSpaceCleanForciblyRatio"
    )
    clean_forcibly: bool = _setting(True, flag(), "files may go though not expired", "cleanFileForciblyEnable")
    refuse_sends_percent: int = _setting(
        90, integer(35, 90), "of the disk; above: sends are refused", "diskSpaceWarningLevelRatio"
    )
    message_index: bool = _setting(True, flag(), "messages are found by key", "messageIndexEnable")
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
    max_topics: int = _setting(50_000, integer(20, 100_000), "topics; then only the broker makes more, for groups: twice as many")
    max_groups: int = _setting(20_000, integer(10, 100_000), "consumer groups of the broker")
    auto_create_topic: bool = _setting(True, flag(), "a send may make its topic", "autoCreateTopicEnable")
    auto_create_group: bool = _setting(True, flag(), "a consumer may make its group", "autoCreateSubscriptionGroup")
    recall_messages: bool = _setting(False, flag(), "a timed message may be taken back before it comes", "recallMessageEnable")
    delay_levels: str = _setting(
        "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h",
        delay_levels(),
        "how long messages of each delay level wait",
        "messageDelayLevel",
    )
    timer_max_delay_s: int = _setting(259_200, integer(1, 2**31), "a timed message may come so much later", "timerMaxDelaySec")
    default_topic_queue_nums: int = _setting(8, integer(1, 1024), "queues of TBW102", "defaultTopicQueueNums")
    transaction_timeout_ms: int = _setting(
        6_000, integer(0, 86_400_000), "how long a half message is left alone", "transactionTimeOut"
    )
    transaction_check_interval_ms: int = _setting(
        30_000, integer(100, 86_400_000), "how often its producer is asked then", "transactionCheckInterval"
    )
    transaction_check_max: int = _setting(
        15, integer(1, 10_000), "how often at most; then it is put aside", "transactionCheckMax"
    )
    reject_transactions: bool = _setting(False, flag(), "half messages are refused", "rejectTransactionMessage")
    broker_expiry_ms: int = _setting(120_000, integer(1_000, 3_600_000), "nameserver: a broker silent this long is gone")
    scan_interval_ms: int = _setting(
        10_000, integer(1_000, 600_000), "nameserver: how often it looks for silent brokers", "scanNotActiveBrokerInterval"
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
_BY_ROCKETMQ = {row.metadata["rocketmq"]: name for name, row in _ROWS.items() if row.metadata["rocketmq"]}
NAMES = tuple(_ROWS)
_ALIASES = {"useTLS": "tls_dial"}  # keys of RocketMQ that say the same as another one
OTHER_VARIABLES = frozenset(
    {"RMQ_CONFIG", "RMQ_TIMEOUT", "RMQ_TLS", "RMQ_USER", "RMQ_PASSWORD_FILE", "RMQ_PASSWORD"}
)  # no settings of a node


def about(name: str) -> str:
    """One line on a setting."""
    return str(_ROWS[name].metadata["about"])


def allowed(name: str) -> str:
    """What a setting may be, in words."""
    return str(_ROWS[name].metadata["kind"].allowed)


def rocketmq_key(name: str) -> str:
    """RocketMQ's key for a setting ("" if it has none)."""
    return str(_ROWS[name].metadata["rocketmq"])


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


# --- where values come from -------------------------------------------------------------------------------------------


class Entry(NamedTuple):
    """One `key = value` as it was written. `origin`: "broker.conf:12", "RMQ_FLUSH", "--flush"."""

    key: str
    raw: object
    origin: str


@dataclass(frozen=True, slots=True)
class Loaded:
    """Effective settings. `origins`: name of the setting -> where its value came from. `warnings`: whole sentences."""

    settings: NodeSettings
    origins: Mapping[str, str]
    warnings: tuple[str, ...]


def load(file: Path | None = None, env: Mapping[str, str] | None = None, flags: Iterable[Entry] = ()) -> Loaded:
    """Reads all sources; a later one wins.

    Raises InvalidArgument for a file that cannot be read, a wrong value (naming file, line, key and what is allowed), or
    a key of RocketMQ that promises what this release does not do.
    """
    warnings: list[str] = []
    rows = list(_from_file(file)) if file else []
    rows += _from_env(env or {}, warnings)
    rows += flags
    ours = {row.key: row for row in _translate(rows, warnings)}
    _check_secrets(ours, file)
    values = _values(ours)
    origins = {name: ours[name].origin if name in ours else "default" for name in NAMES}
    settings = _make(values, origins)
    keys.judge_paths([row for row in rows if row.key in keys.PATHS], settings.store_dir)
    warnings += [*_doubts(settings), *_look_at_doors(settings)]
    return Loaded(settings, origins, tuple(dict.fromkeys(warnings)))


def _check_secrets(ours: Mapping[str, Entry], file: Path | None) -> None:
    """Raises InvalidArgument where others could read them (S12)."""
    for name in access.SECRETS:
        row = ours.get(name)
        if row is None or str(row.raw).startswith("file:"):
            continue
        if row.origin.startswith("--"):
            flag = row.origin.partition("=")[0]
            raise InvalidArgument(f"{flag}: everybody can read flags; write file:PATH, or use the environment")
        if file is not None and row.origin.startswith(f"{file}:") and file.stat().st_mode & 0o077:
            about = f"a secret stands here and others may read the file; chmod 600 {file}, or write file:PATH"
            raise InvalidArgument(f"{row.origin}: {about}")


def _values(ours: dict[str, Entry]) -> dict[str, Any]:
    values = {name: _parse_entry(row) for name, row in ours.items()}
    role = values.get("role", "all")
    if role == "nameserver" and "listen_port" in ours:  # RocketMQ's namesrv.conf says listenPort as well
        ours["namesrv_port"] = ours.pop("listen_port")
        values["namesrv_port"] = values.pop("listen_port")
    if role == "broker" and not values.get("namesrv_addresses"):
        values["namesrv_addresses"] = (DEFAULT_NAMESRV,)
    return values


def _parse_entry(row: Entry) -> Any:
    try:
        return parse(row.key, row.raw)
    except InvalidArgument as error:
        key = rocketmq_key(row.key)
        also = f" (RocketMQ: {key})" if key else ""
        raise InvalidArgument(f"{row.origin}: {error}{also}") from None


def _make(values: dict[str, Any], origins: Mapping[str, str]) -> NodeSettings:
    try:
        return NodeSettings(**values)
    except InvalidArgument as error:
        name = str(error).partition(":")[0]
        raise InvalidArgument(f"{origins.get(name, 'settings')}: {error}") from None


def _doubts(settings: NodeSettings) -> Iterator[str]:
    told, listens = settings.store_host, settings.listen_host
    if settings.with_broker and is_loopback(listens) and not is_loopback(told):
        yield f"clients are told {told}, but the node listens on {listens} only; set listen_host (bindAddress, --listen) too"


def _look_at_doors(settings: NodeSettings) -> Iterator[str]:
    """What to warn about. Raises InvalidArgument for a door that stands open though nobody said that it may."""
    wrong = open_door(settings.listen_host, settings.knows_who_comes)
    if wrong and not settings.insecure:
        raise InvalidArgument(
            f"listen_host: {wrong}. Set authentication = true (users) or tls_client_auth = require with tls_mode = enforcing "
            "(docs/security), or insecure = true (--insecure) where only your own machines reach it"
        )
    if wrong:
        yield f"insecure: {wrong}. Admit your own machines only (docs/security)"


def _translate(rows: Iterable[Entry], warnings: list[str]) -> Iterator[Entry]:
    """Keys to names of settings; everything else is judged: refused, warned about, or (harmless) passed over."""
    for row in rows:
        name = row.key if row.key in _ROWS else _BY_ROCKETMQ.get(row.key) or _ALIASES.get(row.key)
        if name:
            yield row._replace(key=name)
        elif row.key not in keys.PATHS and (warning := _judged(row)):
            warnings.append(f"{row.origin}: {warning}")


def _judged(row: Entry) -> str:
    try:
        warning = keys.judge(row.key, str(row.raw))
    except InvalidArgument as error:
        raise InvalidArgument(f"{row.origin}: {error}") from None
    return f"unknown key {row.key}{_suggestion(row.key)}" if warning is None else warning


def _suggestion(key: str, names: Iterable[str] = ()) -> str:
    candidates = {name.lower(): name for name in (names or [*NAMES, *_BY_ROCKETMQ, *keys.KNOWN])}
    close = difflib.get_close_matches(key.lower(), candidates, n=1, cutoff=0.7)
    return f"; did you mean {candidates[close[0]]}?" if close else ", ignored"


def _from_env(env: Mapping[str, str], warnings: list[str]) -> Iterator[Entry]:
    if env.get("NAMESRV_ADDR"):
        yield Entry("namesrv_addresses", env["NAMESRV_ADDR"], "NAMESRV_ADDR")
    known = {f"RMQ_{name.upper()}": name for name in NAMES}
    for variable in sorted(env):
        if variable in known:
            yield Entry(known[variable], env[variable], variable)
        elif variable.startswith("RMQ_") and variable not in OTHER_VARIABLES:
            warnings.append(f"{variable}: unknown variable{_suggestion(variable, known)}")


# --- files ------------------------------------------------------------------------------------------------------------


def _from_file(file: Path) -> list[Entry]:
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise InvalidArgument(f"{file}: cannot be read ({why}); give --config the path of a TOML or .conf file") from error
    return list(_toml_entries(file, text) if file.suffix == ".toml" else _conf_entries(file, text))


def _toml_entries(file: Path, text: str) -> Iterator[Entry]:
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidArgument(f"{file}: no valid TOML: {error} (a RocketMQ file should be named .conf)") from error
    for key, value in table.items():
        origin = f"{file}:{_toml_line(text, key)}"
        if isinstance(value, dict):
            raise InvalidArgument(f"{origin}: [{key}] is a table; write all settings at the top, one `name = value` a line")
        yield Entry(key, value, origin)


def _toml_line(text: str, key: str) -> int:
    found = re.search(rf"^[ \t]*\[?[\"']?{re.escape(key)}[\"']?[ \t]*[]=.]", text, re.MULTILINE)
    return text.count("\n", 0, found.start()) + 1 if found else 1


def _conf_entries(file: Path, text: str) -> Iterator[Entry]:
    """Java's properties as far as brokers' files use them: comments (# !), `key=value`, a `\\` at the end goes on."""
    for number, line in _logical_lines(text):
        key, found, value = line.partition("=")
        if not found or not key.strip():
            raise InvalidArgument(f"{file}:{number}: {line!r} is no `key=value`; put # before a comment")
        if value.strip():  # RocketMQ ships empty keys; they mean the default
            yield Entry(key.strip(), value.strip(), f"{file}:{number}")


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    begun, first = "", 0
    for number, line in enumerate(text.splitlines(), 1):
        line = line.strip()
        if not begun and (not line or line[0] in "#!"):
            continue
        first = first if begun else number
        if line.endswith("\\"):
            begun += line[:-1]
            continue
        yield first, begun + line
        begun = ""
    if begun:
        yield first, begun

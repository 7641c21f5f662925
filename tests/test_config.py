"""Settings: what each source says, who wins, what RocketMQ's files mean here, and how mistakes are told."""

import contextlib
import re
from pathlib import Path
from typing import Any

import pytest

from rmq.config import keys as configkeys
from rmq.config.loading import Entry, load
from rmq.config.settings import NAMES, NodeSettings, parse, rocketmq_key
from rmq.errors import InvalidArgument
from rmq.net.remoting.bodies import GROUP_NAMES
from rmq.secretfiles import read_lines

AS_SHIPPED = """\
# the keys of RocketMQ's broker-n0.conf
brokerClusterName = RaftCluster
brokerName=RaftNode00
listenPort=30911
namesrvAddr=127.0.0.1:9876;127.0.0.1:9877
storePathRootDir={root}
storePathCommitLog={root}/commitlog
enableDLegerCommitLog={elected}
dLegerGroup=RaftNode00
dLegerPeers=n0-127.0.0.1:40911;n1-127.0.0.1:40912;n2-127.0.0.1:40913
## must be unique
dLegerSelfId=n0
sendMessageThreadPoolNums=16
"""


def written(folder: Path, name: str, text: str) -> Path:
    file = folder / name
    file.write_text(text)
    return file


def shipped(folder: Path, elected: str = "false") -> Path:
    return written(folder, "broker-n0.conf", AS_SHIPPED.format(root=folder / "store", elected=elected))


def test_without_any_source_a_node_is_on_loopback_with_rocketmqs_numbers() -> None:
    settings = load().settings
    assert (settings.listen_host, settings.listen_port, settings.namesrv_port) == ("127.0.0.1", 10911, 9876)
    assert settings.store_dir == Path("rmq-data")
    assert settings.segment_bytes == 1 << 30
    assert settings.max_message_bytes == 4 << 20
    assert (settings.client_expiry_ms, settings.broker_expiry_ms, settings.scan_interval_ms) == (120_000, 120_000, 5_000)
    assert settings.flush == "async"


def test_flags_beat_variables_which_beat_the_file(tmp_path: Path) -> None:
    file = written(tmp_path, "b.toml", 'broker_name = "from-file"\nflush = "sync"\ncluster_name = "from-file"\n')
    env = {"RMQ_BROKER_NAME": "from-env", "RMQ_CLUSTER_NAME": "from-env"}
    loaded = load(file, env, [Entry("cluster_name", "from-flag", "--cluster")])
    assert (loaded.settings.flush, loaded.settings.broker_name, loaded.settings.cluster_name) == ("sync", "from-env", "from-flag")
    assert loaded.origins["flush"] == f"{file}:2"
    assert loaded.origins["broker_name"] == "RMQ_BROKER_NAME"
    assert loaded.origins["cluster_name"] == "--cluster"
    assert loaded.origins["listen_port"] == "default"
    assert not loaded.warnings


def test_the_file_that_rocketmq_ships_is_read(tmp_path: Path) -> None:
    loaded = load(shipped(tmp_path), {}, [Entry("role", "broker", "--role")])
    settings = loaded.settings
    assert (settings.cluster_name, settings.broker_name, settings.listen_port) == ("RaftCluster", "RaftNode00", 30911)
    assert settings.namesrv_addresses == ("127.0.0.1:9876", "127.0.0.1:9877")
    assert settings.store_dir == tmp_path / "store"
    text = "\n".join(loaded.warnings)
    assert settings.peers == ("n0-127.0.0.1:40911", "n1-127.0.0.1:40912", "n2-127.0.0.1:40913")
    assert (settings.elected, settings.node_id) == (False, "n0")
    assert "sendMessageThreadPoolNums has no effect here" in text


@pytest.mark.parametrize(
    ("line", "key"),
    [
        ("minInSyncReplicas=2", "minInSyncReplicas"),
        ("aclEnable=true", "aclEnable"),
        ("tls.client.authServer=false", "tls.client.authServer"),
        ("storeType=defaultRocksDB", "storeType"),
        ("readOnlyCommitLogStorePaths=elsewhere", "readOnlyCommitLogStorePaths"),
    ],
)
def test_a_key_whose_promise_would_be_broken_is_refused_with_its_line(tmp_path: Path, line: str, key: str) -> None:
    file = written(tmp_path, "broker.conf", f"brokerName=a\n{line}\n")
    with pytest.raises(InvalidArgument, match=rf"broker\.conf:2: {key}=\w+ is refused"):
        load(file)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("dLegerSelfId=n7", "'n7' is none of the peers n0, n1, n2"),
        ("dLegerGroup=other", "must be broker_name RaftNode00"),
        ("preferredLeaderId=n9", "n9 is none of the peers"),
        ("dLegerPeers=n0-127.0.0.1:1;n0-127.0.0.1:2", "each id once"),
        ("dLegerPeers=127.0.0.1:1", "id-host:port"),
    ],
)
def test_an_elected_group_must_make_sense(tmp_path: Path, line: str, why: str) -> None:
    key = line.partition("=")[0]
    text = "\n".join(row for row in shipped(tmp_path, "true").read_text().splitlines() if not row.startswith(key))
    assert load(shipped(tmp_path, "true"), {}, [Entry("role", "broker", "--role")]).settings.elected
    with pytest.raises(InvalidArgument, match=why):
        load(written(tmp_path, "broker.conf", f"{text}\n{line}\n"), {}, [Entry("role", "broker", "--role")])


def test_harmless_values_of_such_keys_pass(tmp_path: Path) -> None:
    text = "brokerRole=ASYNC_MASTER\nenableDLegerCommitLog=false\ninSyncReplicas=1\naclEnable=false\n"
    assert not load(written(tmp_path, "broker.conf", text)).warnings


def test_store_paths_must_lie_where_the_store_keeps_them(tmp_path: Path) -> None:
    file = written(tmp_path, "broker.conf", f"storePathRootDir={tmp_path}/store\nstorePathCommitLog=/other/commitlog\n")
    with pytest.raises(
        InvalidArgument, match=r"broker\.conf:2: storePathCommitLog: the store keeps it at.*mount the other disk there"
    ):
        load(file)


def test_a_password_in_the_file_is_refused_and_not_shown(tmp_path: Path) -> None:
    """S12."""
    with pytest.raises(InvalidArgument, match="name one of mode 0600") as refused:
        load(written(tmp_path, "broker.conf", "tls.server.keyPassword=secret\n"))
    assert "=secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("listenPort=99999", r":1: listen_port: '99999' is not allowed; allowed: .* from 0 to 65535 \(RocketMQ: listenPort\)"),
        ("\nlistenPort=x", ":2: listen_port"),
        ("flushDiskType=NEVER", "async or sync"),
        ("brokerName=a b", "letters, digits"),
        ("autoCreateTopicEnable=maybe", "true or false"),
        ("namesrvAddr=localhost", "host:port"),
        ("mappedFileSizeCommitLog=1048576", ":1: segment_bytes: 1048576 is too small"),
        ("just words", ":1: 'just words' is no `key=value`"),
    ],
)
def test_a_wrong_value_names_file_line_key_and_what_is_allowed(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        load(written(tmp_path, "broker.conf", text + "\n"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('listen_port = "x"', ":1: listen_port"),
        ("\n\nbroker_id = -1", ":3: broker_id"),
        ("auto_create_topic = 7", "true or false"),
        ("listen_port = true", "listen_port"),
        ("[broker]\nflush = 'sync'", r":1: \[broker\] is a table"),
        ("flush = ", "no valid TOML"),
    ],
)
def test_the_same_for_toml(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        load(written(tmp_path, "b.toml", text + "\n"))


def test_unknown_keys_and_variables_get_a_suggestion(tmp_path: Path) -> None:
    file = written(tmp_path, "broker.conf", "flushDiskTyp=SYNC_FLUSH\nqwertyuiop=1\n")
    loaded = load(file, {"RMQ_BROKERNAME": "x", "HOME": "/"})
    assert set(loaded.warnings) == {
        f"{file}:1: unknown key flushDiskTyp; did you mean flushDiskType?",
        f"{file}:2: unknown key qwertyuiop, ignored",
        "RMQ_BROKERNAME: unknown variable; did you mean RMQ_BROKER_NAME?",
    }


def test_a_toml_file_may_use_both_spellings_and_sizes_with_units(tmp_path: Path) -> None:
    file = written(tmp_path, "b.toml", 'brokerName = "x"\nsegment_bytes = "16MiB"\nnamesrv_addresses = ["a:1", "[::1]:2"]\n')
    settings = load(file).settings
    assert (settings.broker_name, settings.segment_bytes, settings.namesrv_addresses) == ("x", 16 << 20, ("a:1", "[::1]:2"))


def test_properties_may_go_on_in_the_next_line(tmp_path: Path) -> None:
    file = written(tmp_path, "broker.conf", "! comment\nnamesrvAddr=a:1;\\\n   b:2\nflushDiskType=\n")
    assert load(file).settings.namesrv_addresses == ("a:1", "b:2")


def test_a_nameservers_listen_port_is_the_nameservers(tmp_path: Path) -> None:
    loaded = load(written(tmp_path, "namesrv.conf", "listenPort=19876\n"), {}, [Entry("role", "nameserver", "--role")])
    assert (loaded.settings.namesrv_port, loaded.settings.listen_port) == (19876, 10911)
    assert loaded.origins["namesrv_port"].endswith("namesrv.conf:1")


def test_a_broker_registers_somewhere() -> None:
    assert load(flags=[Entry("role", "broker", "--role")]).settings.namesrv_addresses == ("127.0.0.1:9876",)
    assert load().settings.namesrv_addresses == ()  # its own, in the same process
    assert load(env={"NAMESRV_ADDR": "ns:1"}).settings.namesrv_addresses == ("ns:1",)


def test_listening_everywhere_needs_an_address_for_clients() -> None:
    """The store host is an identity: it lies in message ids and can never be 0.0.0.0."""
    with pytest.raises(InvalidArgument, match="set advertised_host"):
        NodeSettings(listen_host="0.0.0.0")
    assert NodeSettings(listen_host="0.0.0.0", advertised_host="10.0.0.1").store_host == "10.0.0.1"
    assert NodeSettings(listen_host="0.0.0.0", role="nameserver").role == "nameserver"
    with pytest.raises(InvalidArgument, match="clients can dial"):
        NodeSettings(advertised_host="0.0.0.0")


def test_sends_that_are_refused_before_anything_is_deleted_are_a_warning() -> None:
    flags = [
        Entry("max_used_percent", "95", "-"),
        Entry("refuse_sends_percent", "50", "-"),
        Entry("clean_forcibly_percent", "40", "-"),
    ]
    [warning] = load(flags=flags).warnings
    assert "diskMaxUsedSpaceRatio=95: at 50 %" in warning
    [warning] = load(flags=[Entry("refuse_sends_percent", "80", "-")]).warnings
    assert "diskSpaceCleanForciblyRatio=85: at 80 %" in warning


def test_an_address_that_nobody_can_dial_is_a_warning() -> None:
    loaded = load(flags=[Entry("advertised_host", "10.0.0.1", "--advertise")])
    assert "clients are told 10.0.0.1, but the node listens on 127.0.0.1 only" in loaded.warnings[0]


def test_settings_are_checked_when_made() -> None:
    for name, value in {"flush": "SYNC_FLUSH", "listen_port": "1", "broker_id": True, "namesrv_addresses": ["a:1"]}.items():
        with pytest.raises(InvalidArgument, match=name):
            NodeSettings(**{name: value})
    with pytest.raises(InvalidArgument, match="other"):
        NodeSettings(listen_port=9876)


def test_every_default_is_what_parsing_its_text_gives() -> None:
    settings = NodeSettings()
    for name in NAMES:
        value = getattr(settings, name)
        text = ";".join(map(str, value)) if isinstance(value, tuple) else str(value)
        assert parse(name, text) == value, name


def test_no_key_of_rocketmq_is_both_served_and_not_served() -> None:
    served = {rocketmq_key(name) for name in NAMES}
    assert not served & configkeys.KNOWN


def test_rocketmqs_keys_of_tls_are_read(tmp_path: Path) -> None:
    lines = [
        "tls.server.mode=permissive", "tls.server.certPath=/c/n.pem", "tls.server.keyPath=/c/n.key",
        "tls.server.trustCertPath=/c/ca.pem", "tls.server.need.client.auth=optional", "useTLS=true",
        "tls.protocols=TLSv1.3,TLSv1.2", "tls.ciphers=ECDHE-ECDSA-AES256-GCM-SHA384", "tls.client.certPath=/elsewhere",
    ]  # fmt: skip
    loaded = load(written(tmp_path, "broker.conf", "\n".join(lines)), {}, [Entry("role", "broker", "--role")])
    settings = loaded.settings
    assert (settings.tls_mode, settings.tls_client_auth) == ("permissive", "optional")
    assert (settings.tls_cert, settings.tls_key, settings.tls_ca) == ("/c/n.pem", "/c/n.key", "/c/ca.pem")
    assert (settings.tls_protocols, settings.tls_ciphers) == (("TLSv1.2", "TLSv1.3"), "ECDHE-ECDSA-AES256-GCM-SHA384")
    assert settings.dials_tls
    assert any("a node shows tls_cert" in warning for warning in loaded.warnings)


@pytest.mark.parametrize(
    ("settings", "about"),
    [
        ({"tls_mode": "permissive"}, "tls_mode: permissive needs tls_cert"),
        ({"tls_mode": "enforcing", "tls_cert": "c", "tls_client_auth": "require"}, "tls_ca"),
        ({"tls_protocols": ("TLSv1.1",)}, "TLSv1.2 or TLSv1.3"),
    ],
)
def test_tls_that_cannot_be_is_refused(settings: dict[str, Any], about: str) -> None:
    with pytest.raises(InvalidArgument, match=about):
        NodeSettings(**settings)


def test_a_file_that_is_not_there_is_told_so(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match=r"none\.conf: cannot be read \(No such file"):
        load(tmp_path / "none.conf")


def test_the_documented_table_of_settings_is_the_real_one() -> None:
    text = (Path(__file__).parents[1] / "docs" / "configuration.md").read_text()
    rows = [line for line in text.splitlines() if line.startswith("| `") and line.count("|") == 5]
    documented = {row.split("|")[1].strip(" `"): row for row in rows}
    for name in NAMES:
        key = rocketmq_key(name)
        assert f"`{key}`" in documented[name] if key else name in documented, name


@pytest.mark.parametrize("name", ["broker.toml", "broker.conf", "nameserver.toml"])
def test_the_examples_load_without_a_warning(name: str) -> None:
    role = "nameserver" if name.startswith("name") else "broker"
    assert not load(Path(__file__).parents[1] / "conf" / name, {}, [Entry("role", role, "--role")]).warnings


def test_every_setting_is_read_by_a_node() -> None:
    """A setting that nobody reads would be a promise that is not kept."""
    root = Path(__file__).parents[1] / "rmq"
    nodes = [
        path.read_text()
        for room in ("broker", "nameserver", "commands", "net/transport", "guard")
        for path in (root / room).rglob("*.py")
    ]
    text = "\n".join(
        [*nodes, *((root / "config" / file).read_text() for file in ("settings.py", "security.py", "access.py", "loading.py"))]
    )
    read = set(re.findall(r"(?:settings|self)\.(?=([a-z_]+))", text))
    assert [name for name in NAMES if name not in read] == []


@pytest.mark.parametrize(
    ("listens", "opens"),
    [
        ("127.0.0.1", False),
        ("::1", False),
        ("localhost", False),
        ("10.0.0.1", True),
        ("0.0.0.0", True),
        ("127.example.com", True),
    ],
)
@pytest.mark.parametrize("role", ["nameserver", "broker", "all"])
def test_doors_are_shut_unless_opened(listens: str, opens: bool, role: str) -> None:
    """S1: beyond loopback a node knows who comes, or was told that it need not; then it warns, at every start."""
    told = "10.0.0.1" if opens else listens
    entries = [Entry("listen_host", listens, "--listen"), Entry("role", role, "--role"), Entry("advertised_host", told, "-")]
    certified = {"tls_mode": "enforcing", "tls_client_auth": "require", "tls_cert": "c", "tls_key": "k", "tls_ca": "a"}
    with pytest.raises(InvalidArgument, match="--insecure") if opens else contextlib.nullcontext():
        load(None, {}, entries)
    for part in range(1, len(certified)):
        half = dict(list(certified.items())[-part:])
        with pytest.raises(InvalidArgument) if opens else contextlib.nullcontext():
            load(None, {}, [*entries, *(Entry(name, value, "-") for name, value in half.items())])
    known = load(None, {}, [*entries, *(Entry(name, value, "-") for name, value in certified.items())])
    assert not any("whoever reaches its ports" in text for text in known.warnings)
    secret = '{"accessKey":"node","secretKey":"012345678901234567890123456789"}'
    users = [Entry("authentication", True, "-"), Entry("node_credentials", secret, "RMQ_NODE_CREDENTIALS")]
    assert not any("whoever reaches its ports" in text for text in load(None, {}, [*entries, *users]).warnings)
    found = load(None, {}, [*entries, Entry("insecure", True, "--insecure")]).warnings
    assert sum("whoever reaches its ports may do everything" in text for text in found) == opens


@pytest.mark.parametrize("name", ["init_user", "node_credentials"])
def test_secrets_come_from_files_of_their_owner_or_the_environment(tmp_path: Path, name: str) -> None:
    """S12: never from flags, and no error or setting shows one."""
    text = '{"accessKey":"node","secretKey":"canary"}'
    file, conf = tmp_path / "secret", tmp_path / "broker.toml"
    file.write_text(text)
    file.chmod(0o600)
    conf.write_text(f"{name} = '{text}'\n")
    conf.chmod(0o644)
    for entries, config in (([Entry(name, text, f"--set {name}")], None), ([], conf)):
        with pytest.raises(InvalidArgument) as refused:
            load(config, {}, entries)
        assert "canary" not in str(refused.value)
    with pytest.raises(InvalidArgument) as refused:
        load(None, {f"RMQ_{name.upper()}": text.replace("secretKey", "Key")}, [])
    assert "canary" not in str(refused.value)
    conf.chmod(0o600)
    by_flag = [Entry(name, f"file:{file}", f"--set {name}")]
    for config, env, entries in ((conf, {}, []), (None, {f"RMQ_{name.upper()}": text}, []), (None, {}, by_flag)):
        (found,) = getattr(load(config, env, entries).settings, name)
        assert (found.name, found.secret) == ("node", "canary")
        assert "canary" not in repr(found)
    file.chmod(0o644)
    with pytest.raises(InvalidArgument, match="others may read"):
        load(None, {}, by_flag)


def test_every_key_that_rocketmq_shows_is_known() -> None:
    """As its broker and nameserver 5.5.0 print their configurations: none is called unknown when a tool sets it."""
    recorded = (Path(__file__).parent / "interop" / "mqadmin-5.5.0.json").read_text()
    shown = set(re.findall(r"\b([a-z][A-Za-z.0-9]+) += ", recorded)) - {*GROUP_NAMES, "groupRetryPolicy"}  # which a group has
    assert len(shown) > 400
    known = configkeys.KNOWN | configkeys.BLACK_LIST | {rocketmq_key(name) for name in NAMES} | {"useTLS"}
    assert not shown - known


@pytest.mark.parametrize("name", ["store_dir", "tls_ca"])
def test_a_path_of_a_user_who_is_not_there(name: str) -> None:
    """Commands ended as a bug: a home that cannot be told is no ValueError."""
    with pytest.raises(InvalidArgument, match=f"{name}: '~nobody-here/x' is not allowed"):
        parse(name, "~nobody-here/x")


def test_a_secret_of_a_user_who_is_not_there() -> None:
    with pytest.raises(InvalidArgument, match="cannot be read"):
        read_lines("~nobody-here/secret")

"""What updateBrokerConfig and updateNamesrvConfig cannot touch, whoever asks: every key is tried, with users on (F9)."""

import pytest

from rmq.codes import ResponseCode as R
from rmq.config import keys
from rmq.config.settings import ALIASES, BROKER_LIVE, BY_ROCKETMQ, LIVE_FILES, NAMES, NAMESERVER_LIVE, name_of
from rmq.net.commands.access import PolicyEntry
from rmq.net.commands.configuration import GetBrokerConfig, GetNameserverConfig, UpdateBrokerConfig, UpdateNameserverConfig
from rmq.testing import LocalBroker
from tests.broker.test_access import SETTINGS, login, make_user, nameserver_permits

KEYS = sorted({*NAMES, *BY_ROCKETMQ, *ALIASES, *keys.KNOWN, *keys.BLACK_LIST})
HARMLESS = {*keys.NO_EFFECT} - keys.BLACK_LIST
# Places, addresses, secrets, and the rules themselves.
NEVER = [
    "store_dir", "storePathRootDir", "listen_host", "bindAddress", "listenPort", "listen_port", "advertised_host", "brokerIP1",
    "namesrvAddr", "namesrv_port", "peers", "dLegerPeers", "peer_sources", "peer_port", "metrics_host", "metrics_port",
    "authentication", "authenticationEnabled", "authorization", "authorizationEnabled", "login_optional", "signed_in_tls_only",
    "insecure", "init_user", "initAuthenticationUser", "node_credentials", "innerClientAuthenticationCredentials",
    "no_login_codes", "authenticationWhitelist", "no_policy_codes", "authorizationWhitelist", "tls_mode", "tls.server.mode",
    "tls_dial", "tls.enable", "useTLS", "tls_cert", "tls.server.certPath", "tls_key", "tls_ca", "tls_client_auth",
    "tls_protocols", "tls_ciphers", "tls_server_name", "member_names", "tls_key_password_file", "tls.server.keyPassword",
    "aclEnable", "authConfigPath",
]  # fmt: skip


def test_settings_that_change_from_afar_are_no_place_no_secret_and_no_rule() -> None:
    assert set(NEVER) <= set(KEYS)
    assert not {name_of(key) for key in NEVER} & (BROKER_LIVE | NAMESERVER_LIVE)


@pytest.mark.parametrize("who", ["root", "ops"])
async def test_every_key(who: str) -> None:
    """`root` is a super user; `ops` may do everything in the cluster. Nothing changes, nothing is kept."""
    async with LocalBroker(**SETTINGS) as local:
        root = await login(local, "root", "root-secret")
        await make_user(root, "ops", PolicyEntry("Cluster:*", ["All"]))
        await local.clock.advance_until(lambda: nameserver_permits(local, "ops"))
        for address, live, get, update in (
            (local.address, BROKER_LIVE, GetBrokerConfig, UpdateBrokerConfig),
            (local.nameserver, NAMESERVER_LIVE, GetNameserverConfig, UpdateNameserverConfig),
        ):
            peer = await login(local, who, f"{who}-secret", address)
            before = (await peer.ask(get())).text
            wrong = []
            for key in KEYS:
                if name_of(key) in live or key in HARMLESS:
                    continue
                wanted = (R.NO_PERMISSION,) if key in NEVER else (R.NO_PERMISSION, R.INVALID_PARAMETER)
                for value in ("true", "/tmp/x", "127.0.0.1:1") if key in NEVER else ("1",):
                    if await peer.ask_code(update(f"{key}={value}")) not in wanted:
                        wrong.append(f"{key}={value}")
            assert not wrong
            assert (await peer.ask(get())).text == before
            await peer.close()
        assert not [name for name in LIVE_FILES if (local.store_dir / name).exists()]
        await root.close()

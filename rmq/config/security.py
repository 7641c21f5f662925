"""Settings about who may reach a node: TLS."""

import ipaddress
from collections.abc import Iterator
from dataclasses import dataclass

from rmq.config.kinds import choice, file, flag, host, names, optional, protocols, setting, words


@dataclass(frozen=True, slots=True, kw_only=True)
class SecuritySettings:
    """Rows of `NodeSettings`. Secrets themselves are no settings: files, or variables, hold them."""

    tls_mode: str = setting(
        "disabled",
        choice("disabled", "permissive", "enforcing"),
        "every port takes plain connections, both kinds, TLS only",
        "tls.server.mode",
    )
    tls_dial: bool = setting(False, flag(), "this node dials others with TLS; enforcing: always", "tls.enable")
    tls_cert: str = setting(
        "", file(), "certificate of this node, PEM, with those between it and its authority", "tls.server.certPath"
    )
    tls_key: str = setting("", file(), "its key, PEM", "tls.server.keyPath")
    tls_key_password_file: str = setting("", file(), "file of mode 0600 with the password of that key")
    tls_ca: str = setting(
        "", file(), "authorities whose certificates are taken, PEM; empty: when dialling the system's", "tls.server.trustCertPath"
    )
    tls_client_auth: str = setting(
        "none", choice("none", "optional", "require"), "whether clients show certificates", "tls.server.need.client.auth"
    )
    tls_protocols: tuple[str, ...] = setting(("TLSv1.2", "TLSv1.3"), protocols(), "versions that are spoken", "tls.protocols")
    tls_ciphers: str = setting("", words(), "OpenSSL's for TLS 1.2; empty: Python's choice", "tls.ciphers")
    tls_server_name: str = setting(
        "", optional(host()), "name that the certificates of others bear; empty: each the host that is dialled"
    )

    member_names: tuple[str, ...] = setting(
        (), names(), "names in certificates of nodes, besides the hosts at which they are known, as *.brokers.example.com"
    )

    insecure: bool = setting(False, flag(), "this node may listen beyond loopback though it does not know who connects")

    @property
    def certifies_all(self) -> bool:
        """Whether every client must show a certificate."""
        return self.tls_mode == "enforcing" and self.tls_client_auth == "require"

    @property
    def dials_tls(self) -> bool:
        return self.tls_dial or self.tls_mode == "enforcing"


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def open_door(listens: str, authenticated: bool) -> str:
    """What is wrong with this listen address, "" if nothing: beyond loopback a node must authenticate its clients (S1)."""
    if is_loopback(listens) or authenticated:
        return ""
    return (
        f"this node listens on {listens} and does not ask who comes: whoever reaches its ports may do everything (read and send "
        "messages, delete topics, move groups)"
    )


def contradictions(settings: SecuritySettings) -> Iterator[str]:
    if settings.tls_mode != "disabled" and not settings.tls_cert:
        yield (
            f"tls_mode: {settings.tls_mode} needs tls_cert and tls_key (RocketMQ: tls.server.certPath, tls.server.keyPath); "
            "`rmq certs make` makes some to begin with"
        )
    if settings.tls_client_auth != "none" and not settings.tls_ca:
        yield "tls_ca: whose certificates may clients show? Name the file of that authority (tls.server.trustCertPath)"
    if settings.member_names and (settings.tls_mode == "disabled" or settings.tls_client_auth == "none"):
        yield "member_names: they stand in certificates, and nobody shows one; set tls_mode and tls_client_auth too"

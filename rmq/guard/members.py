"""Checks by a certificate that a peer is a node of the cluster.

Requests between nodes (votes, logs, registrations) are accepted only if the connection's certificate has the host at which that
node is known, or one of the names that the settings give to nodes (S3). Certificates of clients have neither.
"""

import ipaddress
from collections.abc import Iterable
from typing import Protocol

from rmq.codes import ResponseCode
from rmq.errors import Refusal
from rmq.net.transport.connection import Connection
from rmq.net.transport.hosts import is_ip


class MemberSettings(Protocol):
    """The settings of a node that this check needs."""

    @property
    def member_names(self) -> tuple[str, ...]: ...
    @property
    def tls_server_name(self) -> str: ...
    @property
    def certifies_all(self) -> bool: ...


class Members:
    """Requires a certificate if all peers have one anyway, or if nodes have names; otherwise accepts every peer."""

    def __init__(self, settings: MemberSettings) -> None:
        self._asks = settings.certifies_all or bool(settings.member_names)
        self._names = {*settings.member_names, settings.tls_server_name} - {""}

    def check(self, connection: Connection, addresses: Iterable[str]) -> None:
        """Raises Refusal (NO_PERMISSION) unless the peer may be a node at one of these addresses ("host:port")."""
        if not self._asks:
            return
        hosts = [address.rpartition(":")[0].strip("[]") for address in addresses]
        certified = connection.certified
        if any(bears(certified, name) for name in (*self._names, *hosts)):
            return
        shown = ", ".join(sorted(certified)) or "nothing"
        about = f"only nodes may say that: its certificate names {shown}, not {' or '.join(hosts) or 'a node'} (member_names)"
        raise Refusal(ResponseCode.NO_PERMISSION, about)


def bears(certified: Iterable[str], host: str) -> bool:
    """Whether one of a certificate's names matches the host [RFC 6125: `*` stands for the whole first label]."""
    wanted = _normalized(host)
    _, _, parent = wanted.partition(".")
    names = {_normalized(name) for name in certified}
    return wanted in names or (not is_ip(wanted) and bool(parent) and f"*.{parent}" in names)


def _normalized(name: str) -> str:
    return str(ipaddress.ip_address(name)) if is_ip(name) else name.lower().rstrip(".")

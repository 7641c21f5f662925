"""Settings of access control: users and policies, under RocketMQ's keys."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from rmq.config.kinds import codes, credentials, flag, setting
from rmq.config.security import SecuritySettings
from rmq.scram import Credentials

SECRETS: Final = ("init_user", "node_credentials")
"""Settings that hold secrets. They come from files that only their owner can read, or from the environment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessSettings(SecuritySettings):
    """Rows of `NodeSettings`."""

    authentication: bool = setting(False, flag(), "clients and nodes must prove who they are", "authenticationEnabled")
    authorization: bool = setting(False, flag(), "normal users may do only what policies allow", "authorizationEnabled")
    login_optional: bool = setting(
        False, flag(), "clients that do not log in may do everything, too: while users are being switched on"
    )
    signed_in_tls_only: bool = setting(
        False, flag(), "requests that RocketMQ's clients sign are taken inside TLS only, as others can be sent again"
    )
    init_user: tuple[Credentials, ...] = setting(
        (), credentials(), "super user that is made where there is none of that name", "initAuthenticationUser"
    )
    node_credentials: tuple[Credentials, ...] = setting(
        (),
        credentials(),
        "how the cluster's nodes prove that they are: the first is used, all are taken",
        "innerClientAuthenticationCredentials",
    )
    no_login_codes: tuple[int, ...] = setting((), codes(), "requests that need no login", "authenticationWhitelist")
    no_policy_codes: tuple[int, ...] = setting((), codes(), "requests that need no policy", "authorizationWhitelist")

    @property
    def knows_who_comes(self) -> bool:
        """Whether every request needs a login."""
        return (self.authentication and not self.login_optional) or self.certifies_all

    @property
    def own_credentials(self) -> Credentials | None:
        """The credentials with which this node logs in at other nodes."""
        return self.node_credentials[0] if self.authentication and self.node_credentials else None


def contradictions(settings: AccessSettings, nodes: bool) -> Iterator[str]:
    """`nodes`: this one talks to others."""
    if settings.authorization and not settings.authentication:
        yield "authorization: it needs authentication = true (RocketMQ: authenticationEnabled)"
    if settings.authentication and nodes and not settings.node_credentials:
        yield (
            "node_credentials: with authentication the nodes of a cluster need a secret of their own; set "
            "innerClientAuthenticationCredentials to the same at all of them, best file:PATH of a file with mode 0600"
        )
    if settings.signed_in_tls_only and settings.tls_mode == "disabled":
        yield "signed_in_tls_only: this node takes no TLS, so nobody could sign; set tls_mode"
    if len(settings.init_user) > 1:
        yield "init_user: it is one user (RocketMQ: initAuthenticationUser); make the others with rmq admin createUser"

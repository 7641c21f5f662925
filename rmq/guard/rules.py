"""What a guard is told by a node's settings."""

from dataclasses import dataclass

from rmq.codes import ResponseCode
from rmq.errors import Refusal
from rmq.scram import Credentials


@dataclass(frozen=True, slots=True)
class Rules:
    """`nodes`: the secrets of the cluster's nodes; the first is in use. `no_login`, `no_policy`: white lists of request codes.
    `policies`: if false, users who log in may do everything that needs no super user. `optional`: senders without a login may do
    everything. `signed_in_tls`: signatures count inside TLS only. `takes_tls`: this node's ports take TLS."""

    cluster: str
    nodes: tuple[Credentials, ...] = ()
    policies: bool = True
    no_login: frozenset[int] = frozenset()
    no_policy: frozenset[int] = frozenset()
    optional: bool = False
    signed_in_tls: bool = False
    takes_tls: bool = False


def no(about: str) -> Refusal:
    return Refusal(ResponseCode.NO_PERMISSION, about)

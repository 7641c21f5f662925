"""The users and policies of one cluster, and the secret of its nodes. Pure."""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from rmq.access.policies import Acl, PolicyTable
from rmq.access.sealing import Signer, unseal
from rmq.access.users import User, UserTable

_MOST = 10_000


class Identity(NamedTuple):
    """Who asks. `stored`: of the keys with which that was proven on this connection; b"" where each request proves it.
    `node`: it has the secret of the cluster's nodes."""

    user: str
    node: bool = False
    stored: bytes = b""


class Directory(Protocol):
    """`version`: another one after each change. `ready`: it is asked. `is_current`: who it does not know now
    does not exist; it may learn of others by being asked."""

    @property
    def ready(self) -> bool: ...

    @property
    def is_current(self) -> bool: ...

    @property
    def version(self) -> object: ...

    def users(self, name: str) -> list[User]:
        """The users of that name: one at a broker; at a nameserver one for each broker group that has it."""

    def acls(self, name: str) -> list[Acl]:
        """The policies of these users; one list of entries is enough to permit a request."""


class Nobody:
    """The directory of a node whose store is not open yet."""

    ready = is_current = False
    version = None

    def users(self, name: str) -> list[User]:
        return []

    def acls(self, name: str) -> list[Acl]:
        return []


class Tables:
    """The directory of a broker, from the tables of its log. `is_current()`: whether this node has all of them. `makes_first`: a
    leader makes the first user, so that nobody is unknown before."""

    def __init__(
        self, users: UserTable, policies: PolicyTable, is_current: Callable[[], bool] = lambda: True, makes_first: bool = False
    ) -> None:
        self._makes_first = makes_first
        self._users = users
        self._policies = policies
        self._is_current = is_current
        self.ready = True

    @property
    def is_current(self) -> bool:
        return self._is_current() and (bool(self._users.committed()) or not self._makes_first)

    @property
    def version(self) -> object:
        return self._users.data_version.counter, self._policies.data_version.counter

    def users(self, name: str) -> list[User]:
        found = self._users.committed().get(name)
        return [found] if found is not None else []

    def acls(self, name: str) -> list[Acl]:
        found = self._policies.committed().get(f"User:{name}")
        return [found] if found is not None else []


class Secrets:
    """The secrets that users sign with; each is opened once, until it changes. `keys`: those that may have sealed it."""

    def __init__(self, keys: list[str]) -> None:
        self._keys = keys
        self._open: dict[bytes, str | None] = {}
        self._signers: dict[bytes, tuple[Signer, Identity]] = {}

    def of(self, user: User) -> str | None:
        """The secret; None: it is not kept, or was sealed with a key that this node does not have."""
        sealed = user.sealed
        if sealed not in self._open:
            if len(self._open) > _MOST:
                self._open.clear()
            self._open[sealed] = unseal(sealed, user.name, self._keys)
        return self._open[sealed]

    def signer(self, user: User) -> tuple[Signer, Identity] | None:
        """And who it is; None: as of `of`."""
        found = self._signers.get(user.sealed)
        if found is None and (secret := self.of(user)) is not None:
            if len(self._signers) > _MOST:
                self._signers.clear()
            found = self._signers[user.sealed] = Signer(secret), Identity(user.name)
        return found

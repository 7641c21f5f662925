"""Users and policies as the leaders of broker groups tell them: a nameserver keeps nothing itself (N3)."""

from collections.abc import Callable, Iterable

from rmq.access.policies import Acl, Entry
from rmq.access.users import User
from rmq.net.commands.access import AclInfo, ShareAccess
from rmq.net.transport.server import Call
from rmq.scram import Keys

MAX_GROUPS = 10_000


class SharedDirectory:
    """Users of the same name at several broker groups count as one user: a proof for one of them is enough, and what one of them
    permits is permitted."""

    def __init__(self) -> None:
        self.version = 0
        self.ready = True
        self._users: dict[str, dict[str, User]] = {}  # broker group -> its users
        self._acls: dict[str, dict[str, Acl]] = {}
        self._arriving: dict[tuple[int, str], list[ShareAccess]] = {}

    @property
    def is_current(self) -> bool:
        """Whether a broker group has sent its users. Until then only nodes are served."""
        return bool(self._users)

    def users(self, name: str) -> list[User]:
        return [users[name] for _, users in sorted(self._users.items()) if name in users]

    def acls(self, name: str) -> list[Acl]:
        subject = f"User:{name}"
        return [acls[subject] for acls in self._acls.values() if subject in acls]

    def share(self, request: ShareAccess, call: Call) -> None:
        """Takes one part of a group's users and policies. With the last part, all parts replace what the group sent before."""
        key = (call.connection.id, request.broker_name)
        parts = self._arriving[key] = [*(self._arriving.get(key, []) if request.part else []), request]
        if request.part < request.parts - 1:
            return
        del self._arriving[key]
        users = {
            row.name: User(row.name, row.type, row.status, Keys(*row[3:7]), row.sealed) for part in parts for row in part.users
        }
        acls = _joined(acl for part in parts for acl in part.acls)
        known = self._users.get(request.broker_name), self._acls.get(request.broker_name)
        if known != (users, acls) and (known[0] is not None or len(self._users) < MAX_GROUPS):
            self._users[request.broker_name], self._acls[request.broker_name] = users, acls
            self.version += 1

    def keep(self, is_known: Callable[[str], bool]) -> None:
        """A broker group that is gone tells of no deletion any more, so its users go, too. Those of the last groups stay."""
        gone = [name for name in self._users if not is_known(name)]
        if gone and len(gone) < len(self._users):
            for name in gone:
                del self._users[name], self._acls[name]
            self.version += 1

    def closed(self, connection_id: int) -> None:
        """Drops the parts of a transfer that will not end."""
        for key in [key for key in self._arriving if key[0] == connection_id]:
            del self._arriving[key]


def _joined(infos: Iterable[AclInfo]) -> dict[str, Acl]:
    """By subject; one with many entries comes in pieces."""
    acls: dict[str, Acl] = {}
    for info in infos:
        acl = acls.setdefault(info.subject, {})
        for policy in info.policies:
            acl.setdefault(policy.policy_type, []).extend(Entry(*entry) for entry in policy.entries)
    return acls

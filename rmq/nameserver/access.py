"""Users and policies as the leaders of broker groups tell them: a nameserver keeps nothing itself (N3)."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from rmq.access.policies import Acl, Entry
from rmq.access.users import User
from rmq.codes import ResponseCode
from rmq.errors import Refusal
from rmq.net.commands.access import AclInfo, ShareAccess
from rmq.net.transport.server import Call
from rmq.scram import Keys

MAX_GROUPS = 10_000
MAX_ARRIVING_BYTES = 256 * 1024 * 1024  # of what waits for the registration behind it


class _Arriving(NamedTuple):
    parts: list[ShareAccess]
    size: int = 0


class SharedDirectory:
    """Users of the same name at several broker groups count as one user: a proof for one of them is enough, and what one of them
    permits is permitted."""

    def __init__(self) -> None:
        self.version = 0
        self.ready = True
        self._users: dict[str, dict[str, User]] = {}  # broker group -> its users
        self._acls: dict[str, dict[str, Acl]] = {}
        self._arriving: dict[tuple[int, str], _Arriving] = {}  # by connection and broker group
        self._arriving_bytes = 0

    @property
    def is_current(self) -> bool:
        """Whether a broker group has sent its users. Until then only nodes are served. A new leader makes the first one in a
        moment, and has none yet when it registers."""
        return any(self._users.values())

    def users(self, name: str) -> list[User]:
        return [users[name] for _, users in sorted(self._users.items()) if name in users]

    def acls(self, name: str) -> list[Acl]:
        subject = f"User:{name}"
        return [acls[subject] for acls in self._acls.values() if subject in acls]

    def share(self, request: ShareAccess, call: Call) -> None:
        """Takes one part of a group's users and policies. They wait for the registration that comes behind them.

        Raises Refusal.
        """
        key = (call.connection.id, request.broker_name)
        arrived = self._drop(key)
        if request.part == 0:
            arrived = _Arriving([])
        if request.part != len(arrived.parts) or not 0 <= request.part < request.parts:
            about = f"part {request.part} of {request.parts} of users and policies is out of its order: begin with 0"
            raise Refusal(ResponseCode.INVALID_PARAMETER, about)
        size = arrived.size + call.size
        if self._arriving_bytes + size > MAX_ARRIVING_BYTES:
            raise Refusal(ResponseCode.SYSTEM_BUSY, "too many users and policies arrive here at once: wait")
        arrived.parts.append(request)
        self._arriving[key] = _Arriving(arrived.parts, size)
        self._arriving_bytes += size

    def leads(self, connection_id: int, broker_name: str) -> None:
        """The group's leader registered through that connection: what it sent before replaces what the group sent before. Whoever
        was deposed, and has not heard of it, sends too."""
        parts = self._drop((connection_id, broker_name)).parts
        if not parts or len(parts) < parts[-1].parts:
            return
        users = {
            row.name: User(row.name, row.type, row.status, Keys(*row[3:7]), row.sealed) for part in parts for row in part.users
        }
        acls = _joined(acl for part in parts for acl in part.acls)
        known = self._users.get(broker_name), self._acls.get(broker_name)
        if known != (users, acls) and (known[0] is not None or len(self._users) < MAX_GROUPS):
            self._users[broker_name], self._acls[broker_name] = users, acls
            self.version += 1

    def _drop(self, key: tuple[int, str]) -> _Arriving:
        """What has arrived."""
        arrived = self._arriving.pop(key, _Arriving([]))
        self._arriving_bytes -= arrived.size
        return arrived

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
            self._drop(key)


def _joined(infos: Iterable[AclInfo]) -> dict[str, Acl]:
    """By subject; one with many entries comes in pieces."""
    acls: dict[str, Acl] = {}
    for info in infos:
        acl = acls.setdefault(info.subject, {})
        for policy in info.policies:
            acl.setdefault(policy.policy_type, []).extend(Entry(*entry) for entry in policy.entries)
    return acls

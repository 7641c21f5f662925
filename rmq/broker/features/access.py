"""Users and policies of this cluster, and the first of them."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator
from itertools import chain

from rmq import background
from rmq.access.directory import Directory
from rmq.access.policies import Acl, PolicyTable
from rmq.access.users import SUPER, User, UserTable
from rmq.broker.feature import At, Feature, Job
from rmq.broker.handlers.access import AccessHandlers, acl_info, user_row
from rmq.broker.shared.state import Line
from rmq.errors import RmqError
from rmq.measures import Family, gauge
from rmq.net.commands.access import AclInfo, ShareAccess, SharedUser
from rmq.net.transport.server import Connection
from rmq.routing.parts import ROW_BYTES, packed
from rmq.scram import Credentials

log = logging.getLogger("rmq.access")
LOOK_S, RETRY_S = 0.25, 2.0
PART_BYTES = 1024 * 1024  # of one request to a nameserver, at most: a frame has no more than 2 MiB of such


class Access(Feature):
    """`first`: the super user that is made where there is none of that name [initAuthenticationUser]. `connections()`: of this
    node; `wake()`: everybody who waits here is answered, so that he asks again and is looked at again."""

    def __init__(
        self,
        handlers: AccessHandlers,
        directory: Directory,
        first: Credentials | None,
        commit: Callable[[list[Line]], Awaitable[None]],
        connections: Callable[[], Iterable[Connection]],
        wake: Callable[[], None],
    ) -> None:
        self._access = handlers
        self._directory = directory
        self._first = first
        self._commit = commit
        self._connections = connections
        self._wake = wake
        self._seen = directory.version
        self._first_is_due = False
        self._making: asyncio.Task[None] | None = None
        self.handlers = handlers.by_request()
        self.jobs = (Job(LOOK_S, "access", self._look, At.EVERYWHERE), Job(RETRY_S, "first user", self._make_first_again))

    def metrics(self) -> Iterable[Family]:
        strangers = sum(connection.standing.unproven for connection in self._connections())
        yield gauge("rmq_unproven_connections", "connections that are served without a login (login_optional)", strangers)

    def on_leader_ready(self) -> None:
        self._first_is_due = True
        self._make_first_again()

    def _make_first_again(self) -> None:
        """Until it is there; who deletes it later does not find it again."""
        first = self._first
        if first is None or not self._first_is_due or (self._making is not None and not self._making.done()):
            return
        self._first_is_due = not self._directory.users(first.name)
        if self._first_is_due:
            self._making = background.start(self._make_first(first), "first user")

    async def _make_first(self, first: Credentials) -> None:
        try:
            user = await self._access.made(first.name, first.secret, SUPER)
            await self._commit([("user", user.name, user_row(user))])
            self._first_is_due = False
            self._look()  # nameservers wait for it, and clients for those
            log.info("super user %s was made (initAuthenticationUser)", first.name)
        except RmqError as error:
            log.warning("super user %s was not made, this is tried again: %s", first.name, error)

    def _look(self) -> None:
        """Who waits for messages, or logged in long ago, hears of a change within a moment (S1). Who has another password may log
        in again on the same connection, so what is under way there is answered."""
        if self._directory.version == self._seen:
            return
        self._seen = self._directory.version
        for connection in list(self._connections()):
            login = connection.standing.login
            if login is not None and not login.node and not any(user.may_enter for user in self._directory.users(login.user)):
                connection.close(f"user {login.user} was disabled or deleted")
        self._wake()


def shares(broker_name: str, users: UserTable, policies: PolicyTable) -> list[ShareAccess]:
    """All of it for a nameserver, in requests of a bounded size."""
    rows: Iterator[tuple[SharedUser | AclInfo, int]] = chain(
        map(_shared, users.committed().values()), _pieces(policies.committed().items())
    )
    lists = list(packed(rows, PART_BYTES))
    return [
        ShareAccess(
            broker_name,
            [row for row in part if isinstance(row, SharedUser)],
            [row for row in part if isinstance(row, AclInfo)],
            index,
            len(lists),
        )
        for index, part in enumerate(lists)
    ]


def _shared(user: User) -> tuple[SharedUser, int]:
    """With its bytes, at most."""
    keys = user.keys
    size = len(keys.salt) + len(keys.stored) + len(keys.server) + len(user.sealed) + _size(user.name, user.type, user.status)
    return SharedUser._make([user.name, user.type, user.status, *keys, user.sealed]), size


def _pieces(acls: Iterable[tuple[str, Acl]]) -> Iterator[tuple[AclInfo, int]]:
    """What each subject may do, with its bytes; entries that are too many for one request in several pieces."""
    for subject, acl in acls:
        own = _size(subject)
        entries = [
            (policy, entry, _size(entry.resource, entry.decision, policy, *entry.actions, *entry.sources))
            for policy, every in acl.items()
            for entry in every
        ]
        for some in packed(((each, each[2]) for each in entries), PART_BYTES - own):
            piece = Acl()
            for policy, entry, _ in some:
                piece.setdefault(policy, []).append(entry)
            yield acl_info(subject, piece), own + sum(size for _, _, size in some)


def _size(*texts: str) -> int:
    """A letter takes up to four bytes, and each text says how long it is."""
    return ROW_BYTES + sum(4 * len(text) + 5 for text in texts)

"""Users and policies: making, changing, deleting and showing them [AdminBrokerProcessor.createUser ..., DefaultAuth...]."""

import asyncio
import base64
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from rmq import scram
from rmq.access import policies as p, sealing, users as u
from rmq.access.directory import Identity
from rmq.broker.shared.state import Line, undoing
from rmq.codes import ResponseCode
from rmq.errors import Refusal
from rmq.net.commands import access as c
from rmq.net.transport.server import Call, Handler
from rmq.staged import StagedTable

_KEYS = "SCRAM-SHA-256$"  # so begins what stands in the place of a password that nobody knows any more


class AccessHandlers:
    """`commit(lines)` returns once they are committed and applied. `sealing_key`: with which secrets are sealed; "": they are not
    kept, and RocketMQ's clients cannot log in. `who(call)`: who asks; None where nobody has to say."""

    def __init__(
        self,
        users: u.UserTable,
        policies: p.PolicyTable,
        commit: Callable[[list[Line]], Awaitable[None]],
        sealing_key: str,
        who: Callable[[Call], Identity | None],
    ) -> None:
        self._users = users
        self._policies = policies
        self._commit = commit
        self._key = sealing_key
        self._who = who
        self._one_at_a_time = asyncio.Lock()  # each change is made from the row as the one before it left it
        self._tables: dict[str, StagedTable[Any]] = {"user": users, "acl": policies}

    def by_request(self) -> Mapping[type[Any], Handler]:
        return {
            c.CreateUser: self.create_user,
            c.UpdateUser: self.update_user,
            c.DeleteUser: self.delete_user,
            c.GetUser: self.user,
            c.ListUsers: self.all_users,
            c.CreateAcl: self.create_acl,
            c.UpdateAcl: self.update_acl,
            c.DeleteAcl: self.delete_acl,
            c.GetAcl: self.acl,
            c.ListAcls: self.all_acls,
        }

    async def _write(self, *changes: tuple[str, str, Any]) -> None:
        """Rows of tables, None for those that go. They count for the next decision as long as they are on their way: whoever did
        not hear of them in time has let go of the lock."""
        for table, name, value in changes:
            self._tables[table].stage(name, value)
        with undoing(lambda: self._unstage(changes)):
            await self._commit([(table, name, value and _ROWS[table](value)) for table, name, value in changes])

    def _unstage(self, changes: Sequence[tuple[str, str, Any]]) -> None:
        for table, name, _ in changes:
            self._tables[table].unstage(name)

    # --- users

    async def create_user(self, request: c.CreateUser, call: Call) -> None:
        name, said = u.checked_name(request.username), request.user
        async with self._one_at_a_time:
            if self._users.decided(name) is not None:
                raise _invalid(f"user {name} is there already; updateUser changes it")
            if not self._users.has_room(name, u.MAX_USERS):
                raise _invalid(f"there are {u.MAX_USERS} users, which is the most")
            user = await self.made(name, said.password, said.user_type or u.NORMAL, said.user_status or u.ENABLED)
            self._check_may_change(call, user.type)
            await self._write(("user", name, user))

    async def update_user(self, request: c.UpdateUser, call: Call) -> None:
        said = request.user
        async with self._one_at_a_time:
            user = self._known(request.username)
            self._check_may_change(call, user.type)
            kind = u.checked_choice("userType", said.user_type or user.type, u.SUPER, u.NORMAL)
            status = u.checked_choice("userStatus", said.user_status or user.status, u.ENABLED, u.DISABLED)
            self._check_may_change(call, kind)
            changed = user._replace(type=kind, status=status)
            if said.password:
                changed = await self.made(user.name, said.password, kind, status)
            await self._write(("user", user.name, changed))

    async def made(self, name: str, password: str, kind: str, status: str = u.ENABLED) -> u.User:
        """A user with the keys of that password, or with those that stand in its place. Raises Refusal."""
        kind = u.checked_choice("userType", kind, u.SUPER, u.NORMAL)
        status = u.checked_choice("userStatus", status, u.ENABLED, u.DISABLED)
        if password.startswith(_KEYS):
            keys, sealed = _read_keys(password)
        else:
            u.checked_password(password)
            keys = await asyncio.to_thread(scram.keys_of, password, secrets.token_bytes(16))
            nonce = secrets.token_bytes(sealing.NONCE_BYTES)
            sealed = sealing.seal(password, name, self._key, nonce) if self._key else b""
        return u.User(name, kind, status, keys, sealed)

    async def delete_user(self, request: c.DeleteUser, call: Call) -> None:
        """With what policies say of it. Deleting what is not there is no error, so that repeating helps."""
        name = request.username
        async with self._one_at_a_time:
            user = self._users.decided(name)
            if user is not None:
                self._check_may_change(call, user.type)
            elif not self._users.is_changing(name):
                return
            await self._write(("user", name, None), ("acl", _subject(name), None))

    def user(self, request: c.GetUser, call: Call) -> c.UserInfo:
        return self._info(_there(self._users.get(request.username), request.username), call)

    def all_users(self, request: c.ListUsers, call: Call) -> c.UserInfos:
        found = self._users.committed()
        return c.UserInfos([self._info(found[name], call) for name in sorted(found) if request.filter in name])

    def _info(self, user: u.User, call: Call) -> c.UserInfo:
        return c.UserInfo(user.name, _spelled_keys(user) if self._is_super(call) else "", user.type, user.status)

    def _known(self, name: str) -> u.User:
        """As it will be, for those who change something. Raises Refusal."""
        return _there(self._users.decided(name), name)

    def _is_super(self, call: Call) -> bool:
        who = self._who(call)
        if who is None or who.node:
            return True
        user = self._users.committed().get(who.user)
        return user is not None and user.type == u.SUPER

    def _check_may_change(self, call: Call, kind: str) -> None:
        """Nobody makes himself a super user by a right to change the cluster."""
        if kind == u.SUPER and not self._is_super(call):
            raise Refusal(ResponseCode.NO_PERMISSION, "super users are made and changed by super users only")

    # --- policies

    async def create_acl(self, request: c.CreateAcl, _call: Call) -> None:
        await self._merge(request.subject, request.acl)

    async def update_acl(self, request: c.UpdateAcl, _call: Call) -> None:
        await self._merge(request.subject, request.acl)

    async def _merge(self, subject: str, said: c.AclInfo) -> None:
        added: dict[str, list[p.Entry]] = {}
        for policy in said.policies:  # several may be of one type: so RocketMQ's copyAcl sends what its broker showed
            added.setdefault(policy.policy_type or p.CUSTOM, []).extend(p.Entry(*entry) for entry in policy.entries)
        async with self._one_at_a_time:
            subject = self._checked(subject)
            await self._write(("acl", subject, p.merged(self._policies.decided(subject), added)))

    async def delete_acl(self, request: c.DeleteAcl, _call: Call) -> None:
        async with self._one_at_a_time:
            subject = self._checked(request.subject)
            rest = p.without(_there_acl(self._policies.decided(subject), subject), request.policy_type, request.resource)
            await self._write(("acl", subject, rest or None))

    def acl(self, request: c.GetAcl, _call: Call) -> c.AclInfo:
        name = _name_in(request.subject)
        subject = _subject(_there(self._users.get(name), name).name)
        return acl_info(subject, _there_acl(self._policies.get(subject), subject))

    def all_acls(self, request: c.ListAcls, _call: Call) -> c.AclInfos:
        found = []
        for subject, acl in sorted(self._policies.committed().items()):
            chosen = {
                policy: [entry for entry in entries if request.resource_filter in entry.resource]
                for policy, entries in acl.items()
            }
            if request.subject_filter in subject and any(chosen.values()):
                found.append(acl_info(subject, {policy: entries for policy, entries in chosen.items() if entries}))
        return c.AclInfos(found)

    def _checked(self, subject: str) -> str:
        return _subject(self._known(_name_in(subject)).name)


def _name_in(subject: str) -> str:
    """Raises Refusal."""
    kind, _, name = subject.partition(":")
    if kind.lower() != "user":
        raise _invalid(f"subject {subject[:80]!r}: write User: and a name")
    return name


def _there(user: u.User | None, name: str) -> u.User:
    """Raises Refusal."""
    if user is None:
        raise Refusal(ResponseCode.USER_NOT_EXIST, f"user {name} does not exist")
    return user


def _there_acl(acl: p.Acl | None, subject: str) -> p.Acl:
    """Raises Refusal."""
    if acl is None:
        raise Refusal(ResponseCode.POLICY_NOT_EXIST, f"there is no policy for {subject}")
    return acl


def _subject(name: str) -> str:
    return f"User:{name}"


def user_row(user: u.User) -> list[Any]:
    return [user.name, user.type, user.status, list(user.keys), user.sealed]


def _acl_row(acl: p.Acl) -> dict[str, list[list[Any]]]:
    return {policy: [list(entry) for entry in entries] for policy, entries in acl.items()}


_ROWS: dict[str, Callable[[Any], Any]] = {"user": user_row, "acl": _acl_row}


def acl_info(subject: str, acl: Mapping[str, Sequence[p.Entry]]) -> c.AclInfo:
    """As answers show it."""
    return c.AclInfo(subject, [c.Policy(policy, [c.PolicyEntry(*entry) for entry in entries]) for policy, entries in acl.items()])


def _spelled_keys(user: u.User) -> str:
    """Instead of the password: another cluster takes it for the same."""
    salt, stored, server, sealed = (
        base64.b64encode(part).decode() for part in (user.keys.salt, user.keys.stored, user.keys.server, user.sealed)
    )
    return f"{_KEYS}{user.keys.iterations}${salt}${stored}${server}${sealed}"


def _read_keys(text: str) -> tuple[scram.Keys, bytes]:
    """Raises Refusal, which does not repeat it."""
    try:
        _, iterations, *parts = text.split("$")
        salt, stored, server, sealed = (base64.b64decode(part, validate=True) for part in parts)
        keys = scram.Keys(salt, int(iterations), stored, server)
    except ValueError:
        raise _invalid("these are not the keys of a password as getUser tells them; give a password") from None
    if len(stored) != 32 or len(server) != 32 or len(salt) < 8 or not 4096 <= keys.iterations <= 1_000_000 or len(sealed) > 2048:
        raise _invalid("these keys of a password are incomplete; give a password")
    return keys, sealed


def _invalid(about: str) -> Refusal:
    return Refusal(ResponseCode.INVALID_PARAMETER, about)

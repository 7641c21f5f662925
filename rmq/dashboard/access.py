"""Who may look and who may change: a small file of users, sessions in memory, and a token in every form.

Without a file, everybody who reaches the port is the same user; `rmq dashboard` then listens on loopback only.
"""

import asyncio
import hashlib
import hmac
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from rmq.errors import InvalidArgument
from rmq.secretfiles import replace

READ, WRITE = "read", "write"
COOKIE = "rmq_dashboard"
_SESSION_S = 12 * 3600.0
_MOST_SESSIONS = 1000
_TRIES, _TRIES_S = 10, 60.0  # after so many wrong passwords, by all users together, nobody may try for so long
_N, _R, _P, _SALT = 1 << 14, 8, 1, 16  # of scrypt: 16 MiB and some 50 ms a guess


class User(NamedTuple):
    role: str
    salt: bytes
    digest: bytes


def hashed(password: str, salt: bytes) -> bytes:
    return hashlib.scrypt(password.encode(), salt=salt, n=_N, r=_R, p=_P)


def line(name: str, role: str, password: str) -> str:
    """The user's line in the file. Raises InvalidArgument if the name, role or password is not allowed."""
    if not name or not name.isprintable() or ":" in name or name != name.strip() or name.startswith("#"):
        raise InvalidArgument(f"user name {name!r}: printable characters without ':', not beginning with '#'")
    if role not in (READ, WRITE):
        raise InvalidArgument(f"role {role!r}: {READ} or {WRITE}")
    if len(password) < 8:
        raise InvalidArgument("a password has 8 characters or more")
    salt = secrets.token_bytes(_SALT)
    return f"{name}:{role}:{salt.hex()}:{hashed(password, salt).hex()}"


def read_users(file: Path) -> dict[str, User]:
    """The users by name. Raises InvalidArgument if there is no such file, it names nobody, or a line is malformed."""
    found: dict[str, User] = {}
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidArgument(f"users file {file}: {error}") from error
    for number, one in enumerate(text.splitlines(), 1):
        if not one.strip() or one.startswith("#"):
            continue
        try:
            name, role, salt, digest = one.split(":")
            found[name] = User(role, bytes.fromhex(salt), bytes.fromhex(digest))
        except ValueError:
            raise InvalidArgument(f"users file {file}, line {number}: make lines with `rmq dashboard user`") from None
        if role not in (READ, WRITE):
            raise InvalidArgument(f"users file {file}, line {number}: role {role!r}, give {READ} or {WRITE}")
    if not found:
        raise InvalidArgument(f"users file {file} names nobody: add somebody with `rmq dashboard user`")
    return found


def write_user(file: Path, name: str, role: str, password: str) -> None:
    """Adds the user, or gives the known one this role and password. Only the owner can read the file."""
    added = line(name, role, password)
    known = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    kept = [one for one in known if one.partition(":")[0] != name]
    replace(file, ("\n".join([*kept, added]) + "\n").encode())


@dataclass(slots=True)
class Session:
    """One browser. `notes`: the outcome of the last action, shown once: ("good" or "bad", text)."""

    key: str
    user: str
    role: str
    until: float
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    notes: list[tuple[str, str]] = field(default_factory=list)

    @property
    def may_change(self) -> bool:
        return self.role == WRITE


class Access:
    """`users`: None if nobody has to log in; everybody then has `role`. `monotonic`: a clock in seconds."""

    def __init__(self, users: Mapping[str, User] | None, role: str, monotonic: Callable[[], float]) -> None:
        self._users = users
        self._role = role
        self._now = monotonic
        self._sessions: dict[str, Session] = {}
        self._wrong: list[float] = []

    @property
    def needs_login(self) -> bool:
        return self._users is not None

    def session(self, key: str) -> Session | None:
        """The session of that cookie, unless it has expired."""
        found = self._sessions.get(key)
        if found is not None and found.until < self._now():
            del self._sessions[key]
            return None
        return found

    def guest(self) -> Session:
        """A new session for somebody who does not have to log in, or who has not yet and may see the login form only."""
        return self._opened("", "" if self.needs_login else self._role)

    async def log_in(self, name: str, password: str) -> Session | None:
        """None if name or password is wrong; an unknown name takes as long. Raises InvalidArgument after too many tries."""
        now = self._now()
        self._wrong = [moment for moment in self._wrong if now - moment < _TRIES_S]
        if len(self._wrong) >= _TRIES:
            raise InvalidArgument(f"too many wrong passwords: wait {_TRIES_S:g} s")
        self._wrong.append(now)  # counted as wrong until it proves right, so that many tries at once do not pass
        user = (self._users or {}).get(name, User("", b"\0" * _SALT, b""))
        digest = await asyncio.to_thread(hashed, password, user.salt)
        if not hmac.compare_digest(digest, user.digest):
            return None
        self._wrong.remove(now)
        return self._opened(name, user.role)

    def log_out(self, key: str) -> None:
        self._sessions.pop(key, None)

    def _opened(self, user: str, role: str) -> Session:
        while len(self._sessions) >= _MOST_SESSIONS:
            guests = (key for key, one in self._sessions.items() if not one.user)
            del self._sessions[next(guests, next(iter(self._sessions)))]  # the oldest; of logged-in users only at last
        key = secrets.token_urlsafe(24)
        found = self._sessions[key] = Session(key, user, role, self._now() + _SESSION_S)
        return found

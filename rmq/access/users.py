"""Users [org.apache.rocketmq.auth.authentication]: super users may do everything, normal users what policies allow. Pure."""

import re
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from rmq.codes import ResponseCode
from rmq.errors import Refusal
from rmq.scram import Keys
from rmq.staged import StagedTable

SUPER, NORMAL = "Super", "Normal"
ENABLED, DISABLED = "enable", "disable"
MAX_USERS: Final = 10_000
MAX_PASSWORD_CHARACTERS: Final = 256
_name = re.compile(r"[A-Za-z0-9_.@%|-]{1,64}").fullmatch


class User(NamedTuple):
    """The field order is that of the state record. `keys`: for SCRAM. `sealed`: the secret that RocketMQ's clients sign with
    (`sealing`); b"" if it is not kept."""

    name: str
    type: str
    status: str
    keys: Keys
    sealed: bytes

    @property
    def may_enter(self) -> bool:
        return self.status == ENABLED


class UserTable(StagedTable[User]):
    """Rows by name."""

    def apply(self, name: str, value: Sequence[Any] | None, time_ms: int = 0) -> None:
        """A committed state line: the fields of a User, or None. `time_ms`: when it was stored."""
        row = None if value is None else User(value[0], value[1], value[2], Keys(*value[3]), value[4])
        self._commit(name, row, time_ms)


def checked_name(name: str) -> str:
    """Raises Refusal (INVALID_PARAMETER)."""
    if not _name(name):
        raise Refusal(ResponseCode.INVALID_PARAMETER, "a user name has 1 to 64 letters, digits, or - _ . @ % |")
    return name


def checked_password(password: str) -> str:
    """Raises Refusal (INVALID_PARAMETER), which does not repeat it."""
    if not 1 <= len(password) <= MAX_PASSWORD_CHARACTERS or not password.isprintable():
        raise Refusal(ResponseCode.INVALID_PARAMETER, f"a password has 1 to {MAX_PASSWORD_CHARACTERS} printable characters")
    return password


def checked_choice(what: str, said: str, *allowed: str) -> str:
    """One of `allowed`, in any case. Raises Refusal (INVALID_PARAMETER)."""
    for one in allowed:
        if said.lower() == one.lower():
            return one
    raise Refusal(ResponseCode.INVALID_PARAMETER, f"{what} {said[:40]!r}: {' or '.join(allowed)}")

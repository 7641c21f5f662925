"""Kinds of settings: which values are allowed, and how text becomes a value. No settings, no files, no I/O here."""

import ipaddress
import json
import re
from collections.abc import Callable
from dataclasses import field
from pathlib import Path
from typing import Any, NamedTuple

from rmq.scram import Credentials
from rmq.secretfiles import read_lines

WILDCARDS = frozenset({"0.0.0.0", "::", "[::]"})
_NAME = re.compile(r"[A-Za-z0-9_%|-]{1,127}")
_HOST = re.compile(r"[A-Za-z0-9._-]{1,253}|\[?[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]+\]?")
_CERTIFIED = re.compile(rf"(\*\.)?({_HOST.pattern})")
_WORDS = re.compile(r"|[!-~]|[!-~][ -~]*[!-~]")
_SIZE = re.compile(r"(\d+)\s*(|k|m|g|ki|mi|gi|kib|mib|gib|kb|mb|gb)", re.IGNORECASE)
_POWER = {"": 0, "k": 1, "m": 2, "g": 3}


class Kind(NamedTuple):
    """`allowed`: in words. `parse`: raises ValueError or TypeError; a value that it returned passes unchanged."""

    allowed: str
    parse: Callable[[object], object]


def setting(default: object, kind: Kind, about: str, rocketmq: str = "") -> Any:
    """A row of settings. `rocketmq`: the key that RocketMQ has for the same thing ("" if none)."""
    return field(default=default, metadata={"kind": kind, "about": about, "rocketmq": rocketmq})


class HiddenValue(ValueError):
    """A secret was not what it should be; no error shows it (S12)."""


def _whole(raw: object) -> int:
    if isinstance(raw, bool) or not isinstance(raw, (int, str)):
        raise TypeError(raw)
    return int(raw)


def _within(value: int, low: int, high: int) -> int:
    if not low <= value <= high:
        raise ValueError(value)
    return value


def _full(pattern: re.Pattern[str], raw: object) -> str:
    if not isinstance(raw, str) or not pattern.fullmatch(raw):
        raise ValueError(raw)
    return raw


def integer(low: int, high: int) -> Kind:
    return Kind(f"a whole number from {low} to {high}", lambda raw: _within(_whole(raw), low, high))


def one_of(*numbers: int) -> Kind:
    def parse(raw: object) -> int:
        if (number := _whole(raw)) not in numbers:
            raise ValueError(raw)
        return number

    return Kind(" or ".join(map(str, numbers)), parse)


def size(low: int, high: int) -> Kind:
    """A number of bytes; text may carry KiB, MiB or GiB."""

    def parse(raw: object) -> int:
        if not isinstance(raw, str):
            return _within(_whole(raw), low, high)
        found = _SIZE.fullmatch(raw.strip())
        if not found:
            raise ValueError(raw)
        return _within(int(found[1]) * 1024 ** _POWER[found[2][:1].lower()], low, high)

    return Kind(f"a number of bytes from {low} to {high}, or 16MiB, 1GiB", parse)


def hours() -> Kind:
    """Hours of the day as RocketMQ writes them: `04`, or `02;14`."""

    def parse(raw: object) -> tuple[int, ...]:
        if isinstance(raw, str):
            raw = [part for part in raw.split(";") if part.strip()]
        if not isinstance(raw, (list, tuple)) or not raw:
            raise TypeError(raw)
        return tuple(sorted({_within(_whole(part), 0, 23) for part in raw}))

    return Kind("hours of the day, 0 to 23, with ; between", parse)


_DELAY = re.compile(r"([1-9]\d{0,8})([smhd])")
_DELAY_UNIT_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_MOST_LEVELS = 62


def delay_levels() -> Kind:
    """RocketMQ's list of delays, one for each level: `1s 5s 10m 1h 1d`."""

    def parse(raw: object) -> str:
        if not isinstance(raw, str) or not 1 <= len(raw.split()) <= _MOST_LEVELS:
            raise ValueError(raw)
        for part in raw.split():
            if not _DELAY.fullmatch(part):
                raise ValueError(raw)
        return " ".join(raw.split())

    return Kind(f"1 to {_MOST_LEVELS} delays as 1s 5m 2h 1d, with blanks between", parse)


def delays_ms(levels: str) -> tuple[int, ...]:
    """Of such a list, in ms."""
    found = (_DELAY.fullmatch(part) for part in levels.split())
    return tuple(int(one[1]) * _DELAY_UNIT_MS[one[2]] for one in found if one)


def flag() -> Kind:
    words = {"true": True, "false": False, "1": True, "0": False, "yes": True, "no": False, "on": True, "off": False}

    def parse(raw: object) -> bool:
        if isinstance(raw, bool):
            return raw
        if not isinstance(raw, str) or raw.lower() not in words:
            raise ValueError(raw)
        return words[raw.lower()]

    return Kind("true or false", parse)


def choice(*values: str, **also: str) -> Kind:
    """One of `values`, any case; `also`: other spellings -> value."""
    table = {name.lower(): value for name, value in [*zip(values, values, strict=True), *also.items()]}

    def parse(raw: object) -> str:
        if not isinstance(raw, str) or raw.lower() not in table:
            raise ValueError(raw)
        return table[raw.lower()]

    return Kind(" or ".join([*values, *also]), parse)


def identifier() -> Kind:
    return Kind("1 to 127 letters, digits, - _ % |", lambda raw: _full(_NAME, raw))


def credentials() -> Kind:
    """A name and a secret, as RocketMQ writes them in JSON; a list of such where an old one is still valid; or `file:PATH`, a
    file of mode 0600 that holds either."""

    def parse(raw: object) -> tuple[Credentials, ...]:
        if isinstance(raw, tuple) and all(isinstance(each, Credentials) for each in raw):
            return raw
        if not isinstance(raw, str):
            raise HiddenValue
        text = "\n".join(read_lines(raw.removeprefix("file:"))) if raw.startswith("file:") else raw
        try:
            rows = json.loads(text) if text.strip() else []
            return tuple(_credentials(row) for row in (rows if isinstance(rows, list) else [rows]))
        except (ValueError, TypeError, KeyError):
            raise HiddenValue from None

    return Kind('{"accessKey":"NAME","secretKey":"SECRET"} (or username, password), or file:PATH of a file with it', parse)


def _credentials(row: dict[str, str]) -> Credentials:
    name = row["accessKey"] if "accessKey" in row else row["username"]
    secret = row["secretKey"] if "secretKey" in row else row["password"]
    if not (isinstance(name, str) and isinstance(secret, str) and name and secret):
        raise HiddenValue
    return Credentials(name, secret)


def codes() -> Kind:
    """Request codes as RocketMQ's white lists have them: `105,106`."""

    def parse(raw: object) -> tuple[int, ...]:
        if isinstance(raw, str):
            raw = [part for part in raw.split(",") if part.strip()]
        if not isinstance(raw, (list, tuple)):
            raise TypeError(raw)
        return tuple(_within(_whole(part), 0, 2**31 - 1) for part in raw)

    return Kind("request codes with , between", parse)


def host() -> Kind:
    return Kind("a host name or an IP address, without a port", lambda raw: _full(_HOST, raw).strip("[]"))


def optional(kind: Kind) -> Kind:
    return Kind(f"{kind.allowed}, or nothing", lambda raw: raw if raw == "" else kind.parse(raw))


def _at_home(raw: str) -> Path:
    """Raises ValueError."""
    try:
        return Path(raw).expanduser()
    except RuntimeError:  # no such user, or one without a home
        raise ValueError(raw) from None


def path() -> Kind:
    def parse(raw: object) -> Path:
        if isinstance(raw, Path):
            return raw
        if not isinstance(raw, str) or not raw.strip():
            raise ValueError(raw)
        return _at_home(raw)

    return Kind("a directory", parse)


def file() -> Kind:
    """As text, because "" says that there is none."""

    def parse(raw: object) -> str:
        if not isinstance(raw, str):
            raise TypeError(raw)
        return str(_at_home(raw.strip())) if raw.strip() else ""

    return Kind("a file, or nothing", parse)


def words() -> Kind:
    return Kind("text without blanks at its ends", lambda raw: _full(_WORDS, raw))


def _listed(raw: object) -> list[object]:
    if isinstance(raw, str):
        return [part.strip() for part in re.split(r"[;,]", raw) if part.strip()]
    if not isinstance(raw, (list, tuple)):
        raise TypeError(raw)
    return list(raw)


def names() -> Kind:
    """Host names and IP addresses."""
    return Kind(
        "host names or IP addresses with ; between", lambda raw: tuple(_full(_CERTIFIED, one).strip("[]") for one in _listed(raw))
    )


def protocols() -> Kind:
    one = choice("TLSv1.2", "TLSv1.3")

    def parse(raw: object) -> tuple[str, ...]:
        found = {str(one.parse(each)) for each in _listed(raw)}
        if not found:
            raise ValueError(raw)
        return tuple(sorted(found))

    return Kind("TLSv1.2 or TLSv1.3, or both with , between", parse)


def peers() -> Kind:
    """Nodes of a group as RocketMQ writes them: `n0-host:port;n1-host:port`."""

    def parse(raw: object) -> tuple[str, ...]:
        if isinstance(raw, str):
            raw = [part for part in raw.split(";") if part.strip()]
        if not isinstance(raw, (list, tuple)):
            raise TypeError(raw)
        found = tuple(str(part).strip() for part in raw)
        for part in found:
            node, _, where = part.partition("-")
            _full(_NAME, node)
            address(where)
        if len({part.partition("-")[0] for part in found}) < len(found):
            raise ValueError(raw)
        return found

    return Kind("nodes as id-host:port with ; between, each id once", parse)


def networks() -> Kind:
    return Kind(
        "networks or addresses, as 10.0.0.0/8;192.168.1.7",
        lambda raw: tuple(str(ipaddress.ip_network(str(part).strip())) for part in _listed(raw)),
    )


def address(raw: object) -> str:
    """`host:port` (`[v6]:port`), checked. Raises ValueError."""
    if not isinstance(raw, str):
        raise TypeError(raw)
    name, _, port = raw.strip().rpartition(":")
    _full(_HOST, name)
    _within(_whole(port), 1, 65535)
    return raw.strip()


def addresses() -> Kind:
    return Kind("host:port;host:port", lambda raw: tuple(address(part) for part in _listed(raw)))

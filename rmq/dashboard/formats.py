"""How values are shown. Pure except for the local time zone."""

import json
from datetime import UTC, datetime
from decimal import Decimal
from ipaddress import ip_address

from rmq.client import ReceivedMessage
from rmq.codes import version_name
from rmq.errors import BadBytes, InvalidArgument

_SHOWN_BYTES, _SHOWN_HEX = 64 * 1024, 4096
_LONGEST_COUNT, _MOST = 20, 1e18


def moment(timestamp_ms: int) -> str:
    """Local time of the dashboard; "-" for never."""
    if timestamp_ms <= 0:
        return "-"
    try:
        return datetime.fromtimestamp(timestamp_ms / 1000, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return str(timestamp_ms)


def to_ms(text: str) -> int | None:
    """Unix ms from a browser's time field (the dashboard's local time) or from digits; None if empty. Raises InvalidArgument."""
    if not text:
        return None
    try:
        found = int(text) if text.isdecimal() else round(datetime.fromisoformat(text).timestamp() * 1000)
        field_time(found)
    except (ValueError, OverflowError, OSError):  # of what is no time, and of one that no page can show
        raise InvalidArgument(f"{text[:40]!r} is no time: write 2026-11-21T09:00") from None
    return found


def field_time(timestamp_ms: int | None) -> str:
    """The time in the form that a browser's time field takes."""
    if timestamp_ms is None:
        return ""
    return datetime.fromtimestamp(timestamp_ms / 1000, UTC).astimezone().strftime("%Y-%m-%dT%H:%M:%S")


def duration(seconds: float) -> str:
    """In the largest unit that fits, such as "3 min"."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if abs(seconds) >= size:
            return f"{seconds / size:.1f} {unit}" if abs(seconds) < 10 * size else f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s" if abs(seconds) >= 1 else "0 s"


def ago(timestamp_ms: int, now_ms: int) -> str:
    """How long ago that was. Clocks differ: of a later time it says "just now", and from a minute on by how much it is later."""
    seconds = (now_ms - timestamp_ms) / 1000
    if seconds > -60:
        return f"{duration(seconds)} ago" if seconds >= 0 else "just now"
    return f"{duration(-seconds)} ahead of this clock"


def count(number: float) -> str:
    return f"{number:,.0f}".replace(",", "\u202f")


def rate(number: float) -> str:
    if 0 < number < 0.05:
        return "< 0.1"
    return f"{number:.1f}" if 0 < abs(number) < 100 else count(number)


def size(bytes_: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(bytes_) < 1024:
            return f"{bytes_:.0f} B" if unit == "B" else f"{bytes_:.1f} {unit}"
        bytes_ /= 1024
    return f"{bytes_:.1f} TiB"


def whole(text: str) -> int | None:
    """A count of 64 bits as nodes write it; None for anything else."""
    found = int(text) if text.removeprefix("-").isdecimal() and len(text) <= _LONGEST_COUNT else 2**63
    return found if -(2**63) <= found < 2**63 else None


def real(text: str) -> float | None:
    """A number as nodes write it; None for anything else."""
    try:
        found = float(text)
    except ValueError:
        return None
    return found if abs(found) < _MOST else None  # which is true of no NaN


def bytes_of(text: str) -> float:
    """Bytes of a size as nodes write it, such as "80.5 GiB"; 0 for anything else."""
    number, _, unit = text.strip().partition(" ")
    try:
        return (real(number) or 0.0) * 1024.0 ** ("B", "KiB", "MiB", "GiB", "TiB").index(unit)
    except ValueError:
        return 0.0


def body(data: bytes) -> str:
    """Text if a page can show it (JSON is indented), else hex digits; at most 64 KiB of it."""
    text = data[:_SHOWN_BYTES].decode(errors="replace")
    cut = f"\n... {len(data) - _SHOWN_BYTES:,} more bytes" if len(data) > _SHOWN_BYTES else ""
    if "\ufffd" in text[:-3] or not all(letter.isprintable() or letter in "\r\n\t" for letter in text):
        cut = f"\n... {len(data):,} bytes in all" if len(data) > _SHOWN_HEX else ""
        return data[:_SHOWN_HEX].hex(" ") + cut
    if not cut and text[:1] in ("{", "["):
        try:
            found = json.loads(text, parse_float=_same_number, object_pairs_hook=_named_once)
            shown = json.dumps(found, indent=2, ensure_ascii=False)
            shown.encode()  # JSON may name half a character, which no page can hold
            return shown
        except (ValueError, ArithmeticError, RecursionError):
            return text
    return text + cut


def _same_number(text: str) -> float:
    """Raises ValueError where a float is another number."""
    found = float(text)
    if Decimal(text) != Decimal(repr(found)):
        raise ValueError(text)
    return found


def _named_once(fields: list[tuple[str, object]]) -> dict[str, object]:
    """Raises ValueError if a name comes twice."""
    found = dict(fields)
    if len(found) < len(fields):
        raise ValueError("a name comes twice")
    return found


def sent_body(message: ReceivedMessage) -> bytes:
    """The body as it was sent; as it is stored if it cannot be decompressed."""
    try:
        return message.body
    except BadBytes:
        return message.stored.body


def host(data: bytes) -> str:
    """Address and port, from the bytes that records hold."""
    address, port = data[:-4], int.from_bytes(data[-4:], "big")
    try:
        return f"{ip_address(address)}:{port}"
    except ValueError:
        return data.hex()


def client_version(number: int) -> str:
    """The version of a RocketMQ client since 4.0.0; an older one's bare number; "-" if the client does not tell."""
    return version_name(number).removeprefix("V").replace("_", ".") if number > 0 else "-"


FILTERS = {
    "client_version": client_version,
    "moment": moment,
    "whole": whole,
    "ago": ago,
    "duration": duration,
    "count": count,
    "rate": rate,
    "size": size,
    "body": body,
    "field_time": field_time,
    "sent_body": sent_body,
    "host": host,
}

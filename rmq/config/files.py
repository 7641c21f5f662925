"""Reads files of settings, TOML and RocketMQ's `key=value`, each entry with its place. `settings` says what the keys mean."""

import os
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from rmq.errors import InvalidArgument


class Entry(NamedTuple):
    """One `key = value` as it was written. `origin`: "broker.conf:12", "RMQ_FLUSH", "--flush"."""

    key: str
    raw: object
    origin: str


def entries_of(file: Path) -> list[Entry]:
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise InvalidArgument(f"{file}: cannot be read ({why}); give --config the path of a TOML or .conf file") from error
    return list(_toml(file, text) if file.suffix == ".toml" else conf_entries(file, text))


def _toml(file: Path, text: str) -> Iterator[Entry]:
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidArgument(f"{file}: no valid TOML: {error} (a RocketMQ file should be named .conf)") from error
    for key, value in table.items():
        origin = f"{file}:{_toml_line(text, key)}"
        if isinstance(value, dict):
            raise InvalidArgument(f"{origin}: [{key}] is a table; write all settings at the top, one `name = value` a line")
        yield Entry(key, value, origin)


def _toml_line(text: str, key: str) -> int:
    found = re.search(rf"^[ \t]*\[?[\"']?{re.escape(key)}[\"']?[ \t]*[]=.]", text, re.MULTILINE)
    return text.count("\n", 0, found.start()) + 1 if found else 1


def conf_entries(file: Path, text: str) -> Iterator[Entry]:
    """Java's properties, as far as brokers' files use them: comments (# !), `key=value`, a `\\` at the end continues the line."""
    for line_number, line in _logical_lines(text):
        key, found, value = line.partition("=")
        if not found or not key.strip():
            raise InvalidArgument(f"{file}:{line_number}: {line!r} is no `key=value`; put # before a comment")
        if value.strip():  # RocketMQ ships empty keys; they mean the default
            yield Entry(key.strip(), value.strip(), f"{file}:{line_number}")


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    begun, first = "", 0
    for line_number, line in enumerate(text.splitlines(), 1):
        line = line.strip()
        if not begun and (not line or line[0] in "#!"):
            continue
        first = first if begun else line_number
        if line.endswith("\\"):
            begun += line[:-1]
            continue
        yield first, begun + line
        begun = ""
    if begun:
        yield first, begun


def write_durably(file: Path, data: bytes) -> None:
    """Replaces a small file; a crash leaves the old or the new one. Raises OSError."""
    file.parent.mkdir(parents=True, exist_ok=True)
    new = file.with_suffix(".new")
    with new.open("wb") as opened:
        opened.write(data)
        opened.flush()
        os.fsync(opened.fileno())
    new.replace(file)
    directory = os.open(file.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)

"""Secrets come from files that only their owner may read, or from the environment: never from flags, never into logs."""

import os
import re
import stat
import sys
from contextlib import suppress
from pathlib import Path

from rmq.errors import InvalidArgument

_MAX_BYTES = 64 * 1024
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def read_lines(path: str) -> tuple[str, ...]:
    """The lines of a secret file that are neither empty nor comments (#), without blanks around them.

    Raises InvalidArgument: it cannot be read, others than its owner may read it, or nothing stands in it. No text of the
    file is in the message.
    """
    try:
        with Path(os.path.expanduser(path)).open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            data = file.read(_MAX_BYTES)
        text = data.decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise InvalidArgument(f"{path}: this secret file cannot be read ({why})") from None
    if mode & _OTHERS and sys.platform != "win32":
        raise InvalidArgument(f"{path}: others may read this secret file (mode {mode & 0o777:04o}); chmod 600 {path}")
    lines = [line.strip() for line in text.splitlines()]
    found = tuple(line for line in lines if line and not line.startswith("#"))
    if not found:
        raise InvalidArgument(f"{path}: no secret stands in this file; write it on a line of its own")
    return found


def replace(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Writes a file, whole or not at all. One that was there keeps its owner: the files of a node are its user's, whoever renews
    them. Raises OSError."""
    beside = path.with_name(f".{path.name}.new")
    beside.unlink(missing_ok=True)
    with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        if sys.platform != "win32" and path.exists():
            with suppress(PermissionError):  # only root gives files away
                os.chown(beside, path.stat().st_uid, path.stat().st_gid)
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)


_USER = re.compile(r"(?<=://)[^/?@\s:]*:[^/?@\s]*@")
_FIELD = re.compile(r"(?i)([?&][\w.-]*(?:secret|password|token|key)=)[^&\s]*")


def without_keys(text: str) -> str:
    """The text without what addresses in it may hold: s3://KEY:SECRET@bucket, and fields as client_secret."""
    return _FIELD.sub(r"\1***", _USER.sub("***@", text))

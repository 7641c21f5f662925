"""Limits of this process. Each connection takes a file descriptor, and so do the files of the log, which must never lack one; and
what is in memory may be secret. And what the system holds for a connection."""

import contextlib
import sys
from typing import Final, Protocol

if sys.platform != "win32":
    import fcntl
    import resource
    import termios


class HasFileno(Protocol):
    def fileno(self) -> int: ...


LEFT: Final = 256
"""Connections leave so many to the files: those of the log that will come, and the few that are open for a moment."""

LOG_FILES: Final = 100_000
"""A store is opened with all files of its log, as a rule one for each GiB; the usual limit is 1024."""


def limit() -> int:
    """How many this process may have open."""
    if sys.platform == "win32":
        return 1 << 30  # there is none that matters
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return soft if soft != resource.RLIM_INFINITY else 1 << 30


def raise_limit(wanted: int) -> int:
    """Raises the soft limit to what is wanted, as far as the hard one allows; what it is then."""
    if sys.platform != "win32" and limit() < wanted:
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        with contextlib.suppress(ValueError, OSError):  # a system with a lower one of its own: then it stays as it was
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return limit()


def no_core_files() -> None:
    """If this process crashes it leaves no copy of its memory, where secrets are (S12)."""
    if sys.platform != "win32":
        _, hard = resource.getrlimit(resource.RLIMIT_CORE)
        resource.setrlimit(resource.RLIMIT_CORE, (0, hard))


def unacknowledged(socket: HasFileno | None) -> int:
    """Bytes of a socket that the other side's machine has not taken yet, as far as the system tells."""
    if sys.platform == "win32" or socket is None:
        return 0
    try:
        return int.from_bytes(fcntl.ioctl(socket.fileno(), termios.TIOCOUTQ, bytes(4)), sys.byteorder)
    except (OSError, ValueError):  # it has ended
        return 0

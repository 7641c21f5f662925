"""How a node writes its log: one readable line on a terminal, one JSON object a line elsewhere. On stderr."""

import json
import logging
import os
import re
import select
import stat
import sys
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import TextIO

import orjson

from rmq.commands.shared.output import plain

_COLOURS = {logging.WARNING: "\x1b[33m", logging.ERROR: "\x1b[31m", logging.CRITICAL: "\x1b[31;1m"}
_HALF = re.compile("[\ud800-\udfff]")  # of a character, which no JSON has
_PATIENCE_MS = 50
_PLAIN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def _extras(record: logging.LogRecord) -> dict[str, object]:
    """What the caller gave as `extra=`."""
    return {name: value for name, value in vars(record).items() if name not in _PLAIN}


class HumanFormatter(logging.Formatter):
    """`09:12:01.123 INFO    rmq.broker.node: text name=value`"""

    def __init__(self, colours: bool) -> None:
        super().__init__()
        self._colours = colours

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created).strftime("%H:%M:%S.%f")[:-3]
        extras = "".join(f" {name}={value}" for name, value in _extras(record).items())
        text = plain(f"{at} {record.levelname:<7} {record.name}: {record.getMessage()}{extras}")
        if record.exc_info:
            text += "\n" + self.formatException(record.exc_info)
        colour = _COLOURS.get(record.levelno) if self._colours else None
        return f"{colour}{text}\x1b[0m" if colour else text


class JsonFormatter(logging.Formatter):
    """One object a line: time (ISO, UTC), level, logger, message, the extras, error."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_extras(record),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        try:
            return orjson.dumps(line, default=str, option=orjson.OPT_NON_STR_KEYS).decode()
        except orjson.JSONEncodeError:  # half a character, as in the name of a file that is no UTF-8, or a huge number
            text = json.dumps(line, default=str, ensure_ascii=False)
            return _HALF.sub(lambda half: rf"\\u{ord(half[0]):x}", text)


class LineWriter(logging.StreamHandler[TextIO]):
    """Writes lines to a pipe, a socket (journald), a terminal or a file.

    Who does not read holds nobody up: lines that have no room are left out, and a line says how many these were when there is
    room again. An event loop that waited there would serve nobody meanwhile, and heard no signal either. So it is with a file on
    a disk that is full.
    """

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        is_file = stat.S_ISREG(os.fstat(stream.fileno()).st_mode)
        self._file = os.dup(stream.fileno()) if is_file else _opened_again(stream.fileno())
        self._at_once = sys.maxsize if is_file else select.PIPE_BUF  # of so much a pipe takes all or nothing
        self._room = select.poll()
        self._room.register(self._file, select.POLLOUT)
        self._left_out = 0
        self._is_torn = False

    def close(self) -> None:
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)
        super().close()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = self.format(record)
        except Exception:
            self.handleError(record)
            return
        if self._left_out and not self._write(self.format(_left_out(self._left_out))):
            self._left_out += 1
        else:
            self._left_out = 0 if self._write(text) else 1

    def _write(self, text: str) -> bool:
        """False if there is no room: then nothing is written, or only the beginning of a long line."""
        rest = memoryview(f"{text}{self.terminator}".encode(self.stream.encoding or "utf-8", "backslashreplace"))
        if self._is_torn:
            rest = memoryview(b"\n" + rest)
        patience, whole = 0 if self._left_out else _PATIENCE_MS, len(rest)
        with suppress(OSError):  # a full disk; also: nobody will ever read again
            while rest and self._room.poll(patience):
                rest = rest[os.write(self._file, rest[: self._at_once]) :]
        if len(rest) < whole:
            self._is_torn = bool(rest)
        return not rest


def _opened_again(file: int) -> int:
    """A handle of the same pipe or terminal that never waits, while other programs' handles of it may. A terminal says that it
    has room as soon as it has any, and would wait for the rest of the line."""
    try:
        return os.open(f"/proc/self/fd/{file}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:  # a socket, another user's terminal, or not Linux
        return os.dup(file)


def _left_out(count: int) -> logging.LogRecord:
    about = f"left out here: {count} lines, because nobody read this log, or its disk was full"
    return logging.LogRecord(__name__, logging.WARNING, __file__, 0, about, None, None)


def _handler(stream: TextIO) -> "logging.StreamHandler[TextIO]":
    with suppress(OSError):  # a stream of the program, as in tests
        if hasattr(select, "poll"):
            return LineWriter(stream)
    return logging.StreamHandler(stream)


def _sign(process: str, record: logging.LogRecord) -> bool:
    record.of = process
    return True


def start(form: str, level: str, stream: TextIO | None = None, process: str = "") -> None:
    """Sets the root logger. `form`: auto, human or json; `level`: debug, info, warning, error. `process`: of several that write
    there, in each line."""
    stream = stream or sys.stderr
    terminal = stream.isatty()
    human = form == "human" or (form == "auto" and terminal)
    handler = _handler(stream)
    handler.setFormatter(HumanFormatter(terminal) if human else JsonFormatter())
    if process:
        handler.addFilter(partial(_sign, process))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)

"""How a node writes its log: one readable line on a terminal, one JSON object a line elsewhere. On stderr."""

import logging
import sys
from datetime import UTC, datetime
from functools import partial
from typing import TextIO

import orjson

_COLOURS = {logging.WARNING: "\x1b[33m", logging.ERROR: "\x1b[31m", logging.CRITICAL: "\x1b[31;1m"}
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
        text = f"{at} {record.levelname:<7} {record.name}: {record.getMessage()}{extras}"
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
        return orjson.dumps(line, default=str, option=orjson.OPT_NON_STR_KEYS).decode()


def _sign(process: str, record: logging.LogRecord) -> bool:
    record.of = process
    return True


def start(form: str, level: str, stream: TextIO | None = None, process: str = "") -> None:
    """Sets the root logger. `form`: auto, human or json; `level`: debug, info, warning, error. `process`: of several that write
    there, in each line."""
    stream = stream or sys.stderr
    terminal = stream.isatty()
    human = form == "human" or (form == "auto" and terminal)
    handler = logging.StreamHandler(stream)
    handler.setFormatter(HumanFormatter(terminal) if human else JsonFormatter())
    if process:
        handler.addFilter(partial(_sign, process))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)

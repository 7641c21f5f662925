"""The one table of exit codes, and the one place that turns a failure into a line of text and a code."""

import sys
import traceback

import click

from rmq.codes import ResponseCode
from rmq.errors import BadBytes, Closed, InvalidArgument, Refusal, RmqError, StoreError, Unknown, Unreachable

OK = 0
FAILED = 1  # refused by the other side, or it could not be done
USAGE = 2  # wrong options, names or configuration; nothing was tried
UNREACHABLE = 3  # nobody answered; nothing was done
UNKNOWN = 4  # it was sent and no answer came: it may or may not have been done; or a part of it was done
DAMAGED = 5  # bytes from a peer or a disk are not what they should be
BUG = 70  # please report it, with the traceback
INTERRUPTED = 130  # Ctrl-C
PIPE_CLOSED = 141  # the reader of the output has closed the pipe

_CODES: tuple[tuple[type[BaseException], int], ...] = (
    (InvalidArgument, USAGE),
    (Unreachable, UNREACHABLE),
    (Unknown, UNKNOWN),
    (BadBytes, DAMAGED),
    (Refusal, FAILED),
    (StoreError, FAILED),
    (Closed, FAILED),
    (RmqError, FAILED),
    (OSError, FAILED),
    (MemoryError, FAILED),
    (click.Abort, INTERRUPTED),
    (KeyboardInterrupt, INTERRUPTED),
)


def code_of(error: BaseException) -> int:
    """Exit code for a failure; BUG for one that nobody foresaw."""
    if isinstance(error, click.ClickException):
        return error.exit_code
    return next((code for kind, code in _CODES if isinstance(error, kind)), BUG)


def explain(error: BaseException) -> int:
    """Prints on stderr what went wrong, and returns the exit code. Only a bug shows a traceback."""
    while isinstance(error, BaseExceptionGroup):  # the first failure of many tasks is enough
        error = error.exceptions[0]
    if isinstance(error, click.Abort) and isinstance(error.__context__, EOFError) and not sys.stdin.isatty():
        print(file=sys.stderr)
        error = InvalidArgument("it asks, and nobody is at its input to answer: see in --help by which option to say it")
    if isinstance(error, RuntimeError) and str(error) == "can't start new thread":  # Python's
        error = StoreError("the system gives this process no more threads (a container's pids limit, ulimit -u): allow it more")
    code = code_of(error)
    if isinstance(error, click.ClickException):
        error.show()
    elif code == BUG:
        traceback.print_exception(error)
        print("rmq: this is a bug; please report it with the lines above", file=sys.stderr)
    elif code != INTERRUPTED:
        from rmq.commands.shared.output import plain_text  # loads orjson

        print(plain_text(f"rmq: {_text(error)}"), file=sys.stderr)  # a remark may be a client's
    return code


def _text(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    if isinstance(error, MemoryError):
        return f"the system gives this process no more memory ({error or 'ulimit -v'}): allow it more"
    text = str(error) or type(error).__name__
    if isinstance(error, Unknown):
        return f"{text}; look before doing it again"
    if isinstance(error, Refusal) and error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
        return f"{text}; is it the right node? A nameserver does not do what a broker does, nor the other way round"
    return text

"""The program `rmq`: finds the command, runs it, and turns every failure into one line and an exit code.

Commands live in rmq/commands and are imported only when they run, so that `rmq --help` is quick. No behaviour here.
"""

import codecs
import contextlib
import importlib
import io
import os
import sys
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import click

from rmq.commands.shared import exits

COMMANDS = {
    "node": ("rmq.commands.node:node", "Run a nameserver, a broker, or both."),
    "config": ("rmq.commands.configuration:config", "Check a configuration file."),
    "try": ("rmq.commands.tryout:trial", "Start three brokers that elect their leader on this machine, to play with."),
    "admin": ("rmq.commands.admin.admin:admin", "Look at a cluster and change it (mqadmin's commands)."),
    "send": ("rmq.commands.send:send", "Send messages from the command line or from stdin."),
    "consume": ("rmq.commands.consume:consume", "Receive messages and print them."),
    "msg": ("rmq.commands.msg:msg", "Look messages up by id, key, place or time."),
    "dashboard": ("rmq.commands.dashboard:dashboard", "Show a cluster in a browser (needs the extra `dashboard`)."),
    "proxy": ("rmq.commands.proxy:proxy", "Open a door for RocketMQ 5's gRPC clients (needs the extra `grpc`)."),
    "health": ("rmq.commands.health:health", "Ask nodes whether they serve; for health checks."),
    "store": ("rmq.commands.store.store:store", "Check a store directory, look into it, repair it."),
    "archive": ("rmq.commands.archive:archive", "Ship rolled log files of a store to a directory or object store."),
    "restore": ("rmq.commands.archive:restore", "Make a store from an archive."),
    "bench": ("rmq.commands.bench.bench:bench", "Measure sending, receiving, and the way through."),
    "certs": ("rmq.commands.certs:certs", "Make certificates for TLS (needs the extra `tls`)."),
    "secrets": ("rmq.commands.secrets:secrets", "Make the secret files of a cluster with users."),
    "report": ("analytics.reports.cli:report", "Make a report of a store with Spark (needs the extra `spark`)."),
    "export": ("analytics.landing.cli:export", "Write messages as Parquet by topic and day (needs the extra `spark`)."),
    "changes": ("analytics.landing.cli:changes", "Make tables of change events from Canal (needs the extra `spark`)."),
    "completion": ("rmq.commands.completion:completion", "Print the completion script of a shell."),
}

_EXTRAS = {  # package -> our extra with it
    "cryptography": "tls",
    **dict.fromkeys(("grpc", "google"), "grpc"),
    **dict.fromkeys(("starlette", "uvicorn", "jinja2", "xlsxwriter"), "dashboard"),
}


class _ReaderGone(Exception):
    """The reader of our output has closed it (`| head`). Not a BrokenPipeError: click would end the process itself."""


@contextlib.contextmanager
def _telling_of_readers() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError as error:
        raise _ReaderGone from error


class _Lazy(click.Group):
    """Knows its commands by name and imports one only when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name][0].partition(":")
        try:
            found: click.Command = getattr(importlib.import_module(module), attribute)
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] == "rmq":
                raise  # a bug, not a missing extra
            extra = _EXTRAS.get((error.name or "").partition(".")[0], "spark")
            about = f"`rmq {cmd_name}` needs {error.name}; install it: pip install 'rmq[{extra}]'"
            raise click.ClickException(about) from error
        return found

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        with _telling_of_readers():  # --help and --version print here
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> Any:
        with _telling_of_readers():
            return super().invoke(ctx)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, about) for name, (_, about) in COMMANDS.items()])


def _version() -> str:
    try:
        return version("rmq")
    except PackageNotFoundError:  # run from a checkout
        return "not installed"


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(_version(), prog_name="rmq")
def cli() -> None:
    """rmq: a message broker with Apache RocketMQ's model, files and protocol.

    Exit codes: 0 done, 1 refused or failed, 2 wrong use or configuration, 3 nobody reachable, 4 outcome unknown,
    5 damaged bytes, 70 a bug, 130 interrupted. docs/commands.md tells more.
    """


def run(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; gives its exit code. Prints one line on stderr for a failure."""
    try:
        result = cli.main(args=arguments, prog_name="rmq", standalone_mode=False)
        sys.stdout.flush()
        return result if isinstance(result, int) else exits.OK
    except (_ReaderGone, BrokenPipeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return exits.PIPE_CLOSED
    except (Exception, KeyboardInterrupt) as error:
        return exits.explain(error)


def _open_streams() -> None:
    """Standard streams that came closed (`<&- >&-`) lead nowhere. Else a socket or a file would get their numbers."""
    while (handle := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(handle, True)
    os.close(handle)
    sys.stdin = sys.stdin or os.fdopen(0, closefd=False)
    sys.stdout, sys.stderr = (
        stream or os.fdopen(number, "w", closefd=False) for number, stream in ((1, sys.stdout), (2, sys.stderr))
    )


def _escaped(error: UnicodeError) -> tuple[str, int]:
    """Characters that stdout cannot write, as in Latin-1, look as in JSON: bodies and properties may hold any."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    units = error.object[error.start : error.end].encode("utf-16-be", "surrogatepass").hex("|", 2)
    return "\\u" + units.replace("|", "\\u"), error.end


def main() -> None:
    """Entry point of the program."""
    _open_streams()
    codecs.register_error("escaped", _escaped)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="escaped")
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # numpy's own threads spin for 0.1 s at a start, and serve nothing of ours
    sys.exit(run())


if __name__ == "__main__":
    main()

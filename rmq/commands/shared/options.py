"""Options that several commands share, and how their text becomes values. Letters are mqadmin's where it has the option."""

import asyncio
import errno
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from datetime import datetime
from typing import Any, BinaryIO, TypeVar

import click

from rmq.config.settings import DEFAULT_NAMESRV, parse
from rmq.errors import InvalidArgument
from rmq.net.transport.tls import Tls

MOST_LIST_BYTES = 1 << 20
"""Of a list of topics or groups: its request is structured, of which a broker takes 2 MiB, and a short row grows a little."""
_LONGEST_MS = 15  # digits: a longer number is no time
F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


def addresses(text: str) -> list[str]:
    """`host:port;host:port` as a list. Raises BadParameter."""
    try:
        return list(parse("namesrv_addresses", text))
    except InvalidArgument as error:
        raise click.BadParameter(f"{text!r}: write host:port, or 'host:port;host:port' for several") from error


def _addresses(_: click.Context, __: click.Parameter, value: str) -> str:
    return ";".join(addresses(value))


def namesrv(function: F) -> F:
    """-n: the nameservers, as one text `host:port;host:port`; and how to reach them and the brokers (`tls_of_command`)."""
    for name, about in reversed(_TLS.items()):
        function = _tls_option(name, about)(function)
    return click.option(
        "-n",
        "--namesrv",
        default=DEFAULT_NAMESRV,
        show_default=True,
        callback=_addresses,
        metavar="HOST:PORT;...",
        envvar=["RMQ_NAMESRV_ADDRESSES", "NAMESRV_ADDR"],
        show_envvar=True,
        help="Nameservers.",
    )(function)


def file_of(kind: str) -> Callable[[F], F]:
    """-f: what a file of those holds, as `text`."""
    about = f"A JSON array of {kind}, or a file of exportMetadata; - is stdin."
    return click.option("-f", "--file", "text", type=click.File("rb"), required=True, callback=_read_list, help=about)


def _read_list(_: click.Context, __: click.Parameter, value: BinaryIO) -> bytes:
    with value:
        text = value.read(MOST_LIST_BYTES + 1)
    if len(text) > MOST_LIST_BYTES:
        raise click.BadParameter(f"the file has more than {MOST_LIST_BYTES >> 20} MiB: give it in parts")
    return text


_META = "rmq.tls"
_TLS = {
    "tls": "Connect with TLS, and trust the system's authorities.",
    "tls-ca": "Connect with TLS, and trust the authorities in this PEM file.",
    "tls-cert": "Certificate of this client, PEM.",
    "tls-key": "Its key, PEM.",
    "tls-server-name": "Name in the other side's certificate.  [default: the host that is dialled]",
}


def _tls_option(name: str, about: str) -> Callable[[F], F]:
    variable = f"RMQ_{name.upper().replace('-', '_')}"
    kind = {"is_flag": True} if name == "tls" else {"metavar": "NAME" if name.endswith("name") else "FILE"}
    return click.option(
        f"--{name}", envvar=variable, show_envvar=True, help=about, expose_value=False, callback=_note_tls, **kind
    )


def _note_tls(context: click.Context, option: click.Parameter, value: str | bool | None) -> None:
    if value:
        context.meta.setdefault(_META, {})[option.name] = value


def tls_of_command() -> Tls | None:
    """The TLS options of the running command; None: no TLS. Raises InvalidArgument."""
    context = click.get_current_context(silent=True)
    said: dict[str, str] = context.meta.get(_META, {}) if context is not None else {}
    if not said:
        return None
    if not said.keys() & {"tls", "tls_ca"}:
        raise InvalidArgument(f"--{'--'.join(said).replace('_', '-')}: whom to trust? Give --tls-ca FILE, or --tls")
    names = {"tls_ca": "ca", "tls_cert": "cert", "tls_key": "key", "tls_server_name": "server_name"}
    return Tls(**{names[name]: value for name, value in said.items() if name in names})


def timeout(function: F) -> F:
    """--timeout: seconds to wait for one answer."""
    return click.option(
        "--timeout",
        "timeout_s",
        type=click.FloatRange(min=0.01),
        default=5.0,
        show_default=True,
        envvar="RMQ_TIMEOUT",
        metavar="SECONDS",
        help="How long to wait for one answer.",
    )(function)


def place(function: F) -> F:
    """-c or -b: which brokers."""
    function = click.option("-b", "--broker", default="", metavar="NAME|HOST:PORT", help="One broker.")(function)
    return click.option("-c", "--cluster", default="", metavar="NAME", help="Every broker of this cluster.")(function)


def route_tells(function: F) -> F:
    """-c, which tells mqadmin where to look for a topic's route; here nothing depends on it."""
    return click.option("-c", "--cluster", hidden=True, expose_value=False, help="The topic's route tells it.")(function)


def check_place(cluster: str, broker: str) -> None:
    """For a command that changes something. Raises UsageError unless exactly one is given."""
    if bool(cluster) == bool(broker):
        raise click.UsageError("give either -c CLUSTER or -b BROKER")


def output(function: F) -> F:
    """-o: table or json."""
    return click.option(
        "-o", "--output", "form", type=click.Choice(["table", "json"]), default="table", show_default=True, help="How to print."
    )(function)


def pairs(_: click.Context, __: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    """`name=value` options as a dict."""
    split = [text.partition("=") for text in values]
    for name, found, _value in split:
        if not found or not name:
            raise click.BadParameter("write NAME=VALUE")
    return {name: value for name, _, value in split}


def attributes(_: click.Context, __: click.Parameter, value: str) -> str:
    """`+key=value,-key`; without a sign RocketMQ would lose the first letter of the key."""
    if any(part[:1] not in ("+", "-") for part in value.split(",")) and value:
        raise click.BadParameter("write +KEY=VALUE to set one, -KEY to remove one, commas between them")
    return value


def moment(text: str) -> int:
    """Unix ms or a local ISO date and time as Unix ms. Raises BadParameter."""
    if text.isdecimal() and len(text) <= _LONGEST_MS:
        return int(text)
    try:
        return round(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError) as error:
        raise click.BadParameter(f"{text!r} is no time; write 2026-11-21T09:00:00 or milliseconds since 1970") from error


def moment_option(_: click.Context, __: click.Parameter, value: str | None) -> int | None:
    """The same as the callback of an option."""
    return None if value is None else moment(value)


def address(name: str, about: str, default: str | None = None) -> Callable[[F], F]:
    """An option that says where to listen: host (of IPv6 without brackets) and port; None where nothing was given."""

    def parsed(_: click.Context, option: click.Parameter, value: str | None) -> tuple[str, int] | None:
        if value is None:
            return None
        host, _mark, port = value.rpartition(":")
        if not host or not port.isdecimal() or int(port) > 65535:
            raise click.BadParameter(f"{value!r}: write HOST:PORT")
        return host.strip("[]"), int(port)

    return click.option(name, callback=parsed, default=default, show_default=True, metavar="HOST:PORT", help=about)


def told_to_stop() -> asyncio.Event:
    """Set by SIGINT or SIGTERM from now on."""
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for signum in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(signum, stop.set)
    return stop


def announce(text: str) -> None:
    """Says where a service is. A full disk, to which its output goes, does not keep it from serving."""
    try:
        click.echo(text)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the line would be written once more at the end


def run(work: Coroutine[Any, Any, T]) -> T:
    """Runs one coroutine to its end on a fresh loop."""
    return asyncio.run(work)


def run_fast(work: Coroutine[Any, Any, T]) -> T:
    """As `run`, on uvloop where it is installed (nodes and benchmarks)."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(work)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)

"""`rmq dashboard`: the cluster in a browser (needs the extra `dashboard`)."""

import asyncio
import logging
from pathlib import Path

import click

from rmq.client import Client
from rmq.clock import SystemClock
from rmq.commands.shared import asking, logs, options, threads
from rmq.dashboard.access import READ, WRITE, write_user
from rmq.dashboard.bounded import ACTIONS_S
from rmq.dashboard.serve import Options, served


@click.group(invoke_without_command=True)
@options.namesrv
@options.address("--listen", "Address that browsers open.", "127.0.0.1:8082")
@click.option(
    "--users",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="File with the users who may log in; make it with `rmq dashboard user`.",
)
@click.option("--no-login", "open_to_all", is_flag=True, help="No login, even where other machines can reach the dashboard.")
@click.option("--read-only", is_flag=True, help="Without users: show everything, change nothing.")
@click.option(
    "--data", type=click.Path(path_type=Path), default=Path("rmq-dashboard"), show_default=True, help="Directory for the history."
)
@click.option(
    "--allow-host", "hosts", multiple=True, metavar="NAME", help="Without users: another host name that browsers may use."
)
@click.option("--root-path", "root", default="", metavar="/PATH", help="Path under which a proxy serves the dashboard.")
@click.pass_context
def dashboard(
    context: click.Context,
    namesrv: str,
    listen: tuple[str, int],
    users: Path | None,
    open_to_all: bool,
    read_only: bool,
    data: Path,
    hosts: tuple[str, ...],
    root: str,
) -> None:
    """Show a cluster in a browser, and change it there. On loopback there is no login, unless --users names a file of users."""
    if context.invoked_subcommand is not None:
        return
    host, port = listen
    asked = Options(
        host=host,
        port=port,
        users=users,
        open=open_to_all,
        read_only=read_only,
        data=data,
        hosts=hosts,
        root=root,
    )
    logs.start("auto", "info")
    logging.getLogger("uvicorn").setLevel(logging.WARNING)  # we report the start ourselves
    options.run_fast(_serve(asking.client_of(namesrv, ACTIONS_S), asked))


async def _serve(client: Client, asked: Options) -> None:
    stop = options.told_to_stop()
    asyncio.get_running_loop().set_default_executor(threads.pool())
    async with served(client, asked, SystemClock()) as url:
        options.announce(f"the dashboard is at {url}")
        await stop.wait()


@dashboard.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.argument("name")
@click.option(
    "--role",
    type=click.Choice([READ, WRITE]),
    default=READ,
    show_default=True,
    help="read: may look; write: may also change things.",
)
@click.option("--password", envvar="RMQ_DASHBOARD_PASSWORD", prompt=True, hide_input=True, confirmation_prompt=True)
def user(file: Path, name: str, role: str, password: str) -> None:
    """Add NAME to the users in FILE, or change its role and password. Restart a running dashboard afterwards."""
    write_user(file, name, role, password)
    click.echo(f"{name} may {'look and change' if role == WRITE else 'look'}: {file}")

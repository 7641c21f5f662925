"""`rmq secrets`: secret files of a cluster with users."""

from pathlib import Path

import click

from rmq.ops import secretmaking

_file = click.argument("file", type=click.Path(path_type=Path, dir_okay=False))


@click.group()
def secrets() -> None:
    """Make the secret files of a cluster, and change the nodes' secret while it runs."""


@secrets.command()
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
def make(folder: Path) -> None:
    """Make FOLDER/node, FOLDER/admin and FOLDER/admin.password, with random secrets. Existing files stay.

    Use the first two in initAuthenticationUser and innerClientAuthenticationCredentials (file:...), and the third one as
    RMQ_PASSWORD_FILE of RMQ_USER=admin.
    """
    for file in secretmaking.make(folder):
        click.echo(f"made {file}")


@secrets.command()
@_file
def add(file: Path) -> None:
    """Add a new secret at the end of FILE. Nodes that start with FILE then accept the old and the new one."""
    click.echo(f"{file}: nodes take {secretmaking.add(file)} too, once they were started again")


@secrets.command("use-newest")
@_file
def use_newest(file: Path) -> None:
    """Move the newest secret in FILE to the front. Nodes that start with FILE then log in with it."""
    click.echo(f"{file}: nodes prove themselves by {secretmaking.use_newest(file)}, once they were started again")


@secrets.command("drop-others")
@_file
def drop_others(file: Path) -> None:
    """Remove all but the first secret from FILE. Nodes that start with FILE then accept no other."""
    gone = ", ".join(secretmaking.drop_others(file)) or "nothing"
    click.echo(f"{file}: {gone} went; nodes that were started again do not take it any more")

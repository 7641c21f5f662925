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
    """Make FOLDER/node, FOLDER/admin and FOLDER/admin.password, with secrets by chance. Files that are there stay.

    The first two are for initAuthenticationUser and innerClientAuthenticationCredentials (file:...), the third one is for
    RMQ_PASSWORD_FILE of RMQ_USER=admin.
    """
    for file in secretmaking.make(folder):
        click.echo(f"made {file}")


@secrets.command()
@_file
def add(file: Path) -> None:
    """Put a new secret behind those in FILE: nodes that are started with it take both."""
    click.echo(f"{file}: nodes take {secretmaking.add(file)} too, once they were started again")


@secrets.command("use-newest")
@_file
def use_newest(file: Path) -> None:
    """Put the last secret in FILE first: nodes that are started with it prove themselves by it."""
    click.echo(f"{file}: nodes prove themselves by {secretmaking.use_newest(file)}, once they were started again")


@secrets.command("drop-others")
@_file
def drop_others(file: Path) -> None:
    """Leave only the first secret in FILE: nodes that are started with it take no other."""
    gone = ", ".join(secretmaking.drop_others(file)) or "nothing"
    click.echo(f"{file}: {gone} went; nodes that were started again do not take it any more")

"""`rmq config check FILE`: the settings that a node would run with, and where each came from."""

import os
from pathlib import Path

import click

from rmq.commands.shared import options, output
from rmq.config.loading import Entry, load
from rmq.config.settings import NAMES, rocketmq_key


@click.group()
def config() -> None:
    """Check a configuration file."""


@config.command()
@click.argument("file", type=click.Path(path_type=Path), required=False)
@click.option("--role", type=click.Choice(["nameserver", "broker", "all"]), help="Role that the file is for.")
@options.output
def check(file: Path | None, role: str | None, form: str) -> None:
    """Print the effective settings for FILE (TOML, or RocketMQ's key=value) and where each came from.

    RMQ_* variables count as they do for `rmq node`. The exit code is 2 for a wrong value, and for a key of RocketMQ that asks
    for something rmq cannot do. Unknown keys and keys without effect are warnings.
    """
    flags = [Entry("role", role, "--role")] if role else []
    loaded = load(file, os.environ, flags)
    columns = {"name": "Setting", "value": "Value", "origin": "From", "rocketmq": "RocketMQ's key"}
    rows = [(name, _text(getattr(loaded.settings, name)), loaded.origins[name], rocketmq_key(name)) for name in NAMES]
    output.show(output.Table(columns, rows), form)
    for warning in loaded.warnings:
        click.echo(f"warning: {warning}", err=True)


def _text(value: object) -> str | int | bool:
    if isinstance(value, (int, bool)):
        return value
    return ";".join(map(str, value)) if isinstance(value, tuple) else str(value)

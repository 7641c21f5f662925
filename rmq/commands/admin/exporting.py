"""`rmq admin` for what mqadmin exports to files."""

from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import click
import orjson

from rmq.client import Client
from rmq.client.admin import exports
from rmq.commands.shared import asking, options, output

_STDOUT = "-"
_cluster = click.option("-c", "--cluster", required=True, metavar="NAME")
_folder = click.option(
    "-f", "--folder", default=".", show_default=True, metavar="DIR", help="Where the file is written; - prints it instead."
)
Json = dict[str, Any]


def export(namesrv: str, timeout_s: float, folder: str, name: str, work: Callable[[Client], Awaitable[Json]]) -> None:
    """Writes what `work` gives as the file `name`: whole, or not at all."""
    text = output.json_text(asking.run(namesrv, timeout_s, work), orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS)
    if folder == _STDOUT:
        click.echo(text)
        return
    path = Path(folder) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{name}.new")
    beside.write_bytes(f"{text}\n".encode())
    beside.replace(path)
    click.echo(f"export {path} success")


def _command(name: str, about: str, file: str, work: Callable[..., Awaitable[Json]]) -> click.Command:
    """Of what is written about one cluster."""

    @click.command(name, help=about)
    @options.namesrv
    @_cluster
    @_folder
    @options.timeout
    def command(namesrv: str, cluster: str, folder: str, timeout_s: float) -> None:
        export(namesrv, timeout_s, folder, file, partial(work, cluster=cluster))

    return command


@click.command("exportMetadata")
@options.namesrv
@options.place
@click.option("-t", "--topics", is_flag=True, help="Only topics, to topic.json.")
@click.option("-g", "--groups", is_flag=True, help="Only consumer groups, to subscriptionGroup.json.")
@click.option("-s", "--special", is_flag=True, help="With the topics of retries and dead letters.")
@_folder
@options.timeout
def export_metadata(
    namesrv: str, cluster: str, broker: str, topics: bool, groups: bool, special: bool, folder: str, timeout_s: float
) -> None:
    """Write the topics and consumer groups that users made to metadata.json."""
    options.check_place(cluster, broker)
    if topics and groups:
        raise click.UsageError("give -t or -g, or neither for both")

    async def work(client: Client) -> Json:
        found = await exports.metadata(client, cluster=cluster, broker=broker, special=special)
        tables = {} if groups else {"topicConfigTable": found.topics}
        return {"exportTime": client.session.clock.wall_ms(), **tables} | (
            {} if topics else {"subscriptionGroupTable": found.groups}
        )

    export(namesrv, timeout_s, folder, "topic.json" if topics else "subscriptionGroup.json" if groups else "metadata.json", work)


_CONFIGS = "Write how many nodes a cluster has, and their main settings, to configs.json."
_METRICS = "Write rates, counts of a day, disks and clients of a cluster's brokers to metrics.json."
COMMANDS = (
    _command("exportConfigs", _CONFIGS, "configs.json", exports.configs),
    _command("exportMetrics", _METRICS, "metrics.json", exports.metrics),
    export_metadata,
)

"""`rmq admin` for files that list topics or consumer groups."""

from collections.abc import Awaitable, Callable

import click

from rmq.client.admin import lists
from rmq.commands.shared import asking, options, output

Update = Callable[..., Awaitable[tuple[list[str], list[str]]]]
"""Of `lists`: the names in the file, and the brokers' addresses."""


def _command(name: str, kind: str, about: str, what: str, update: Update) -> click.Command:
    """`kind`: of the file's elements, as RocketMQ names it; `about` and `what` name them in the help and in the report."""

    @click.command(name, help=f"Make or change the {about} of a file, at each broker all or none.")
    @options.namesrv
    @options.place
    @options.file_of(kind)
    @options.timeout
    @options.output
    def command(namesrv: str, cluster: str, broker: str, text: bytes, timeout_s: float, form: str) -> None:
        options.check_place(cluster, broker)
        names, addresses = asking.run(namesrv, timeout_s, lambda client: update(client, text, cluster=cluster, broker=broker))
        output.report(f"create {len(names)} {what}", addresses, form)

    return command


COMMANDS = (
    _command("updateTopicList", "TopicConfig", "topics", "topics", lists.update_topics),
    _command("updateSubGroupList", "SubscriptionGroupConfig", "consumer groups", "groups", lists.update_groups),
)

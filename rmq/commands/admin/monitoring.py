"""`rmq admin startMonitoring`: how all consumer groups are, again and again. For alerts use Prometheus (docs/monitoring.md)."""

from collections.abc import Iterator

import click

from rmq.client.admin.calls import Silent
from rmq.client.admin.monitoring import GroupHealth, Waiting, health_of_groups
from rmq.commands.admin import rounds
from rmq.commands.shared import asking, options, output

_COLUMNS = {
    "group": "Group",
    "members": "Members",
    "topic": "Topic",
    "waiting": "Waiting",
    "most": "In One Queue",
    "behind_s": "Behind(s)",
    "dead_letters": "Dead Letters",
}
_NOTHING = Waiting("", 0, 0, 0)


@click.command("startMonitoring")
@options.namesrv
@rounds.interval(60, "From the end of a round to the next one.")
@rounds.count
@options.timeout
@options.output
def start_monitoring(namesrv: str, interval_s: float, count: int | None, timeout_s: float, form: str) -> int:
    """Show, again and again, what waits for consumer groups, their dead letters, and what is wrong among their members."""

    def show() -> int:
        silent: Silent = {}
        found = asking.run(namesrv, timeout_s, lambda client: health_of_groups(client, silent))
        rounds.show(_COLUMNS, [row for group in found for row in _rows(group)], form)
        for group in found:
            for trouble in group.troubles:
                click.echo(f"warning: {group.group}: {output.plain(trouble)}", err=True)
        return asking.incomplete(silent)

    return rounds.again(show, interval_s, count)


def _rows(group: GroupHealth) -> Iterator[tuple[output.Cell, ...]]:
    """One for each topic; one without a topic if the group reads none."""
    for each in group.waiting or [_NOTHING]:
        yield group.group, group.members, each.topic, each.total, each.most, each.behind_ms / 1000, group.dead_letters


COMMANDS = (start_monitoring,)

"""`rmq admin` for single queues of a topic: who would read which, and what a queue knows of its messages."""

from collections.abc import Mapping, Sequence

import click

from rmq.client import Client
from rmq.client.admin import calls as ask, one
from rmq.commands.shared import asking, options, output
from rmq.model import PERM_READ, MessageQueue
from rmq.routing.rebalance import average

_topic = click.option("-t", "--topic", required=True, metavar="NAME")


def _members(_: click.Context, __: click.Parameter, value: str) -> list[str]:
    found = [text.strip() for text in value.split(",")]
    if not all(found):
        raise click.BadParameter("write addresses with commas between them, as 10.0.0.1,10.0.0.2")
    return found


@click.command("allocateMQ")
@options.namesrv
@_topic
@click.option("-i", "--ips", "members", required=True, callback=_members, metavar="IP,...", help="Members, by any names.")
@options.timeout
@options.output
def allocate_queues(namesrv: str, topic: str, members: list[str], timeout_s: float, form: str) -> None:
    """Show which queues each of these members of a group would read."""
    route = asking.run(namesrv, timeout_s, lambda client: ask.topic_route(client, topic))
    queues = [
        MessageQueue(topic, each.broker_name, number)
        for each in route.queues
        if each.perm & PERM_READ
        for number in range(each.read_queue_nums)
    ]
    rows = [(ip, queue.broker_name, queue.queue_id) for ip in sorted(set(members)) for queue in average(queues, members, ip)]
    output.show(output.Table({"ip": "IP", "broker": "Broker Name", "queue": "QID"}, rows), form)


@click.command("queryCq")
@options.namesrv
@_topic
@click.option("-q", "--queue", type=click.IntRange(min=0), required=True, metavar="ID")
@click.option("-i", "--index", type=click.IntRange(min=0), required=True, metavar="OFFSET", help="Queue offset of the first.")
@click.option("-c", "--count", type=click.IntRange(1, 1000), default=10, show_default=True, metavar="NUMBER")
@click.option("-b", "--broker", default="", metavar="NAME|HOST:PORT", help="[default: the first that has the topic]")
@click.option("-g", "--group", default="", metavar="NAME", help="Tell also what this group wants.")
@options.timeout
@options.output
def query_queue(
    namesrv: str, topic: str, queue: int, index: int, count: int, broker: str, group: str, timeout_s: float, form: str
) -> None:
    """Show what a consume queue knows of its messages: where they are in the log, their size, the hash of their tag."""

    async def work(client: Client) -> one.QueueEntries:
        if broker:
            (address,) = await ask.broker_addresses(client, broker=broker)
        else:
            address = ask.leaders(await ask.topic_route(client, topic))[0]
        return await one.queue_entries(client, one.GetQueueEntries(topic, queue, index, count, group), address)

    found = asking.run(namesrv, timeout_s, work)
    columns = {"offset": "Queue Offset", "physical_offset": "Physical Offset", "size": "Size", "tags_code": "Tags Code"}
    rows: Sequence[Sequence[output.Cell]] = [
        (number, each.physic_offset, each.physic_size, each.tags_code, *((each.eval,) if group else ()))
        for number, each in enumerate(found.queue_data, index)
    ]
    output.show(output.Table(columns | ({"wanted": "Wanted"} if group else {}), rows, _notes(found)), form)


def _notes(found: one.QueueEntries) -> Mapping[str, tuple[str, output.Cell]]:
    notes: dict[str, tuple[str, output.Cell]] = {
        "min_offset": ("Min Offset", found.min_queue_index),
        "max_offset": ("Max Offset", found.max_queue_index),
    }
    for wanted in found.subscription:
        notes["subscription"] = ("Subscription", f"{wanted.expression_type} {wanted.expression}")
    if not found.subscription and found.filter_data:
        notes["subscription"] = ("Subscription", found.filter_data)
    return notes


COMMANDS = (allocate_queues, query_queue)

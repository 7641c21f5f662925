"""`rmq admin` for how long sends take: to one topic, one broker, all brokers. `rmq bench` measures more, and many at once."""

from collections.abc import AsyncIterator, Callable, Sequence

import click

from rmq.client import Client, SendResult
from rmq.client.admin import calls as ask
from rmq.client.admin.probes import PROBE_GROUP, Probe, mean_ms, probes
from rmq.commands.admin import rounds
from rmq.commands.shared import asking, options, output
from rmq.errors import InvalidArgument, RmqError, done_in_part
from rmq.model import BrokerAddresses

_MOST_BYTES = 4 << 20
_size = click.option("-s", "--size", type=click.IntRange(1, _MOST_BYTES), default=128, show_default=True, metavar="BYTES")


def _amount(letter: str, name: str, default: int) -> Callable[[options.F], options.F]:
    return click.option(letter, name, "amount", type=click.IntRange(min=1), default=default, show_default=True, metavar="NUMBER")


@click.command("checkMsgSendRT")
@options.namesrv
@click.option("-t", "--topic", required=True, metavar="NAME")
@_amount("-a", "--amount", 100)
@_size
@options.timeout
@options.output
def check_send_rt(namesrv: str, topic: str, amount: int, size: int, timeout_s: float, form: str) -> None:
    """Send messages to a topic, one after another, and show how many ms each took. They stay there."""
    _show(asking.run(namesrv, timeout_s, lambda client: _sent(client, topic, size, amount)), form)


@click.command("sendMsgStatus")
@options.namesrv
@click.option("-b", "--broker", required=True, metavar="NAME", help="The topic with this name takes the messages.")
@_amount("-c", "--count", 50)
@_size
@options.timeout
@options.output
def send_msg_status(namesrv: str, broker: str, amount: int, size: int, timeout_s: float, form: str) -> None:
    """Send messages to a broker's own topic, one after another, and show what became of each."""

    async def work(client: Client) -> list[Probe]:
        if broker not in {group.name for group in (await ask.cluster_info(client)).brokers}:
            raise InvalidArgument(f"no broker {broker} is registered; `rmq admin clusterList` shows all")
        return await _sent(client, broker, size, amount)

    _show(asking.run(namesrv, timeout_s, work), form)


async def _sent(client: Client, topic: str, size: int, amount: int) -> list[Probe]:
    """Raises the last failure if none was stored, as far as is known."""
    async with client.producer(PROBE_GROUP) as producer:
        found = [each async for each in probes(client, producer, topic, size, amount)]
    failures = [each.outcome for each in found if isinstance(each.outcome, RmqError)]
    if len(failures) == len(found):
        raise done_in_part(failures[-1], failures, False, "")
    return found


def _show(found: Sequence[Probe], form: str) -> None:
    columns = {
        "broker": "Broker Name",
        "queue": "QID",
        "result": "Send Result",
        "rt_ms": "RT",
        "offset": "Queue Offset",
        "message_id": "Message Id",
    }
    output.show(output.Table(columns, [_row(each) for each in found], {"avg_rt_ms": ("Avg RT", mean_ms(found))}), form)


def _row(probe: Probe) -> Sequence[output.Cell]:
    sent = probe.outcome
    if isinstance(sent, SendResult):
        return sent.queue.broker_name, sent.queue.queue_id, sent.status.name, probe.ms, sent.queue_offset, sent.message_id
    return None, None, str(sent), probe.ms, None, None


@click.command("clusterRT")
@options.namesrv
@click.option("-c", "--cluster", default="", metavar="NAME", help="Only brokers of this cluster.")
@_amount("-a", "--amount", 100)
@_size
@rounds.interval(10, "From the end of a round to the next one.")
@rounds.count
@options.timeout
@options.output
def cluster_rt(
    namesrv: str, cluster: str, amount: int, size: int, interval_s: float, count: int, timeout_s: float, form: str
) -> None:
    """Send messages to every broker's own topic, again and again, and show how many ms one took on average."""

    async def work(client: Client) -> list[Sequence[output.Cell]]:
        groups = ask.groups_of(await ask.cluster_info(client), cluster)
        return [row async for row in _rows(client, groups, size, amount)]

    rounds.again(lambda: rounds.show(_CLUSTER, asking.run(namesrv, timeout_s, work), form), interval_s, count)


_CLUSTER = {"cluster": "Cluster Name", "broker": "Broker Name", "rt_ms": "RT", "succeeded": "successCount", "failed": "failCount"}


async def _rows(
    client: Client, groups: Sequence[BrokerAddresses], size: int, amount: int
) -> AsyncIterator[Sequence[output.Cell]]:
    async with client.producer(PROBE_GROUP) as producer:
        for group in groups:
            found = [each async for each in probes(client, producer, group.name, size, amount)]
            stored = sum(isinstance(each.outcome, SendResult) for each in found)
            yield group.cluster, group.name, mean_ms(found), stored, len(found) - stored


COMMANDS = (check_send_rt, send_msg_status, cluster_rt)

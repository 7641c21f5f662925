"""`rmq send`: messages from arguments, or from stdin one a line."""

import sys
from collections.abc import Iterable, Iterator
from itertools import islice

import click

from rmq.client import Client, Message, Producer, SendResult
from rmq.commands import options, output


@click.command()
@click.argument("topic")
@click.argument("bodies", nargs=-1, metavar="[BODY]...")
@options.namesrv
@click.option("-t", "--tag", default="", help="Tag that consumers may filter by.")
@click.option("-k", "--key", "keys", multiple=True, help="Key the message can be looked up by (repeatable).")
@click.option("-p", "--property", "properties", multiple=True, metavar="NAME=VALUE", callback=options.pairs,
              help="A property of your own (repeatable).")
@click.option("-g", "--group", default="rmq-cli", show_default=True, help="Producer group.")
@click.option("--order-by", "hash_key", metavar="KEY", help="All messages with this key go to one queue, in order.")
@click.option("--whole", is_flag=True, help="All of stdin is one message.")
@click.option("--batch", "batch_size", type=click.IntRange(1, 1000), default=1, show_default=True,
              help="Messages sent in one request.")
@click.option("-q", "--quiet", is_flag=True, help="Print only how many were sent.")
@options.timeout
@options.output
def send(
    topic: str, bodies: tuple[str, ...], namesrv: str, tag: str, keys: tuple[str, ...], properties: dict[str, str], group: str,
    hash_key: str | None, whole: bool, batch_size: int, quiet: bool, timeout_s: float, form: str,
) -> None:
    """Send each BODY to TOPIC; without one, each line of stdin.

    \b
    rmq send Orders "hello" -t new -k order-1
    seq 1000 | rmq send Numbers --batch 100
    """  # fmt: skip
    found = (body.encode() for body in bodies) if bodies else _stdin(whole)
    messages = (Message(topic, body, tags=tag, keys=keys, properties=properties) for body in found)
    report = None if quiet else form
    sent = options.run(_send(namesrv, group, messages, hash_key, batch_size, timeout_s, report))
    click.echo(f"sent {sent} message{'' if sent == 1 else 's'} to {topic}", err=True)


def _stdin(whole: bool) -> Iterator[bytes]:
    if whole:
        yield sys.stdin.buffer.read()
        return
    for line in sys.stdin.buffer:
        if body := line.rstrip(b"\r\n"):
            yield body


async def _send(
    namesrv: str, group: str, messages: Iterable[Message], key: str | None, batch_size: int, timeout_s: float,
    report: str | None,
) -> int:
    """Number of messages sent. `report`: how each is printed, None for not at all."""
    sent = 0
    async with Client(namesrv) as client, client.producer(group) as producer:
        for batch in _batches(messages, batch_size):
            for result in await _send_some(producer, batch, key, timeout_s):
                sent += 1
                if report:
                    _show(result, report)
    return sent


def _batches(messages: Iterable[Message], size: int) -> Iterator[list[Message]]:
    rest = iter(messages)
    while batch := list(islice(rest, size)):
        yield batch


async def _send_some(producer: Producer, batch: list[Message], key: str | None, timeout_s: float) -> list[SendResult]:
    if len(batch) == 1:
        return [await producer.send(batch[0], key=key, timeout=timeout_s)]
    return await producer.send_batch(batch, key=key, timeout=timeout_s)


def _show(result: SendResult, form: str) -> None:
    queue = result.queue
    if form == "json":
        output.show_json_line({"message_id": result.message_id, "broker": queue.broker_name, "queue": queue.queue_id,
                               "offset": result.queue_offset, "status": result.status.name})  # fmt: skip
    else:
        place = f"{queue.broker_name}/{queue.queue_id}@{result.queue_offset}"
        click.echo(f"{result.message_id}  {place}  {result.status.name}")

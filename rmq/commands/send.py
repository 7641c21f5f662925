"""`rmq send`: sends messages from arguments, or one for each line of stdin."""

from collections.abc import AsyncIterator, Callable, Iterator, Sequence

import click

from rmq.client import Message, Producer, SendResult
from rmq.client.shared.message import MOST_LEVEL
from rmq.commands.shared import asking, options, output, stdin
from rmq.errors import InvalidArgument, Unknown, Unreachable


@click.command()
@click.argument("topic")
@click.argument("bodies", nargs=-1, metavar="[BODY]...")
@options.namesrv
@click.option("-t", "--tag", default="", help="Tag that consumers can filter by.")
@click.option("-k", "--key", "keys", multiple=True, help="Key to find the message by (repeatable).")
@click.option(
    "-p",
    "--property",
    "properties",
    multiple=True,
    metavar="NAME=VALUE",
    callback=options.pairs,
    help="A property of your own (repeatable).",
)
@click.option("-g", "--group", default="rmq-cli", show_default=True, help="Producer group.")
@click.option("--order-by", "hash_key", metavar="KEY", help="All messages with this key go to one queue, in order.")
@click.option(
    "--delay", "delay_s", type=click.FloatRange(0, min_open=True), metavar="SECONDS", help="Deliver the messages after this time."
)
@click.option(
    "--delay-level", type=click.IntRange(1, MOST_LEVEL), help="Deliver them after the delay of this level: 1s 5s 10s 30s 1m ..."
)
@click.option("--whole", is_flag=True, help="Send all of stdin as one message.")
@click.option(
    "--batch",
    "batch_size",
    type=click.IntRange(1, 1000),
    default=1,
    show_default=True,
    help="Put up to this many messages into one request.",
)
@click.option("-q", "--quiet", is_flag=True, help="Print only how many were sent.")
@options.timeout
@options.output
def send(
    topic: str,
    bodies: tuple[str, ...],
    namesrv: str,
    tag: str,
    keys: tuple[str, ...],
    properties: dict[str, str],
    group: str,
    hash_key: str | None,
    delay_s: float | None,
    delay_level: int | None,
    whole: bool,
    batch_size: int,
    quiet: bool,
    timeout_s: float,
    form: str,
) -> None:
    """Send each BODY to TOPIC. Without BODY send each line of stdin that is not empty.

    \b
    rmq send Orders "hello" -t new -k order-1
    seq 1000 | rmq send Numbers --batch 100
    """

    def message(body: bytes) -> Message:
        return Message(
            topic, body, tags=tag, keys=keys, properties=properties, delay_s=delay_s or 0, delay_level=delay_level or 0
        )

    if batch_size > 1 and (delay_s or delay_level):
        raise click.UsageError("a batch cannot be delayed: leave out --batch, or the delay")
    found = _arguments(bodies) if bodies else _everything() if whole else stdin.lines()
    messages = ([message(body) for body in some] async for some in found)
    sent = 0

    def on_sent(results: Sequence[SendResult]) -> None:
        nonlocal sent
        sent += len(results)
        if not quiet:
            _show(results, form)

    try:
        options.run(_send(namesrv, group, messages, hash_key, batch_size, timeout_s, on_sent))
    finally:  # after a failure or Ctrl-C too: how far it came
        click.echo(f"sent {sent} message{'' if sent == 1 else 's'} to {topic}", err=True)


async def _arguments(bodies: Sequence[str]) -> AsyncIterator[list[bytes]]:
    yield [body.encode(errors="surrogateescape") for body in bodies]  # bytes that are no UTF-8 go as they came


async def _everything() -> AsyncIterator[list[bytes]]:
    yield [await stdin.everything()]


async def _send(
    namesrv: str,
    group: str,
    messages: AsyncIterator[list[Message]],
    key: str | None,
    batch_size: int,
    timeout_s: float,
    on_sent: Callable[[Sequence[SendResult]], None],
) -> None:
    """`messages`: those that are there, again and again. `on_sent` gets each answer before the next request goes. Raises
    Unknown in place of what says that nothing was done, where some were sent before."""
    begun = False
    async with asking.client_of(namesrv) as client, client.producer(group) as producer:
        try:
            async for some in messages:
                for batch in _batches(some, batch_size):
                    on_sent(await _send_some(producer, batch, key, timeout_s))
                    begun = True
        except (Unreachable, InvalidArgument) as error:
            raise Unknown(str(error)) if begun else error from None


def _batches(messages: list[Message], size: int) -> Iterator[list[Message]]:
    return (messages[at : at + size] for at in range(0, len(messages), size))


async def _send_some(producer: Producer, batch: list[Message], key: str | None, timeout_s: float) -> list[SendResult]:
    if len(batch) == 1:
        return [await producer.send(batch[0], key=key, timeout=timeout_s)]
    return await producer.send_batch(batch, key=key, timeout=timeout_s)


def _show(results: Sequence[SendResult], form: str) -> None:
    for result in results:
        queue = result.queue
        if form == "json":
            output.show_json_line(
                {
                    "message_id": result.message_id,
                    "broker": queue.broker_name,
                    "queue": queue.queue_id,
                    "offset": result.queue_offset,
                    "status": result.status.name,
                }
            )
        else:
            place = f"{queue.broker_name}/{queue.queue_id}@{result.queue_offset}"
            click.echo(f"{result.message_id}  {place}  {result.status.name}")

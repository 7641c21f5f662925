"""`rmq msg ...` finds single messages. `rmq admin queryMsgBy...` does the same under mqadmin's names."""

from typing import TypeVar

import click

from rmq.client import Client, ReceivedMessage
from rmq.client.admin import lookups, members
from rmq.client.admin.calls import Silent
from rmq.client.admin.lookups import FOREVER_MS, Hits
from rmq.client.admin.members import Handled
from rmq.codes import ResponseCode
from rmq.commands.shared import asking, exits, options, output
from rmq.commands.views import messageviews
from rmq.errors import InvalidArgument, Refusal
from rmq.model import MessageQueue

T = TypeVar("T")


@click.group()
def msg() -> None:
    """Find messages: by id, key, place or time.

    A message can be found as soon as its send was acknowledged. While a broker still builds its index, or does not answer, the
    result may be incomplete: the command says so and ends with 1.
    """


_begin = click.option(
    "--from",
    "begin",
    callback=options.moment_option,
    metavar="TIME",
    help="Stored at or after this time; 2026-11-21T09:00 or Unix ms.",
)
_end = click.option("--to", "end", callback=options.moment_option, metavar="TIME", help="Stored at or before this time.")
_limit = click.option("-m", "--max", "limit", type=click.IntRange(1, 64), default=64, show_default=True, help="So many.")
_full = click.option("--full", is_flag=True, help="Print all of each message, not one line.")


def _show_one(message: ReceivedMessage, form: str, charset: str = "utf-8") -> None:
    if form == "json":
        output.show_json(messageviews.as_full_json(message))
    else:
        click.echo("\n".join(messageviews.block(message, charset)))


def _show_hits(found: Hits, what: str, form: str, full: bool, charset: str = "utf-8") -> int:
    """Prints them; the exit code."""
    if not found.messages:
        raise Refusal(ResponseCode.QUERY_NOT_FOUND, f"no message with {what}")
    if form == "json":
        rows = [messageviews.as_full_json(message) for message in found.messages]
        output.show_json({"complete": found.complete, "messages": rows})
    elif full:
        click.echo("\n\n".join("\n".join(messageviews.block(message, charset)) for message in found.messages))
    else:
        output.show(messageviews.hits(found.messages), form)
    if not found.complete:
        why = "a broker does not answer, refuses, or is still building its index (ask again later)"
        click.echo(f"rmq: incomplete: {why}, or its log is damaged (`rmq admin brokerStatus`)", err=True)
    return exits.OK if found.complete else exits.FAILED


@msg.command("id")
@click.argument("message_id", metavar="ID")
@click.option(
    "-t", "--topic", default="", metavar="NAME", help="Topic of a unique id; an id with the place in the log needs none."
)
@options.namesrv
@options.timeout
@options.output
def by_id(message_id: str, topic: str, namesrv: str, timeout_s: float, form: str) -> int:
    """Print the message with this ID: a unique id, or an id with the place in the log."""
    return _by_id(message_id, topic, namesrv, timeout_s, form)


def _by_id(message_id: str, topic: str, namesrv: str, timeout_s: float, form: str, charset: str = "utf-8") -> int:
    try:
        lookups.parse_offset_id(message_id)
    except InvalidArgument:
        if not topic:
            raise InvalidArgument(f"{message_id} names no place in a log; for a unique id give the topic too: -t TOPIC") from None
        return _by_unique(topic, message_id, namesrv, timeout_s, form, charset=charset)
    _show_one(asking.run(namesrv, timeout_s, lambda client: lookups.by_offset_id(client, message_id)), form, charset)
    return exits.OK


def _consume(topic: str, message_id: str, member: tuple[str, str], namesrv: str, timeout_s: float, form: str) -> int:
    """The member (group, client id) handles the message now; the exit code."""

    async def work(client: Client) -> Handled:
        try:
            message = await lookups.by_offset_id(client, message_id)
        except InvalidArgument:
            found = await lookups.by_key(client, topic, message_id, unique=True, patience_s=timeout_s)
            if not found.messages:
                raise Refusal(ResponseCode.QUERY_NOT_FOUND, f"no message with id {message_id} in {topic}") from None
            message = found.messages[-1]
        return await members.consume_at(client, *member, message)

    handled = asking.run(namesrv, timeout_s, work)
    if form == "json":
        output.show_json(handled._asdict())
    else:
        about = f"{handled.consume_result} after {handled.spent_time_mills} ms {handled.remark}"
        click.echo(output.plain(about.rstrip()))
    return exits.OK if handled.consume_result in ("CR_SUCCESS", "CR_COMMIT") else exits.FAILED


@msg.command("unique")
@click.argument("topic")
@click.argument("unique_id", metavar="ID")
@options.namesrv
@options.timeout
@options.output
def by_unique(topic: str, unique_id: str, namesrv: str, timeout_s: float, form: str) -> int:
    """Print the message of TOPIC with this unique id, as `rmq send` and every client show it."""
    return _by_unique(topic, unique_id, namesrv, timeout_s, form)


def _by_unique(
    topic: str,
    unique_id: str,
    namesrv: str,
    timeout_s: float,
    form: str,
    *,
    begin: int | None = None,
    end: int | None = None,
    charset: str = "utf-8",
) -> int:
    since, until = begin or 0, FOREVER_MS if end is None else end
    found = asking.run(
        namesrv,
        timeout_s,
        lambda client: lookups.by_key(client, topic, unique_id, begin_ms=since, end_ms=until, unique=True, patience_s=timeout_s),
    )
    return _show_hits(found, f"id {unique_id} in {topic}", form, full=True, charset=charset)


@msg.command("key")
@click.argument("topic")
@click.argument("key")
@click.option("--tag", is_flag=True, help="KEY is a tag.")
@_begin
@_end
@_limit
@_full
@options.namesrv
@options.timeout
@options.output
def by_key(
    topic: str,
    key: str,
    tag: bool,
    begin: int | None,
    end: int | None,
    limit: int,
    full: bool,
    namesrv: str,
    timeout_s: float,
    form: str,
) -> int:
    """Print the newest messages of TOPIC with this KEY, oldest first."""
    found = asking.run(
        namesrv,
        timeout_s,
        lambda client: lookups.by_key(
            client,
            topic,
            key,
            begin_ms=begin or 0,
            end_ms=FOREVER_MS if end is None else end,
            limit=limit,
            tag=tag,
            patience_s=timeout_s,
        ),
    )
    return _show_hits(found, f"{'tag' if tag else 'key'} {key} in {topic}", form, full)


@msg.command("at")
@click.argument("topic")
@click.argument("broker")
@click.argument("queue", type=click.IntRange(min=0))
@click.argument("offset", type=click.IntRange(min=0))
@options.namesrv
@options.timeout
@options.output
def at(topic: str, broker: str, queue: int, offset: int, namesrv: str, timeout_s: float, form: str) -> None:
    """Print the message at OFFSET of a queue of TOPIC at BROKER (its name)."""
    _at(MessageQueue(topic, broker, queue), offset, namesrv, timeout_s, form)


def _at(queue: MessageQueue, offset: int, namesrv: str, timeout_s: float, form: str, charset: str = "utf-8") -> None:
    _show_one(asking.run(namesrv, timeout_s, lambda client: lookups.at(client, queue, offset)), form, charset)


@msg.command("print")
@click.argument("topic")
@_begin
@_end
@click.option("-q", "--queue", type=click.IntRange(min=0), help="Only this queue of every broker.")
@click.option("-m", "--max", "limit", type=click.IntRange(min=1), help="Stop after this many.")
@options.namesrv
@options.timeout
@click.option(
    "-o",
    "--output",
    "form",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="One line per message, or one JSON object per line.",
)
def print_messages(
    topic: str,
    begin: int | None,
    end: int | None,
    queue: int | None,
    limit: int | None,
    namesrv: str,
    timeout_s: float,
    form: str,
) -> int:
    """Print the stored messages of TOPIC, queue by queue, in the order in which they were stored."""

    silent: Silent = {}

    async def work(client: Client) -> None:
        left, until = limit, FOREVER_MS if end is None else end
        found = lookups.between(client, topic, begin_ms=begin or 0, end_ms=until, queue_id=queue, silent=silent)
        async for message in found:
            if form == "json":
                output.show_json_line(messageviews.as_full_json(message))
            else:
                click.echo(messageviews.line(message))
            left = None if left is None else left - 1
            if left == 0:
                return

    asking.run(namesrv, timeout_s, work)
    return asking.incomplete(silent)


# --- mqadmin's names --------------------------------------------------------------------------------------------------

_topic = click.option("-t", "--topic", required=True, metavar="NAME")
_id = click.option("-i", "--msg-id", "message_id", required=True, metavar="ID")
_to_group = click.option(
    "-g", "--consumer-group", "group", default="", metavar="NAME", help="With -d: a member of this group handles the message now."
)
_to_client = click.option("-d", "--client-id", "client_id", default="", metavar="ID", help="The member of the group.")


def _known_charset(_: click.Context, __: click.Parameter, value: str) -> str:
    try:
        b"\xff".decode(value, "replace")
    except (LookupError, ValueError) as error:
        raise click.BadParameter(f"{value!r} is no character set that Python knows, as gbk or latin-1") from error
    return value


_charset = click.option(
    "-f",
    "--body-format",
    "charset",
    default="utf-8",
    show_default=True,
    callback=_known_charset,
    metavar="CHARSET",
    help="Of the body.",
)


def _is_given(group: str, client_id: str) -> bool:
    if bool(group) != bool(client_id):
        raise click.UsageError("to have a member handle the message give both -g GROUP and -d CLIENT_ID")
    return bool(group)


@click.command("queryMsgById")
@options.namesrv
@_id
@click.option("-t", "--topic", default="", metavar="NAME", help="Topic of a unique id.")
@_to_group
@_to_client
@_charset
@options.route_tells
@options.timeout
@options.output
def query_by_id(
    namesrv: str, message_id: str, topic: str, group: str, client_id: str, charset: str, timeout_s: float, form: str
) -> int:
    """Find a message by its id: a unique id, or an id with the place in the log."""
    if _is_given(group, client_id):
        return _consume(topic, message_id, (group, client_id), namesrv, timeout_s, form)
    return _by_id(message_id, topic, namesrv, timeout_s, form, charset)


@click.command("queryMsgByUniqueKey")
@options.namesrv
@_id
@_topic
@_to_group
@_to_client
@click.option("-s", "--start-time", "begin", callback=options.moment_option, metavar="TIME", help="Stored at or after this time.")
@click.option("-e", "--end-time", "end", callback=options.moment_option, metavar="TIME", help="Stored at or before this time.")
@click.option("-a", "--show-all", is_flag=True, hidden=True, expose_value=False, help="mqadmin has it; all are shown always.")
@options.route_tells
@options.timeout
@options.output
def query_by_unique_key(
    namesrv: str,
    message_id: str,
    topic: str,
    group: str,
    client_id: str,
    begin: int | None,
    end: int | None,
    timeout_s: float,
    form: str,
) -> int:
    """Find a message by its unique id."""
    if _is_given(group, client_id):
        return _consume(topic, message_id, (group, client_id), namesrv, timeout_s, form)
    return _by_unique(topic, message_id, namesrv, timeout_s, form, begin=begin, end=end)


@click.command("queryMsgByKey")
@options.namesrv
@_topic
@click.option("-k", "--msg-key", "key", required=True, metavar="KEY")
@click.option(
    "-b", "--begin-timestamp", "begin", callback=options.moment_option, metavar="TIME", help="Stored at or after this time."
)
@click.option(
    "-e", "--end-timestamp", "end", callback=options.moment_option, metavar="TIME", help="Stored at or before this time."
)
@click.option("-m", "--max-num", "limit", type=click.IntRange(1, 64), default=64, show_default=True)
@click.option("-p", "--key-type", type=click.Choice(["K", "T"]), default="K", show_default=True, help="K: a key; T: a tag.")
@options.route_tells
@options.timeout
@options.output
@click.pass_context
def query_by_key(context: click.Context, /, key_type: str, **given: object) -> int:
    """Find messages by a key."""
    result: int = context.invoke(by_key, tag=key_type == "T", full=False, **given)
    return result


@click.command("queryMsgByOffset")
@options.namesrv
@_topic
@click.option("-b", "--broker-name", "broker", required=True, metavar="NAME")
@click.option("-i", "--queue-id", "queue", required=True, type=click.IntRange(min=0))
@click.option("--offset", required=True, type=click.IntRange(min=0), help="mqadmin's -o.")
@_charset
@options.timeout
@options.output
def query_by_offset(
    namesrv: str, topic: str, broker: str, queue: int, offset: int, charset: str, timeout_s: float, form: str
) -> None:
    """Find a message by its queue offset."""
    _at(MessageQueue(topic, broker, queue), offset, namesrv, timeout_s, form, charset)

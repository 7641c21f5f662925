"""`rmq admin` for transactions: parked halves are checked again."""

import click

from rmq.client.admin import pending
from rmq.commands.shared import asking, options


@click.command("resumeCheckHalfMessage")
@options.namesrv
@click.option("-i", "--msgId", "message_id", required=True, metavar="ID", help="The id with the place in the log, in that topic.")
@options.timeout
def resume_check(namesrv: str, message_id: str, timeout_s: float) -> None:
    """Check a transaction again that was not ended in time and was moved to TRANS_CHECK_MAX_TIME_TOPIC.

    It becomes a half message again: its producers are asked from the start, and may commit it. The moved message stays.
    """
    asking.run(namesrv, timeout_s, lambda client: pending.resume_check(client, message_id))
    click.echo(f"{message_id} is asked after again")

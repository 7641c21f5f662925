"""`rmq admin` for transactions: what was put aside is begun anew."""

import click

from rmq.client.admin import pending
from rmq.commands.shared import asking, options


@click.command("resumeCheckHalfMessage")
@options.namesrv
@click.option("-i", "--msgId", "message_id", required=True, metavar="ID", help="Its id with the place in the log, of that topic.")
@options.timeout
def resume_check(namesrv: str, message_id: str, timeout_s: float) -> None:
    """Ask again after a transaction that nobody ended in time, and that lies in TRANS_CHECK_MAX_TIME_TOPIC.

    It is a half message again: its producers are asked from the start, and may commit it. The message there stays.
    """
    asking.run(namesrv, timeout_s, lambda client: pending.resume_check(client, message_id))
    click.echo(f"{message_id} is asked after again")

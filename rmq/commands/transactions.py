"""`rmq admin` for transactions: what was put aside is begun anew."""

import click

from rmq.client import Client
from rmq.client.admin import lookups
from rmq.commands import asking, options
from rmq.delivery.transactions import PARKED_TOPIC
from rmq.net.commands.transactions import ResumeCheck


@click.command("resumeCheckHalfMessage")
@options.namesrv
@click.option("-i", "--msgId", "message_id", required=True, metavar="ID", help="Its id with the place in the log, of that topic.")
@options.timeout
def resume_check(namesrv: str, message_id: str, timeout_s: float) -> None:
    """Ask again after a transaction that nobody ended in time, and that lies in TRANS_CHECK_MAX_TIME_TOPIC.

    It is a half message again: its producers are asked from the start, and may commit it. The message there stays.
    """
    address = lookups.parse_offset_id(message_id).address

    async def work(client: Client) -> None:
        await client.session.leaders.request_from(address, ResumeCheck(PARKED_TOPIC, message_id))

    asking.run(namesrv, timeout_s, work)
    click.echo(f"{message_id} is asked after again")

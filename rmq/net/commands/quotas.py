"""Commands about quotas; RocketMQ has none. Pure."""

from typing import NamedTuple

from rmq.codes import RequestCode
from rmq.net.commands.vocabulary import command


class QuotaRow(NamedTuple):
    """`subject`: User:NAME, Client:ID, Client:ADDRESS, Topic:NAME, or * for each that has no quota of its own. 0: no limit. The
    first four limits: in a second, at each broker group. `topics`, `groups`: that it has made, and that are still there."""

    subject: str
    bytes_in: int = 0
    bytes_out: int = 0
    messages_in: int = 0
    messages_out: int = 0
    connections: int = 0
    topics: int = 0
    groups: int = 0


class QuotaRows(NamedTuple):
    quotas: list[QuotaRow]


@command(RequestCode.SET_QUOTA, None)
class SetQuota(NamedTuple):
    """In the place of what the subject had."""

    quota: QuotaRow


@command(RequestCode.DELETE_QUOTA, None)
class DeleteQuota(NamedTuple):
    """Deleting what is not there is no error."""

    subject: str


@command(RequestCode.LIST_QUOTAS, QuotaRows)
class ListQuotas(NamedTuple):
    """`filter`: part of the subject."""

    filter: str = ""

"""What a deletion will not find. To delete it again is no failure, but whoever mistyped the name should see it.

Every function tells the nodes that say that they do not have it: where that cannot be asked, it may be there.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from rmq.client.client import Client
from rmq.codes import ResponseCode
from rmq.errors import Refusal, RmqError
from rmq.net.commands import GetAllGroupConfig, GetTopicConfig, Request
from rmq.net.commands.access import GetAcl, GetUser
from rmq.net.commands.quotas import ListQuotas

_ABSENT = (ResponseCode.TOPIC_NOT_EXIST, ResponseCode.USER_NOT_EXIST, ResponseCode.POLICY_NOT_EXIST)


async def topic(client: Client, name: str, addresses: Sequence[str]) -> set[str]:
    return await _lacking(client, addresses, GetTopicConfig(name))


async def group(client: Client, name: str, addresses: Sequence[str]) -> set[str]:
    return await _lacking(
        client, addresses, GetAllGroupConfig(), lambda answer: any(config.name == name for config in answer.groups)
    )


async def user(client: Client, name: str, addresses: Sequence[str]) -> set[str]:
    return await _lacking(client, addresses, GetUser(name))


async def policy(client: Client, subject: str, resource: str, addresses: Sequence[str]) -> set[str]:
    """`resource`: its entry for that one; "": any."""

    def has(answer: Any) -> bool:
        return any(resource in ("", entry.resource) for each in answer.policies for entry in each.entries)

    return await _lacking(client, addresses, GetAcl(subject), has)


async def quota(client: Client, subject: str, addresses: Sequence[str]) -> set[str]:
    return await _lacking(client, addresses, ListQuotas(subject), lambda answer: any(row[0] == subject for row in answer.quotas))


async def _lacking(
    client: Client, addresses: Sequence[str], question: Request, has: Callable[[Any], bool] = lambda _answer: True
) -> set[str]:
    async def lacks(address: str) -> bool:
        try:
            return not has(await client.session.leaders.request_from(address, question))
        except RmqError as error:
            return isinstance(error, Refusal) and error.code in _ABSENT

    answers = await asyncio.gather(*map(lacks, addresses))
    return {address for address, lacking in zip(addresses, answers, strict=True) if lacking}

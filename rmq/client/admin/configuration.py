"""Settings of brokers and nameservers while they run, and what nameservers keep for administrators.

Every function raises Refusal (with the key), Unreachable or Unknown; with several nodes, the first failure after all
were asked.
"""

from collections.abc import Sequence
from functools import partial

from rmq.client.admin.calls import at_each
from rmq.client.client import Client
from rmq.codes import ResponseCode
from rmq.errors import Refusal
from rmq.net.commands import Answer, DeleteSetting, Request
from rmq.net.commands.configuration import (
    ConfigChanged,
    ConfigText,
    GetBrokerConfig,
    GetNameserverConfig,
    UpdateBrokerConfig,
    UpdateNameserverConfig,
)
from rmq.net.commands.registration import GetSetting, PutSetting, SettingValue
from rmq.routing.kept import ORDER_NAMESPACE


async def broker_config(client: Client, address: str) -> dict[str, str]:
    """The settings in force there, by RocketMQ's keys."""
    return _table(await client.session.connections.request(address, GetBrokerConfig()))


async def nameserver_config(client: Client, address: str) -> dict[str, str]:
    return _table(await client.session.connections.request(address, GetNameserverConfig()))


async def update_broker(client: Client, addresses: Sequence[str], key: str, value: str) -> list[str]:
    """Changes one setting of these nodes. Returns what each says about it, "" for nothing."""
    return [_about(each) for each in await _each(client, addresses, UpdateBrokerConfig(f"{key}={value}"))]


async def update_nameservers(client: Client, key: str, value: str) -> list[str]:
    """Changes one setting of every nameserver."""
    return [_about(each) for each in await _all(client, UpdateNameserverConfig(f"{key}={value}"))]


async def put(client: Client, namespace: str, key: str, value: str) -> None:
    """Stores the value at every nameserver."""
    await _all(client, PutSetting(namespace, key, value))


async def delete(client: Client, namespace: str, key: str) -> None:
    await _all(client, DeleteSetting(namespace, key))


async def get(client: Client, namespace: str, key: str) -> str | None:
    """The value at the first nameserver that answers; None if it has none."""
    try:
        answer = await client.session.nameservers.ask(GetSetting(namespace, key))
    except Refusal as refusal:
        if refusal.code == ResponseCode.QUERY_NOT_FOUND:
            return None
        raise
    assert isinstance(answer, SettingValue)
    return answer.value


def _table(answer: Answer) -> dict[str, str]:
    assert isinstance(answer, ConfigText)
    pairs = (line.partition("=") for line in answer.text.splitlines())
    return {key: value for key, _, value in pairs}


def _about(answer: Answer) -> str:
    assert isinstance(answer, ConfigChanged)
    return answer.about


async def _all(client: Client, request: Request) -> list[Answer]:
    return await _each(client, client.session.nameservers.addresses, request)


async def _each(client: Client, addresses: Sequence[str], request: Request) -> list[Answer]:
    return await at_each(addresses, partial(client.session.connections.request, request=request))


__all__ = [
    "ORDER_NAMESPACE",
    "broker_config",
    "delete",
    "get",
    "nameserver_config",
    "put",
    "update_broker",
    "update_nameservers",
]

"""What administrators ask about lite topics: the leader of each broker group of a topic, or one broker.

Every function raises Refusal (with the reason), Unreachable or Unknown.
"""

from typing import Any

from rmq.client.admin.calls import ask_each, broker_addresses, change_each, leading, topic_route
from rmq.client.client import Client
from rmq.net.commands.lites import (
    BrokerLiteInfo,
    GetBrokerLiteInfo,
    GetLiteClientInfo,
    GetLiteGroupInfo,
    GetLiteTopicInfo,
    GetParentTopicInfo,
    LiteClientInfo,
    LiteGroupInfo,
    LiteRequest,
    LiteTopicInfo,
    ParentTopicInfo,
    TriggerLiteDispatch,
)


async def brokers(client: Client, *, cluster: str = "", broker: str = "") -> dict[str, BrokerLiteInfo]:
    """By address."""
    addresses = await broker_addresses(client, cluster=cluster, broker=broker)
    answers: list[Any] = await ask_each(client, addresses, GetBrokerLiteInfo())
    return dict(zip(addresses, answers, strict=True))


async def parent_topic(client: Client, topic: str) -> dict[str, ParentTopicInfo]:
    """By broker name, as the others."""
    return await _at_brokers(client, topic, GetParentTopicInfo(topic))


async def lite_topic(client: Client, topic: str, lite: str) -> dict[str, LiteTopicInfo]:
    return await _at_brokers(client, topic, GetLiteTopicInfo(topic, lite))


async def lite_client(client: Client, topic: str, group: str, client_id: str) -> dict[str, LiteClientInfo]:
    return await _at_brokers(client, topic, GetLiteClientInfo(topic, group, client_id))


async def lite_group(client: Client, topic: str, group: str, lite: str = "", most: int = 20) -> dict[str, LiteGroupInfo]:
    """How far the group is in one lite topic, or in which ("") it is furthest behind: `most` at each broker."""
    return await _at_brokers(client, topic, GetLiteGroupInfo(group, lite, most))


async def trigger(client: Client, topic: str, group: str, client_id: str = "", broker: str = "") -> list[str]:
    """Has clients of the group look for what they may have missed; the brokers that do it."""
    places = await _places(client, topic, broker)
    await change_each(client, places.values(), TriggerLiteDispatch(group, client_id))
    return list(places)


async def _at_brokers(client: Client, topic: str, request: LiteRequest) -> dict[str, Any]:
    places = await _places(client, topic)
    return dict(zip(places, await ask_each(client, places.values(), request), strict=True))


async def _places(client: Client, topic: str, broker: str = "") -> dict[str, str]:
    route = await topic_route(client, topic)
    return {group.name: leading(group) for group in route.brokers if broker in ("", group.name)}

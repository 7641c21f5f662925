"""What administrators ask about lite topics: the leader of each broker group of a topic, or one broker. `silent`: as in `calls`.

Every function raises Refusal (with the reason), Unreachable or Unknown.
"""

from collections.abc import Mapping
from typing import Any

from rmq.client.admin.calls import Silent, broker_addresses, change_each, leading, of_each, topic_route
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


async def brokers(
    client: Client, *, cluster: str = "", broker: str = "", silent: Silent | None = None
) -> dict[str, BrokerLiteInfo]:
    """By address."""
    addresses = await broker_addresses(client, cluster=cluster, broker=broker)
    return await _at(client, {address: address for address in addresses}, GetBrokerLiteInfo(), silent)


async def parent_topic(client: Client, topic: str, silent: Silent | None = None) -> dict[str, ParentTopicInfo]:
    """By broker name, as the others."""
    return await _at(client, await _places(client, topic), GetParentTopicInfo(topic), silent)


async def lite_topic(client: Client, topic: str, lite: str, silent: Silent | None = None) -> dict[str, LiteTopicInfo]:
    return await _at(client, await _places(client, topic), GetLiteTopicInfo(topic, lite), silent)


async def lite_client(
    client: Client, topic: str, group: str, client_id: str, silent: Silent | None = None
) -> dict[str, LiteClientInfo]:
    return await _at(client, await _places(client, topic), GetLiteClientInfo(topic, group, client_id), silent)


async def lite_group(
    client: Client, topic: str, group: str, lite: str = "", most: int = 20, silent: Silent | None = None
) -> dict[str, LiteGroupInfo]:
    """How far the group is in one lite topic, or in which ("") it is furthest behind: `most` at each broker."""
    return await _at(client, await _places(client, topic), GetLiteGroupInfo(group, lite, most), silent)


async def trigger(client: Client, topic: str, group: str, client_id: str = "", broker: str = "") -> list[str]:
    """Has clients of the group look for what they may have missed; the brokers that do it."""
    places = await _places(client, topic, broker)
    await change_each(client, places.values(), TriggerLiteDispatch(group, client_id))
    return list(places)


async def _at(client: Client, places: Mapping[str, str], request: LiteRequest, silent: Silent | None) -> dict[str, Any]:
    async def ask(place: str) -> Any:
        return await client.session.leaders.request_from(places[place], request)

    return await of_each(places, ask, silent)


async def _places(client: Client, topic: str, broker: str = "") -> dict[str, str]:
    route = await topic_route(client, topic)
    return {group.name: leading(group) for group in route.brokers if broker in ("", group.name)}

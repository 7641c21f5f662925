"""Topics and consumer groups from files, as mqadmin takes them.

Every function returns the names in the file and the brokers' addresses. Raises InvalidArgument for a file that holds something
else; Refusal (with the reason), Unreachable or Unknown; of several brokers, the first failure.
"""

from collections.abc import Callable
from typing import TypeVar

import orjson

from rmq.client.admin.calls import broker_addresses, change_each
from rmq.client.client import Client
from rmq.errors import InvalidArgument, Refusal
from rmq.net.commands.groups import UpdateGroups
from rmq.net.commands.topics import UpdateTopics
from rmq.net.remoting.headers import Ext
from rmq.net.remoting.requestbodies import read_groups, read_topics

R = TypeVar("R", UpdateTopics, UpdateGroups)


async def update_topics(client: Client, text: bytes, *, cluster: str = "", broker: str = "") -> tuple[list[str], list[str]]:
    """Makes or changes all topics of a JSON array of TopicConfig, or of what exportMetadata wrote, at each broker all or none.
    [UpdateTopicListSubCommand]"""
    request = _read(read_topics, "topics", b'{"topicConfigList":%b}' % _listed(text, "topicConfigTable"))
    return [topic.name for topic in request.topics], await _update(client, request, cluster, broker)


async def update_groups(client: Client, text: bytes, *, cluster: str = "", broker: str = "") -> tuple[list[str], list[str]]:
    """The same for groups, and SubscriptionGroupConfig. [UpdateSubGroupListSubCommand]"""
    request = _read(read_groups, "groups", b'{"groupConfigList":%b}' % _listed(text, "subscriptionGroupTable"))
    return [group.name for group in request.groups], await _update(client, request, cluster, broker)


def _listed(text: bytes, table: str) -> bytes:
    """The values of an exported table as an array, their attributes to be set; anything else as it is."""
    try:
        values = list(orjson.loads(text)[table].values())
        rows = [row | {"attributes": {f"+{key}": value for key, value in row.get("attributes", {}).items()}} for row in values]
    except (orjson.JSONDecodeError, LookupError, TypeError, AttributeError):
        return text
    return orjson.dumps(rows)


def _read(read: Callable[[Ext, bytes], R], what: str, body: bytes) -> R:
    try:
        return read({}, body)
    except Refusal as refusal:
        raise InvalidArgument(f"no JSON array of {what}: {refusal.remark}") from refusal


async def _update(client: Client, request: UpdateTopics | UpdateGroups, cluster: str, broker: str) -> list[str]:
    addresses = await broker_addresses(client, cluster=cluster, broker=broker)
    await change_each(client, addresses, request)
    return addresses

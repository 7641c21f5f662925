"""What a broker asks one member of a consumer group for us. [consumerStatus, consumeMessageDirectly]

Every function raises Refusal (nobody of that name is connected, or it does not answer), Unreachable, Unknown.
"""

from collections.abc import Mapping
from typing import Final

from rmq.client.admin.calls import (
    Silent,
    ask_any,
    broker_addresses,
    consumer_connection,
    group_addresses,
    leaders,
    topic_route,
)
from rmq.client.client import Client
from rmq.client.shared.message import ReceivedMessage
from rmq.client.shared.nameservers import is_address
from rmq.client.shared.routes import find
from rmq.client.shared.tasks import some_at_a_time
from rmq.errors import RmqError, Unknown, Unreachable
from rmq.log.records.properties import is_number
from rmq.model import ConnectionInfo, MessageQueue
from rmq.net.commands.clients import GetProducerConnection, ProducerConnection
from rmq.net.commands.questions import ClientReport, ConsumeDirectly, GetRunningInfo
from rmq.net.commands.reports import NOW_MS, Handled, RunningInfo
from rmq.net.remoting.reports import read_handled, read_running

_ANSWER_S: Final = 12.0  # a broker waits 10 s for a client
_BLOCKED_MS: Final = 60_000  # [ConsumerRunningInfo.analyzeProcessQueue]
_AT_ONCE: Final = 16


async def running(client: Client, group: str, client_id: str, address: str, *, stacks: bool = False) -> RunningInfo:
    """The state of that member, as it says itself. `address`: a broker that it is connected to. `stacks`: includes what its
    threads and tasks do. Raises BadBytes as well."""
    request = GetRunningInfo(group, client_id, stacks)
    answer = await client.session.leaders.request_from(address, request, _ANSWER_S)
    assert isinstance(answer, ClientReport)
    return read_running(answer.report)


async def all_running(
    client: Client, group: str, *, only: str = "", stacks: bool = False, broker: str = "", silent: Silent | None = None
) -> tuple[dict[str, RunningInfo], dict[str, str]]:
    """The states of all members, or of the `only` one, by client id; and why the others did not answer. `broker`: the only one
    that is asked, a name or "host:port". `silent`: as in `calls`. Refusal(CONSUMER_NOT_ONLINE) if there are none."""
    connected = await consumer_connection(client, group, broker, silent)
    members = [one.client_id for one in connected.connections if only in ("", one.client_id)]
    addresses = await _asked(client, group, broker)
    still = {at: str(why) for at, why in (silent or {}).items()}  # gave no answer: each further question might wait as long

    async def one(client_id: str) -> RunningInfo | str:
        trouble = ""
        for address in addresses:
            if address in still:
                trouble = trouble or still[address]
                continue
            try:
                return await running(client, group, client_id, address, stacks=stacks)
            except RmqError as error:
                trouble = str(error)
                if isinstance(error, Unreachable | Unknown):
                    still[address] = trouble
        return trouble

    answers = dict(zip(members, await some_at_a_time(_AT_ONCE, one, members), strict=True))
    found = {name: answer for name, answer in answers.items() if isinstance(answer, RunningInfo)}
    return found, {name: answer for name, answer in answers.items() if isinstance(answer, str)}


async def _asked(client: Client, group: str, broker: str) -> list[str]:
    return await broker_addresses(client, broker=broker) if broker else await group_addresses(client, group)


def troubles(infos: Mapping[str, RunningInfo], now_ms: int) -> list[str]:
    """What is wrong among the members of a group: subscriptions that differ, and what is `stuck`.
    [ConsumerRunningInfo.analyzeSubscription]"""
    wanted = {name: {one.topic: one.expression for one in info.subscriptions} for name, info in infos.items()}
    first = next(iter(wanted), "")
    found = [f"{name} subscribes to other topics or tags than {first}" for name in wanted if wanted[name] != wanted[first]]
    return found + stuck(infos, now_ms)


def stuck(infos: Mapping[str, RunningInfo], now_ms: int) -> list[str]:
    """Queues that two members hold, and messages that wait for a handler for over a minute. `now_ms`: for members that do not say
    what their own clock shows. [ConsumerRunningInfo.analyzeRebalance, analyzeProcessQueue]"""
    found: list[str] = []
    holders: dict[MessageQueue, str] = {}
    for name, info in infos.items():
        if info.properties.get("messageModel") == "BROADCASTING":
            continue
        clock = info.properties.get(NOW_MS, "")
        its_ms = int(clock) if is_number(clock) else now_ms
        for queue, held in info.queues.items():
            if queue in holders:
                found.append(f"{queue.topic}/{queue.broker_name}/{queue.queue_id} is held by {holders[queue]} and {name}")
            holders[queue] = name
            waits_ms = its_ms - held.last_consume_timestamp
            if held.cached_msg_count and held.last_consume_timestamp and waits_ms > _BLOCKED_MS:
                about = f"{held.cached_msg_count} messages, and handled none for {waits_ms // 1000} s"
                found.append(f"{name} has of {queue.topic}/{queue.broker_name}/{queue.queue_id} {about}")
    return found


async def consume_at(client: Client, group: str, client_id: str, message: ReceivedMessage) -> Handled:
    """That member handles the message now. No offset moves, and a failed message does not come again. Raises BadBytes as well."""
    address = message.queue.broker_name  # of one that was found by its place in a log
    if not is_address(address):
        await find(client.session.routes, address, message.queue.topic)
        address = client.session.routes.leader(address)
    request = ConsumeDirectly(group, client_id, message.offset_message_id, message.topic)
    answer = await client.session.leaders.request_from(address, request, _ANSWER_S)
    assert isinstance(answer, ClientReport)
    return read_handled(answer.report)


async def producers(client: Client, group: str, topic: str) -> list[ConnectionInfo]:
    """Connected producers of that group at the brokers of the topic; one that does not answer matters only where no other one has
    any. Refusal (SYSTEM_ERROR) if there are none."""
    answers = await ask_any(client, leaders(await topic_route(client, topic)), GetProducerConnection(group))
    return sorted({one for each in answers if isinstance(each, ProducerConnection) for one in each.connections})


__all__ = ["Handled", "RunningInfo", "all_running", "consume_at", "producers", "running", "stuck", "troubles"]

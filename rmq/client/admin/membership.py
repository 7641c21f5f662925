"""Why a member of a group may get no messages: it goes on trying, as it has to, and a command with an end should say it."""

from rmq.client.client import Client
from rmq.client.consumer.offsets import BrokerOffsets
from rmq.codes import ResponseCode
from rmq.errors import Refusal
from rmq.net.commands import ConsumerList, GetConsumerList
from rmq.routing.choose import readable_queues


async def check_member(client: Client, group: str, topic: str) -> None:
    """Raises RmqError: what a broker of the topic has against this client as a member of the group."""
    session = client.session
    queues = {queue.broker_name: queue for queue in readable_queues(await session.routes.get(topic), topic)}
    for name, queue in queues.items():
        await BrokerOffsets(group, session, False).load(queue)
        members, _ = await session.leaders.read(name, GetConsumerList(group), session.settings.request_timeout_s)
        if isinstance(members, Refusal):
            raise members
        if isinstance(members, ConsumerList) and session.client_id not in members.client_ids:
            raise Refusal(ResponseCode.CONSUMER_NOT_ONLINE, f"{name} does not take this member of {group}; its log says why")

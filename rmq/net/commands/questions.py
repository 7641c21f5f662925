"""What a broker asks its clients on behalf of tools: most go both ways, to the broker and from it to the client. Pure."""

from typing import NamedTuple

from rmq.codes import RequestCode
from rmq.net.commands.resets import QueueOffset
from rmq.net.commands.vocabulary import command


class ClientReport(NamedTuple):
    """What the client says, in the JSON of RocketMQ's clients; the broker hands it on as it came."""

    report: bytes


@command(RequestCode.GET_CONSUMER_RUNNING_INFO, ClientReport)
class GetRunningInfo(NamedTuple):
    """How a member of the group is doing [ConsumerRunningInfo]. `jstack_enable`: with the stacks of its threads and tasks.

    SYSTEM_ERROR: it is not connected; CONSUME_MSG_TIMEOUT: no answer within 10 s.
    """

    consumer_group: str
    client_id: str
    jstack_enable: bool = False


@command(RequestCode.CONSUME_MESSAGE_DIRECTLY, ClientReport)
class ConsumeDirectly(NamedTuple):
    """A member of the group handles this message now; no offset moves [ConsumeMessageDirectlyResult].

    `msg_id`: made of its place. `topic` "" allows any; what follows it is filled in by the broker. Refused as `GetRunningInfo`.
    """

    consumer_group: str
    client_id: str = ""
    msg_id: str = ""
    topic: str = ""
    broker_name: str = ""
    topic_sys_flag: int = 0
    group_sys_flag: int = 0
    message: bytes = b""


@command(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, ClientReport)
class GetHeldOffsets(NamedTuple):
    """Broker to client: how far it is in the queues of the topic that it holds [GetConsumerStatusBody]."""

    topic: str
    group: str
    client_addr: str = ""


class MemberOffsets(NamedTuple):
    """By client id."""

    members: dict[str, list[QueueOffset]]


@command(RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, MemberOffsets)
class GetMemberOffsets(NamedTuple):
    """How far each member is in the queues that it holds, as it says itself; who does not answer is left out.

    `client_addr`: the id of the only member to be asked. SYSTEM_ERROR: nobody of the group is connected.
    """

    topic: str
    group: str
    client_addr: str = ""


QuestionRequest = GetRunningInfo | ConsumeDirectly | GetHeldOffsets | GetMemberOffsets
QuestionAnswer = ClientReport | MemberOffsets

"""The command that takes a timed message back before it is due. Native and remoting codec. Pure."""

from typing import NamedTuple

from rmq.codes import RequestCode
from rmq.net.commands.vocabulary import command


class RecallAnswer(NamedTuple):
    """The unique id of the message that will not be delivered."""

    msg_id: str


@command(RequestCode.RECALL_MESSAGE, RecallAnswer)
class Recall(NamedTuple):
    """`recall_handle`: as the answer to the send told it. ILLEGAL_OPERATION when it is none of this topic's."""

    topic: str
    recall_handle: str
    producer_group: str = ""


TimerRequest = Recall
TimerAnswer = RecallAnswer

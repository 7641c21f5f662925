"""The command that takes a timed message back before it is due. Native and remoting codec. Pure."""

import base64
import binascii
from typing import Final, NamedTuple

from rmq.codes import RequestCode
from rmq.net.commands.vocabulary import command

_MAX_HANDLE: Final = 1024


class Handle(NamedTuple):
    """What a recall handle names: the message, and the broker where it waits [RecallMessageHandle]."""

    topic: str
    broker_name: str
    deliver_ms: int
    unique_key: str


def read_handle(handle: str) -> Handle | None:
    """None: it is no handle."""
    try:
        text = base64.urlsafe_b64decode(handle[:_MAX_HANDLE].encode()).decode()
        version, topic, broker_name, deliver_ms, key = text.split(" ")
        if version == "v1" and deliver_ms.isdecimal() and len(deliver_ms) < 16 and "\x01" not in key and "\x02" not in key:
            return Handle(topic, broker_name, int(deliver_ms), key)
    except (binascii.Error, ValueError):
        pass
    return None


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

"""The command by which a consumer gives a message back. Native and remoting codec. Pure."""

from typing import NamedTuple

from rmq.codes import RequestCode
from rmq.net.commands.vocabulary import command


@command(RequestCode.CONSUMER_SEND_MSG_BACK, None)
class SendBack(NamedTuple):
    """The message at this offset of the log was not consumed: the group shall get it once more, later.

    `delay_level`: how much later (1 to 18, or the last of the broker's list), 0: the longer the more often it failed, below 0:
    never, it is a dead letter now. `max_reconsume_times`: how often it may come again, below 0: as the group's settings say.
    Answered when it is committed.
    """

    offset: int
    group: str
    delay_level: int
    origin_msg_id: str = ""
    origin_topic: str = ""
    unit_mode: bool = False
    max_reconsume_times: int = -1


RetryRequest = SendBack

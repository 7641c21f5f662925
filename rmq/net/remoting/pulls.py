"""Writes answers to pulls. Pure."""

from functools import lru_cache

from rmq.net.commands import PullAnswer
from rmq.net.remoting.headers import ANSWER_FLAG, Ext, write

_NUMBERS_AT = 8  # behind the two lengths of a frame


def pull_ext(answer: PullAnswer) -> Ext:
    """The text fields of such an answer."""
    return _ext(*map(str, (answer.suggest_which_broker_id, *answer[:3])))


def _ext(suggested: str, next_offset: str, low: str, high: str) -> Ext:
    return {
        "suggestWhichBrokerId": suggested,
        "nextBeginOffset": next_offset,
        "minOffset": low,
        "maxOffset": high,
        "topicSysFlag": "0",
        "groupSysFlag": "0",
    }


def answer_head(call_id: int, answer: PullAnswer, remark: str) -> bytes:
    """The frame of an answer in JSON up to its messages."""
    next_offset, low, high, messages, status, suggested = answer
    text = _form(status, suggested, remark) % (next_offset, low, high, call_id)
    size = len(text)
    return (4 + size + len(messages) << 32 | size).to_bytes(8, "big") + text


@lru_cache(maxsize=256)
def _form(status: int, suggested: int, remark: str) -> bytes:
    """The header of such answers, with places for offsets and id."""
    text = write(False, status, ANSWER_FLAG, 0, remark.replace("%", "%%"), _ext(str(suggested), "%d", "%d", "%d"))[_NUMBERS_AT:]
    return text.replace(b'"opaque":0', b'"opaque":%d', 1)

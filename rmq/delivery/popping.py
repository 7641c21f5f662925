"""Texts of POP: receipt handles, and lists that tell a client which message belongs to which receipt [ExtraInfoUtil]."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import NamedTuple

from rmq.codes import ResponseCode
from rmq.errors import Refusal
from rmq.model import RETRY_PREFIX

MAX_MESSAGES = 32  # messages of one pop, and so of one receipt
MAX_POLL_S = 60.0
MAX_INVISIBLE_MS = 3 * 24 * 3600 * 1000  # [timerMaxDelaySec]
MAX_ATTEMPT_LENGTH = 255  # of an id; each queue keeps that of the attempt that has its messages
ORDERED = 999  # reviveQid in handles of ordered pops, which have no receipt [KeyBuilder.POP_ORDER_REVIVE_QUEUE]
_KEPT_RECEIPTS, _KEPT_CHARACTERS = 256, 512  # what is read once, and of what length: half of it may be a broker's name
NORMAL, RETRY_V1, RETRY_V2 = "0", "1", "2"


def check_attempt(attempt: str) -> None:
    """The id by which a client knows that it repeats a pop. Raises Refusal (INVALID_PARAMETER)."""
    if len(attempt) > MAX_ATTEMPT_LENGTH:
        about = f"attempt id of {len(attempt)} characters: at most {MAX_ATTEMPT_LENGTH} are allowed"
        raise Refusal(ResponseCode.INVALID_PARAMETER, about)


class Handle(NamedTuple):
    """The receipt handle by which a client acknowledges a message [POP_CK]."""

    start: int
    pop_time: int
    invisible_ms: int
    revive_queue: int
    retry: str
    broker_name: str
    queue_id: int
    queue_offset: int

    def text(self) -> str:
        return " ".join(map(str, self))


def parse_handle(text: str) -> Handle:
    """A handle from its text; ignores the ninth word of newer brokers. Raises Refusal (SYSTEM_ERROR) if it is no handle."""
    words = text.split(" ")
    try:
        start, pop_time, invisible, revive, retry, broker_name, queue_id, queue_offset = words[:8]
        return Handle(
            int(start), int(pop_time), int(invisible), int(revive), retry, broker_name, int(queue_id), int(queue_offset)
        )  # fmt: skip
    except ValueError as error:
        about = f"{text[:80]!r} is no receipt of a pop: give back what came with the message"
        raise Refusal(ResponseCode.SYSTEM_ERROR, about) from error


def receipt_in(text: str) -> tuple[int, int, int]:
    """Start, pop time and revive queue of a handle. Those of one receipt, which come in crowds, differ in their last word only.
    Raises as `parse_handle`."""
    same, _, last = text.rpartition(" ")
    if last.isdecimal() and len(same) <= _KEPT_CHARACTERS:
        with suppress(Refusal):  # said below, of the whole text
            return _receipt_of(same)
    return _receipt_in(text)


@lru_cache(maxsize=_KEPT_RECEIPTS)
def _receipt_of(same: str) -> tuple[int, int, int]:
    return _receipt_in(f"{same} 0")


def _receipt_in(text: str) -> tuple[int, int, int]:
    start, pop_time, _, revive_queue, *_ = parse_handle(text)
    return start, pop_time, revive_queue


def pop_retry_topic(group: str, topic: str) -> str:
    """The topic in which messages of `topic` come back to the group [KeyBuilder.buildPopRetryTopicV1]."""
    return topic if topic.startswith(RETRY_PREFIX) else f"{RETRY_PREFIX}{group}_{topic}"


def pop_retry_topic_v2(group: str, topic: str) -> str:
    """RocketMQ's topic for them under enableRetryTopicV2; rmq only reads it [KeyBuilder.buildPopRetryTopicV2]."""
    return topic if topic.startswith(RETRY_PREFIX) else f"{RETRY_PREFIX}{group}+{topic}"


def pop_retry_topics(group: str, topic: str) -> list[str]:
    """All topics in which messages of `topic` may come back to the group; none if `topic` is a retry topic itself."""
    both = [pop_retry_topic(group, topic), pop_retry_topic_v2(group, topic)]
    return [name for name in both if name != topic]


def retry_flag(group: str, topic: str) -> str:
    """The retry flag of the topic that a message is in."""
    if not topic.startswith(RETRY_PREFIX):
        return NORMAL
    return RETRY_V2 if topic.startswith(pop_retry_topic_v2(group, "")) else RETRY_V1


def stored_in(flag: str, group: str, topic: str) -> str:
    """The topic that a message with that retry flag is in [ExtraInfoUtil.getRealTopic]."""
    if flag == RETRY_V2:
        return pop_retry_topic_v2(group, topic)
    return pop_retry_topic(group, topic) if flag == RETRY_V1 else topic


class Part(NamedTuple):
    """The messages of one queue in one answer."""

    flag: str
    queue_id: int
    start: int
    queue_offsets: Sequence[int]


def start_offset_info(parts: Iterable[Part]) -> str:
    return ";".join(f"{part.flag} {part.queue_id} {part.start}" for part in parts)


def msg_offset_info(parts: Iterable[Part]) -> str:
    return ";".join(f"{part.flag} {part.queue_id} {','.join(map(str, part.queue_offsets))}" for part in parts)


def order_counts(info: str) -> dict[tuple[str, int, int], int]:
    """What `order_count_info` tells of single messages: by retry flag, queue and queue offset. Raises ValueError."""
    found: dict[tuple[str, int, int], int] = {}
    for entry in info.split(";") if info else ():
        flag, which, times = entry.split(" ")
        if which.startswith("qo"):
            queue_id, _, queue_offset = which.removeprefix("qo").partition("%")
            found[flag, int(queue_id), int(queue_offset)] = int(times)
    return found


def order_count_info(part: Part, tries: dict[int, int]) -> str:
    """How often each message of an ordered pop was handed out before; the last entry has the smallest number of the queue."""
    counts = [f"{part.flag} qo{part.queue_id}%{each} {tries[each]}" for each in part.queue_offsets if tries.get(each)]
    least = min((tries.get(queue_offset, 0) for queue_offset in part.queue_offsets), default=0)
    return ";".join([*counts, f"{part.flag} {part.queue_id} {least}"])

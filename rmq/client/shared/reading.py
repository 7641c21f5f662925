"""Checks stored records in a broker's answer: each must be whole, and as its sender made it, before anybody gets it.

A broker checks what it reads from its disk; this finds what a faulty broker sends, or a faulty line changes.
"""

import logging
from collections.abc import Iterator
from typing import NamedTuple

from rmq.client.shared.inflating import inflated
from rmq.client.shared.message import ReceivedMessage
from rmq.codes import ResponseCode
from rmq.errors import BadBytes
from rmq.log.records import record
from rmq.log.records.fastread import fast_read
from rmq.log.records.innerbatch import is_inner_batch, messages_in
from rmq.log.records.record import Record
from rmq.model import MessageQueue
from rmq.net.commands import PullAnswer

_log = logging.getLogger("rmq.client")


class CheckedRecord(NamedTuple):
    """A record with its sender's body. `exact`: the record's own checksum proves all the rest, too."""

    stored: Record
    exact: bool


def read(messages: bytes, at: int = 0) -> Iterator[CheckedRecord]:
    """The records from `at` on. Raises BadBytes at the first one that is damaged; those before it are good."""
    end = len(messages)
    while at < end:
        stored = record.decode(messages, at)
        if not record.body_is_right(stored):
            raise BadBytes(f"the message at {stored.physical_offset} of the log came with a damaged body")
        stop = at + stored.total_size
        yield CheckedRecord(stored, not record.has_crc(stored) or record.crc_is_right(messages[at:stop]))
        at = stop


def read_all(messages: bytes) -> list[Record]:
    """The same for those who look at messages only: those of an inner batch one by one. Raises BadBytes."""
    return [message for found in read(messages) for message in _apart(found.stored)]


def _apart(stored: Record) -> list[Record]:
    """The messages of the record. Raises BadBytes."""
    inner = is_inner_batch(stored) and stored.sys_flag & record.SYS_COMPRESSED
    return messages_in(stored, inflated(stored) if inner else None)


class Pulled(NamedTuple):
    """`next_offset`: where to pull next, behind everything that was checked."""

    messages: list[ReceivedMessage]
    next_offset: int


class PullReader:
    """Reads the answers to the pulls of one queue."""

    def __init__(self, queue: MessageQueue) -> None:
        self._queue = queue
        self._fast = fast_read(queue.topic)
        self._doubted = -1  # queue offset of a message that did not match its record's checksum

    def read(self, answer: PullAnswer, asked: int) -> Pulled:
        """`asked`: the pull's offset. What stands before a damaged message is good. Raises BadBytes if nothing does, and for an
        answer that cannot be."""
        end = answer.next_begin_offset
        if end < 0 or (end < asked and answer.status != ResponseCode.PULL_OFFSET_MOVED):
            raise BadBytes(f"the answer to a pull from {asked} on leads back to {end}")
        if answer.status != ResponseCode.SUCCESS:
            return Pulled([], end)
        good: list[ReceivedMessage] = []
        try:
            self._read(answer.messages, asked, end, good)
        except BadBytes as error:
            if not good:
                raise
            _log.warning("an answer to a pull from %d on is taken as far as it is good: %s", asked, error)
            return Pulled(good, good[-1].queue_offset + 1)
        if not good:
            raise BadBytes("an answer that says FOUND brought no message")
        return Pulled(good, end)

    def _read(self, messages: bytes, lowest: int, end: int, good: list[ReceivedMessage]) -> None:
        """Adds to `good` until one is damaged; then raises BadBytes. Usual records are not decoded here."""
        queue, at = self._queue, 0
        while at < len(messages):
            usual, at = self._fast(messages, at, queue.queue_id, lowest, end)
            good += ReceivedMessage.unread(usual, queue)
            if at < len(messages):
                lowest = good[-1].queue_offset + 1 if usual else lowest
                found = next(read(messages, at))
                lowest = self._take(found, lowest, end, good)
                at += found.stored.total_size

    def _take(self, found: CheckedRecord, lowest: int, end: int, good: list[ReceivedMessage]) -> int:
        """Adds the messages of the record, of an inner batch only those that were asked for; the queue offset behind them. Raises
        BadBytes."""
        batch = is_inner_batch(found.stored)
        for message in _apart(found.stored):
            if not batch or message.queue_offset >= lowest:
                self._check(found._replace(stored=message), lowest, end)
                good.append(ReceivedMessage(message, self._queue))
                lowest = message.queue_offset + 1
        return lowest

    def _check(self, found: CheckedRecord, lowest: int, end: int) -> None:
        """A message that differs from its record's checksum is asked for once more: if it comes the same again, it is stored so
        (Apache RocketMQ may leave the checksum of another record in one). Raises BadBytes."""
        stored, (topic, _, queue_id) = found.stored, self._queue
        queue_offset = stored.queue_offset
        if not lowest <= queue_offset < end or stored.topic != topic or stored.queue_id != queue_id:
            where = f"where messages {lowest} to {end - 1} of {topic}/{queue_id} may come"
            raise BadBytes(f"message {queue_offset} of {stored.topic}/{stored.queue_id} came {where}")
        if not found.exact and self._doubted != queue_offset:
            self._doubted = queue_offset
            raise BadBytes(f"message {queue_offset} does not match its record's checksum: it is asked for once more")

"""Transactions of gRPC clients, which have no producer groups: what stands for the group, and the id by which they end one. That
says where the half waits, so that every door can end it."""

import zlib
from struct import Struct, error as StructError
from typing import NamedTuple

from rmq.grpc.statuses import Code, Wrong
from rmq.model import MAX_GROUP_LENGTH

_OFFSETS = Struct(">qq")  # what the brokers can be told


def group_of(topic: str) -> str:
    """The topic's name, as RocketMQ's proxy has it; a name that is too long for a group is cut, and its checksum makes it another
    one than its neighbour's."""
    if len(topic) <= MAX_GROUP_LENGTH:
        return topic
    mark = f"-{zlib.crc32(topic.encode()):08x}"
    return topic[: MAX_GROUP_LENGTH - len(mark)] + mark


class Half(NamedTuple):
    """Where it waits, as of `EndTransaction`."""

    broker_name: str
    queue_offset: int
    physical_offset: int
    message_id: str

    def text(self) -> str:
        return f"{self.queue_offset} {self.physical_offset} {self.broker_name} {self.message_id}"


def parse(text: str) -> Half:
    """Raises Wrong."""
    try:
        queue_offset, physical_offset, broker_name, message_id = text.split(" ")
        half = Half(broker_name, int(queue_offset), int(physical_offset), message_id)
        _OFFSETS.pack(half.queue_offset, half.physical_offset)
        return half
    except (ValueError, StructError):
        raise Wrong(Code.INVALID_TRANSACTION_ID, f"{text[:80]!r} is no transaction of this cluster") from None

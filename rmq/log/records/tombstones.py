"""Records that stand where others were lost, so that the log can be read on [repair]. Pure."""

from rmq.log.records.crc import crc32
from rmq.log.records.properties import CRC_BYTES
from rmq.log.records.record import CRC_MASK, SYS_ROLLBACK, SYS_TRANSACTION, Record, decode, draft, encode, stamp

LOST = -1  # reconsumeTimes of a tombstone
UNKNOWN_TOPIC = "!"  # topic of a tombstone for an unknown record; no user's topic can have this name


def tombstone(
    topic: str, queue_id: int, queue_offset: int, offset: int, size: int, store_host: bytes, *, protected: bool
) -> bytes:
    """A record of `size` bytes (or as few as it takes) for `offset` in place of one that is lost [repair].

    It names the queue and offset of the lost one, and has no ConsumeQueue entry. `protected`: with our checksum.
    """
    made = draft(topic, b"", b"", sys_flag=SYS_ROLLBACK, born_timestamp=0, born_host=store_host, reconsume_times=LOST)
    if protected:
        body = bytes(max(size - len(made), 0))
        made = draft(topic, body, b"", sys_flag=SYS_ROLLBACK, born_timestamp=0, born_host=store_host, reconsume_times=LOST)
        run = bytearray(made)
        stamp(run, [(0, (len(run),), queue_id, queue_offset)], offset, bytes(8) + store_host)
        return bytes(run)
    body = bytes(max(size - len(made) + CRC_BYTES, 0))
    plain = decode(made)._replace(properties=b"", body=body, body_crc=crc32(body) & CRC_MASK, store_host=store_host)
    return encode(plain._replace(queue_id=queue_id, queue_offset=queue_offset, physical_offset=offset))


def is_tombstone(record: Record) -> bool:
    return record.reconsume_times == LOST and record.sys_flag & SYS_TRANSACTION == SYS_ROLLBACK

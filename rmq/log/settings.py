"""Settings of the log. No behaviour."""

from typing import NamedTuple

ASYNC_FLUSH, SYNC_FLUSH = "ASYNC_FLUSH", "SYNC_FLUSH"
MIN_SEGMENT_BYTES = 4096


class StoreSettings(NamedTuple):
    """`store_host`: the advertised address as records hold it (`record.host_bytes`); it is in every message id.

    `segment_bytes` should be at least twice the largest record. `queue_file_entries`: entries in one ConsumeQueue file,
    `batch_file_entries`: in one of a topic with batches.
    `index_slots`, `index_entries`: of one index file [maxHashSlotNum, maxIndexNum]; no slots: no index.
    `group` is RocketMQ's brokerName, `node_id` this node's name in it. `alone`: whatever was appended here is committed;
    otherwise the group decides (rmq.raft). `apart_above`: making the queues of a log longer than so many bytes anew is left
    to the caller (`Store.rebuild_to`); 0: never. `reserve_bytes`: of room that is held back for a full disk; 0: none.
    """

    store_host: bytes
    segment_bytes: int = 1 << 30
    flush_mode: str = ASYNC_FLUSH
    group: str = "broker-a"
    node_id: str = "n0"
    queue_file_entries: int = 300_000
    index_slots: int = 0
    index_entries: int = 20_000_000
    alone: bool = True
    apart_above: int = 0
    batch_file_entries: int = 300_000
    reserve_bytes: int = 0

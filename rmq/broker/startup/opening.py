"""From a store's directory to a store that can be served: what must be rebuilt or repaired before that."""

import asyncio
import logging

from rmq.broker.front.front import Front
from rmq.broker.startup.damaged import Damaged
from rmq.broker.startup.rebuilding import Rebuilding
from rmq.config.settings import NodeSettings
from rmq.errors import StoreError
from rmq.log.files import ownfiles, reserve
from rmq.log.files.disk import Disk, RealDisk
from rmq.log.queues.batchqueue import ROW
from rmq.log.queues.consumequeue import ENTRY_BYTES
from rmq.log.replicated import ReplicatedLog
from rmq.log.settings import ASYNC_FLUSH, SYNC_FLUSH, StoreSettings
from rmq.log.store import Report, Store
from rmq.net.transport.dialer import Dialer

log = logging.getLogger("rmq.broker")

REBUILD_APART_BYTES = 256 * 1024 * 1024  # of log; below that the queues are made anew before anything is served


async def open_store(disk: Disk, log_settings: StoreSettings, settings: NodeSettings, front: Front, dialer: Dialer) -> Store:
    """Queues are made anew; a member of a group gets its damaged log repaired. A node that stands alone may still have damage.

    Raises StoreError, OSError; then the store is closed.
    """
    root, guarded = str(settings.store_dir), not settings.elected and not settings.unclean
    run = await asyncio.to_thread(ownfiles.load_run, disk, f"{root}/rmq") if guarded else None
    in_group = run is not None and run.in_group
    if in_group and log_settings.alone:
        await asyncio.to_thread(_check_before, disk, root, log_settings)
    while True:
        store = await asyncio.to_thread(Store.open, disk, root, log_settings)
        try:
            if store.rebuild_to:
                await Rebuilding(store, settings, front, dialer.clock).run()
            if guarded:
                _check_is_alone(store, disk, root, in_group)
            if not store.read_only or log_settings.alone:
                return store
            await Damaged(store, disk, settings, front, dialer).run()
        except BaseException:
            await asyncio.to_thread(store.close)
            raise
        await asyncio.to_thread(store.close)


def _check_before(disk: Disk, root: str, log_settings: StoreSettings) -> None:
    """A member's store is looked at as one: all of a log that stands alone is committed, and a start that is refused afterwards
    had made it so, tail and all, and dropped the snapshot by which the member is being filled. Raises StoreError."""
    vote = ownfiles.load_vote(disk, f"{root}/rmq")
    node_id = vote.node_id if vote else log_settings.node_id
    store = Store.open(disk, root, log_settings._replace(alone=False, node_id=node_id))
    try:
        _check_is_alone(store, disk, root, in_group=True)
    finally:
        store.close()


def _check_is_alone(store: Store, disk: Disk, root: str, in_group: bool) -> None:
    """A member of a group that was started without its group would lead alone, beside the group's leader, and lose what it
    answered when it is a member again. `in_group`: so was the last run, with a fixed role perhaps; then it may not have been a
    voter yet. Raises StoreError."""
    lists = ReplicatedLog(store, disk, root).voter_lists()
    voters, mine = lists[-1][1] if lists else (), store.vote.store_id
    others = [voter.node for voter in voters if voter.store != mine]
    if others and (len(others) < len(voters) or (in_group and len(voters) > 1)):
        raise StoreError(
            f"{root} belongs to a member of the group {store.vote.group}, with {', '.join(others)}: start it with the "
            "settings of its group (enableDLegerCommitLog, dLegerPeers, dLegerSelfId). If the others are gone for good, "
            "start it once with --unclean: it is a broker of its own then, with all that it has"
        )


def tell(found: Report, adopted: bool) -> None:
    """Tells the operator what opening the store found."""
    if not found.end:
        log.info("a new store was made")
        return
    stopped = "the last run stopped in order" if found.clean else "the last run did not stop in order"
    rebuilt = "; the queues were rebuilt from the log" if found.queues_rebuilt else ""
    if not adopted:
        log.info("store opened, the log ends at %d: %s%s", found.end, stopped, rebuilt)
    for start, end, why in found.damaged:
        log.error(
            "bytes %d to %d of the log are damaged (%s): this node only reads, and nothing in there; stop it and run "
            "`rmq store repair`",
            start,
            end,
            why,
        )
    if found.cut_bytes:
        log.warning("%d bytes behind %d were cut off the log: %s", found.cut_bytes, found.end, found.cut_reason)
    if found.records_behind:
        log.warning(
            "whole records stood behind that cut: messages that were acknowledged may be lost; keep the disk for a closer look"
        )
    if found.may_have_lost:
        log.warning("the machine stopped under asynchronous flush: the last messages acknowledged before it may be lost")


def store_settings(settings: NodeSettings, host: bytes, disk: Disk) -> StoreSettings:
    """`host`: as records name this broker."""
    mode = SYNC_FLUSH if settings.flush == "sync" else ASYNC_FLUSH
    return StoreSettings(
        host,
        settings.segment_bytes,
        mode,
        settings.broker_name,
        settings.node_id if settings.elected else f"n{settings.broker_id}",
        alone=not (settings.elected or settings.broker_role),
        index_slots=settings.index_slots if settings.message_index else 0,
        index_entries=settings.index_entries,
        queue_file_entries=-(-settings.queue_file_bytes // ENTRY_BYTES),
        batch_file_entries=-(-settings.batch_queue_file_bytes // ROW.size),
        apart_above=REBUILD_APART_BYTES if isinstance(disk, RealDisk) else 0,
        reserve_bytes=reserve.BYTES if isinstance(disk, RealDisk) else 0,
    )

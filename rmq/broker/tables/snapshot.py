"""The tables as they are at an offset, saved so that a start need not replay the whole log (docs/storage).

A snapshot is taken while commits go on: rows are read in slices between loop turns and written in a thread. That is
exact because state lines are absolute assignments: whatever a slice missed or saw too early comes again when a start
replays the log from S0. A table that is to outlive its records only has to be among `tables.Tables`.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rmq.broker.shared.state import Table
from rmq.errors import BadBytes, StoreError
from rmq.log.files.disk import remedy
from rmq.log.files.snapshot import EPOCHS, QUEUES, VOTERS
from rmq.log.store import Store
from rmq.model import DataVersion

SLICE_ROWS = 200  # a tenth of a millisecond of the loop's time, about; slots with many timers take ten times as long
_TABLE, _VERSION = "table ", "version "  # sections: one of each for each table


class SnapshotService:
    """`committed()`: the offset below which the tables hold everything."""

    def __init__(self, tables: Mapping[str, Table], store: Store, committed: Callable[[], int]) -> None:
        self._tables = tables
        self._store = store
        self._committed = committed

    async def take(self) -> None:
        """One snapshot, unless nothing was committed since both kept ones. Raises StoreError: the older ones stay.

        The second one of a place is what lets old files go: on a disk that is too full for anything nothing more is committed.
        """
        s0, known = self._committed(), self._store.snapshots
        if known.newest is not None and known.covered == known.newest.s0 == s0:
            return
        writer = await asyncio.to_thread(self._store.begin_snapshot)
        try:
            for section, rows in self._sections():
                await asyncio.to_thread(writer.add, section, rows)
            await asyncio.to_thread(self._store.publish_snapshot, writer, s0, self._committed())
        except OSError as error:
            raise StoreError(f"no snapshot could be written: {remedy(error, 'free space or repair the disk')}") from error
        finally:
            writer.abandon()

    def _sections(self) -> Iterator[tuple[str, list[Any]]]:
        """Yields slices of rows, each read in one go and never changed again."""
        for name, table in self._tables.items():
            yield _VERSION + name, list(table.data_version)
            committed = table.committed()
            for keys in _slices(list(committed)):
                yield _TABLE + name, [(key, committed[key]) for key in keys if key in committed]
        for queues in _slices(self._store.queues.all()):
            yield QUEUES, [(queue.topic, queue.queue_id, queue.max) for queue in queues]


def _slices(items: list[Any]) -> Iterator[list[Any]]:
    return (items[i : i + SLICE_ROWS] for i in range(0, len(items), SLICE_ROWS))


def load(tables: Mapping[str, Table], store: Store) -> None:
    """Fills empty tables from the newest snapshot, if there is one. What was committed behind its S0 is to be replayed.

    Raises BadBytes for tables that this release does not know, StoreError where the records that made them are deleted and no
    snapshot has them.
    """
    if not store.adopting and (lost := store.snapshots.lost(store.log.start, store.epochs)):
        raise StoreError(
            f"{lost}: restore a backup (`rmq restore`); in a group, start this node with an empty directory; else "
            "`rmq store repair` takes them from config/*.json"
        )
    versions: dict[str, DataVersion] = {}
    for section, rows in store.snapshots.rows():
        kind, _, name = section.partition(" ")
        if section in (QUEUES, EPOCHS, VOTERS):
            continue
        if name not in tables:
            raise BadBytes(f"the snapshot holds {section!r}, which this release does not know: was it written by a newer one?")
        if kind + " " == _VERSION:
            versions[name] = DataVersion(*rows)
        for key, value in rows if kind + " " == _TABLE else ():
            tables[name].apply(key, value)
    for name, version in versions.items():
        tables[name].set_version(version)

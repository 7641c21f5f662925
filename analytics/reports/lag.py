"""How far consumer groups are behind, by a store directory: by the offsets that its broker exports, and its consume queues."""

import json
import os
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from analytics.reports.days import KEY, file_name, replace
from rmq.errors import StoreError

_UNIT_BYTES = 20
_OFFSETS = Path("config") / "consumerOffset.json"
_SCHEMA = pa.schema(
    [
        ("broker", pa.string()),
        ("group", pa.string()),
        ("topic", pa.string()),
        ("queues", pa.int64()),
        ("lag", pa.int64()),
        ("worst_queue", pa.int64()),
        ("worst_lag", pa.int64()),
    ]
)


class Lag(NamedTuple):
    """The lag of one group in one topic: messages stored and not consumed, in all queues and in the queue with the most."""

    broker: str
    group: str
    topic: str
    queues: int
    lag: int
    worst_queue: int
    worst_lag: int


def read_lag(store: Path, broker: str) -> tuple[datetime, list[Lag]] | None:
    """The time of the export, and the lag of each group. None if there is no export (an archive; a broker that just started)."""
    file = store / _OFFSETS
    try:
        table = json.loads(file.read_bytes())["offsetTable"]
        as_of = datetime.fromtimestamp(file.stat().st_mtime, UTC)
        offsets = {name: {int(queue): int(offset) for queue, offset in queues.items()} for name, queues in table.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return as_of, sorted(_lags(store, broker, offsets))


def _lags(store: Path, broker: str, offsets: dict[str, dict[int, int]]) -> Iterator[Lag]:
    for name, queues in offsets.items():
        topic, at, group = name.partition("@")
        if not at:
            continue
        behind = {}
        for queue, offset in queues.items():
            end = queue_end(store / "consumequeue" / topic / str(queue))
            if end is not None:
                behind[queue] = max(end - offset, 0)
        if behind:
            worst = max(behind, key=lambda queue: behind[queue])
            yield Lag(broker, group, topic, len(behind), sum(behind.values()), worst, behind[worst])


def queue_end(directory: Path) -> int | None:
    """The queue offset of a queue's next message, from its last file; None if it has no file."""
    try:
        names = sorted(name for name in os.listdir(directory) if len(name) == 20 and name.isdecimal())
        if not names:
            return None
        with open(directory / names[-1], "rb", buffering=0) as file:
            low, high = 0, os.fstat(file.fileno()).st_size // _UNIT_BYTES
            while low < high:  # files are preallocated: zeros follow the last unit
                middle = (low + high) // 2
                unit = os.pread(file.fileno(), _UNIT_BYTES, middle * _UNIT_BYTES)
                low, high = (middle + 1, high) if any(unit[8:12]) else (low, middle)
    except OSError:
        return None
    return int(names[-1]) // _UNIT_BYTES + low


def write_lag(out: Path, as_of: datetime, broker: str, lags: list[Lag]) -> None:
    """Writes OUT/lag/lag-BROKER.parquet; replaces that of an earlier report."""
    schema = _SCHEMA.with_metadata({KEY: json.dumps({"as_of": as_of.isoformat(timespec="seconds")}).encode()})
    table = pa.table([[getattr(lag, name) for lag in lags] for name in schema.names], schema=schema)
    replace(out / "lag" / f"lag-{file_name(broker)}.parquet", lambda staging: pq.write_table(table, staging))


def written_lags(out: Path, brokers: Iterable[str]) -> list[tuple[datetime, list[Lag]]]:
    """The lags of those brokers, each with their time. Raises StoreError if a file is damaged."""
    found = []
    for name in sorted(set(map(file_name, brokers))):
        file = out / "lag" / f"lag-{name}.parquet"
        if not file.exists():
            continue
        try:
            table = pq.read_table(file)
            said = json.loads(table.schema.metadata[KEY])
            found.append((datetime.fromisoformat(said["as_of"]), [Lag(**row) for row in table.to_pylist()]))
        except (pa.ArrowException, OSError, KeyError, ValueError, TypeError) as error:
            raise StoreError(f"{file} is damaged, or not written by `rmq report`: {error!r}; move it away") from error
    return found

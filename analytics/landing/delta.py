"""A Delta Lake log beside Parquet files that Spark wrote, so that whatever reads Delta tables reads them (extra `delta`).

The files stay where they are and what they are: a reader of Parquet sees the same rows, because Spark and others pass over names
that begin with `_`. A folder of a new version takes over the log of the version before and adds one commit
[Delta transaction log protocol: "Add File and Remove File"].
"""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import unquote

import pyarrow.parquet as pq

from rmq.errors import InvalidArgument

try:
    from deltalake import DeltaTable, Schema
    from deltalake.transaction import AddAction, create_table_with_add_actions
except ImportError:  # pragma: no cover -- what an installation without the extra says
    DeltaTable = None  # type: ignore[misc, assignment]

LOG = "_delta_log"


def check_installed() -> None:
    """Raises InvalidArgument."""
    if DeltaTable is None:
        raise InvalidArgument("--delta needs delta-rs: pip install 'rmq[delta]'")


def take_over(folder: Path, before: Path) -> None:
    """Lets the log of the table in `before` go on in `folder`, if there is one. What a log has written does not change."""
    for file in sorted((before / LOG).glob("*")):
        target = folder / LOG / file.name
        target.parent.mkdir(parents=True, exist_ok=True)
        os.link(file, target)


def commit(folder: Path, files: Sequence[Path], schema: str, *, keep: bool, partitions: Sequence[str] = ()) -> None:
    """Adds a version to the log of `folder`: it has these files, and with `keep` those of the version before, too.

    `schema`: of the table with its partitions, as Spark's JSON of it, which is Delta's.
    """
    kind, added = Schema.from_json(schema), [_added(file, folder) for file in files]
    by = list(partitions) or None
    if (folder / LOG).is_dir():
        mode = "append" if keep else "overwrite"
        DeltaTable(str(folder)).create_write_transaction(list(added), mode, kind, partition_by=by)
    else:
        create_table_with_add_actions(str(folder), kind, added, "error", partition_by=by)


def _added(file: Path, folder: Path) -> "AddAction":
    inside, state = file.relative_to(folder), file.stat()
    values = {name: unquote(value) for name, _, value in (part.partition("=") for part in inside.parts[:-1])}
    rows = json.dumps({"numRecords": pq.read_metadata(file).num_rows})
    return AddAction(str(inside), state.st_size, values, int(state.st_mtime * 1000), True, rows)

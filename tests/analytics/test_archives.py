"""An archive is read like a store: the rows that were shipped, and no others."""

from pathlib import Path

import pytest

pytest.importorskip("pyarrow", reason="needs the extra spark: pip install 'rmq[spark]'")

from analytics.records.batches import batches
from analytics.records.columns import pa
from analytics.stores.options import parse_options
from analytics.stores.plan import plan
from rmq.ops.archive import ship
from rmq.ops.places import Folder
from tests.ops.test_archive import grow, messages


def test_an_archive_is_read_like_a_store(tmp_path: Path) -> None:
    store, where = tmp_path / "store", tmp_path / "archive"
    for _ in range(2):
        grow(store, 60)
        ship(store, Folder(where))
    schema = pa.schema([("queue_offset", pa.int64())])
    wanted = parse_options({"subscribe": "T"})
    rows = [row for parts in plan(where, wanted) for batch in batches(parts, wanted, schema, "") for row in batch[0].to_pylist()]
    assert rows == [one.queue_offset for one in messages(where)] == list(range(len(rows)))
    assert len(rows) > 100

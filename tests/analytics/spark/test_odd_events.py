"""Change events as no database writes them, and names as few do: none of them ends `rmq changes`."""

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from tests.analytics.stores import Sent, write_store

pytest.importorskip("pyspark", reason="needs the extra spark: pip install 'rmq[spark]'")

from analytics.landing.changes import capture
from analytics.landing.cli import tables_of
from analytics.stores.files import directory

DELTA = importlib.util.find_spec("deltalake") is not None  # the extra `delta`
ROWS = [{"id": "1", "v": "1.5"}]
TABLES: dict[str, dict[str, Any]] = {  # which get a state
    "scale": {"mysqlType": {"id": "bigint", "v": "decimal(5,9)"}},
    "no digits": {"mysqlType": {"id": "bigint", "v": "decimal(0)"}},
    "many digits": {"mysqlType": {"id": "bigint", "v": f"decimal({'9' * 5000})"}},
    "no type": {"mysqlType": {"id": "bigint", "v": None}},
    "ours": {"mysqlType": {"id": "bigint", "_key": "int", "_DATA": "int"}},
    "quoted": {"mysqlType": {"id": "bigint", "a`b": "int"}},
    "letters": {"mysqlType": {"id": "bigint", "ID": "int"}},
    "late": {"es": 2**63 - 1, "ts": -(2**63)},
    "a:b?'%": {},
    "orders.parquet": {},
    "all is well\x9b1m": {},
}
BAD: list[dict[str, Any]] = [
    {"table": "t" * 300},
    {"database": ":" * 90},
    {"table": "a\0b"},
    {"database": "__HIVE_DEFAULT_PARTITION__"},
    {"type": "UPDATE", "old": "twice"},
    {"data": "twice"},
]


def event(**fields: Any) -> Sent:
    flat = {
        "database": "shop",
        "type": "INSERT",
        "es": 1,
        "ts": 1,
        "pkNames": ["id"],
        "mysqlType": {"id": "bigint"},
        "data": ROWS,
    }
    text = json.dumps({**flat, "table": "t", **fields})
    return Sent("canal", text.replace('"twice"', '[{"id": "1", "v": "1", "v": "2"}]').encode())


@pytest.mark.spark
def test_odd_events_end_no_run(spark: Any, tmp_path: Path) -> None:
    """Each of them alone ended every run from then on."""
    store, told = tmp_path / "store", list[str]()
    good = [event(table=name, **one) for name, one in TABLES.items()]
    two = [Sent("canal", event(table="one").body + between + event(table="two").body) for between in (b"", b",", b"\n")]
    write_store(store, [*good, *two, *(event(**one) for one in BAD)])
    done = capture(directory(str(store)), tmp_path / "out", frozenset({"canal"}), as_delta=DELTA, tell=told.append)
    assert done[:3] == (len(TABLES) + len(two) + len(BAD), 0, len(two) + len(BAD))
    assert {table["rows"] for table in done.tables.values()} == {1}
    assert len(done.tables) == len(TABLES)
    shown = list(tables_of(done))
    assert "database=shop/table=all is well\\x9b1m: 1 rows" in shown
    assert all(map(str.isprintable, shown)), "none steers a terminal"
    why = spark.read.parquet(str(done.folder / "bad")).groupBy("bad").count().collect()
    assert sorted(tuple(row) for row in why) == [
        ("a database or table that no folder can be named by", 4),
        ("a row that has a column twice", 2),
        ("more than one JSON value", 3),
    ]
    state = done.folder / "state" / "database=shop"
    columns = {name: spark.read.parquet(str(state / f"table={name}")).columns[:-3] for name in ("ours", "quoted", "letters")}
    assert columns == {"ours": ["id"], "quoted": ["id", "a`b"], "letters": ["id"]}
    assert spark.read.parquet(str(state / "table=scale")).first()["v"] == "1.5"
    times = spark.read.parquet(str(done.folder / "history")).where("table = 'late'").select("es", "ts").first()
    assert tuple(times) == (None, None)
    if DELTA:
        without = [folder.name for folder in state.iterdir() if not (folder / "_delta_log").is_dir()]
        assert without == ["table=a%3Ab%3F%27%25"]
        assert told[-1] == "database=shop/table=a%3Ab%3F%27%25 is no Delta table: its folder's name has a %"

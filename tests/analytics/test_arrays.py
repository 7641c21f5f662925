"""Arrow arrays without pandas."""

import subprocess
import sys
from pathlib import Path

import pytest

np = pytest.importorskip("numpy", reason="needs the extra `spark`")
pa = pytest.importorskip("pyarrow", reason="needs the extra `spark`")

from analytics.records.arrays import flags, integers, numbers, optional, texts, truths  # noqa: E402 -- needs the extra
from tests.analytics.stores import Sent, write_store  # noqa: E402

ROOT = Path(__file__).parent.parent.parent
PROGRAM = """
import sys
from pathlib import Path
import pyarrow as pa
from analytics.records.batches import batches
from analytics.records.columns import MAKERS, Columns
from analytics.stores.options import Wanted
from analytics.stores.plan import plan
from analytics.stores.walk import walk

wanted = Wanted(tags=frozenset({"a"}), from_ms=1)
(parts,) = plan(Path(sys.argv[1]), wanted)
for block in walk(parts[0]):
    columns = Columns(block, "b")
    made = {name: columns.make(name) for name in MAKERS}
schema = pa.schema([(name, array.type) for name, array in made.items()])
assert sum(batch.num_rows for batch in batches(parts, wanted, schema, "b")) == 20
assert "pandas" not in sys.modules
"""


def test_reading_needs_no_pandas(tmp_path: Path) -> None:
    """Each of Spark's workers is a new process, which would be half a second later."""
    pytest.importorskip("pandas", reason="else it proves nothing")
    write_store(tmp_path, [Sent("T", b"x", {"TAGS": "ab"[n % 2], "KEYS": "k l", "UNIQ_KEY": f"U{n}"}) for n in range(40)])
    subprocess.run([sys.executable, "-c", PROGRAM, str(tmp_path)], check=True, cwd=ROOT, timeout=300)


def test_they_are_those_of_pyarrow() -> None:
    values, there = np.arange(-5, 14), np.arange(19) % 3 > 0
    assert numbers(values[::2], np.int32) == pa.array(values[::2], pa.int32())
    assert flags(there).to_pylist() == there.tolist()
    assert optional(values, there) == pa.array(values, mask=~there)
    assert texts(["a", "", "ü"]) == pa.array(["a", "", "ü"])
    assert len(texts([])) == 0
    assert integers(pa.array(values, pa.int32())[3:9]).tolist() == values[3:9].tolist()
    some = pa.array([True, None, False, True, None, True, True, False, True, None])
    assert truths(some[1:]).tolist() == [bool(each) for each in some[1:].to_pylist()]
    assert truths(some[:0]).tolist() == []

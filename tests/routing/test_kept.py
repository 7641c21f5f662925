"""Entries that administrators store at a nameserver."""

import pytest

from rmq.errors import Refusal
from rmq.routing.kept import MAX_ALL, MAX_ENTRIES, MAX_VALUE, KeptTable


def test_a_table_has_an_end() -> None:
    """Its file is written whole for each change: so many entries, and so many characters of all; a file that has more is read."""
    table = KeptTable()
    for at in range(MAX_ENTRIES):
        table.put(f"n{at % 7}", f"k{at}", "v")
    with pytest.raises(Refusal, match="20000 entries are kept"):
        table.put("n", "more", "v")
    assert table.delete("n1", "k1")
    table.put("n", "more", "v")
    most = MAX_ALL // MAX_VALUE + 1
    for at in range(most - 4):
        table.put("n0", f"k{7 * at}", "v" * MAX_VALUE)
    with pytest.raises(Refusal, match="characters are kept, of at most 16777216: delete some"):
        table.put("n0", f"k{7 * most}", "v" * MAX_VALUE)
    table.put("n0", "k0", "w" * MAX_VALUE)  # no larger than before
    assert table.get("n0", "k0") == "w" * MAX_VALUE
    again = KeptTable()
    again.load({"configTable": {"n": {str(at): "v" * MAX_VALUE for at in range(most)}}})
    with pytest.raises(Refusal, match="delete some"):
        again.put("n", "new", "")
    again.put("n", "0", "")
    again.delete("n", "1")
    again.put("n", "new", "")
    assert len(again.all_of("n")) == most

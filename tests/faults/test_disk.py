"""The short form of the disk campaign (`python -m tests.faults.disk` is the long one)."""

from tests.faults.disk import KINDS, campaign


def test_five_hundred_histories_on_a_disk_that_fails_forgets_tears_and_reorders() -> None:
    """D1, D2, D4, D6, D9-D12, D15; and the cases bit (G4). `tests/log/test_crash.py` has another two thousand."""
    covered, found = campaign(range(1, 501))
    assert found == {}
    assert {kind for kind in KINDS if covered[kind] < 5} == set()

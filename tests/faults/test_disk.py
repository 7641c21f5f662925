"""The short form of the disk campaign (`python -m tests.faults.disk` is the long one)."""

from tests.faults.disk import KINDS, campaign


def test_three_thousand_histories_on_a_disk_that_fails_forgets_tears_and_reorders() -> None:
    """D1, D2, D4, D6, D9-D12; and the cases bit (G4)."""
    covered, found = campaign(range(1, 3001))
    assert found == {}
    assert {kind for kind in KINDS if covered[kind] < 20} == set()

"""The judge of `python -m tests.faults.compacted` on bad histories."""

import pytest

from tests.faults.compacted import Key, Sent, problems

SENT = {(0, "a"): Sent(b"2", (b"3", b"4")), (1, "b"): Sent(b"1"), (0, "c"): Sent(b"", (b"1",))}


@pytest.mark.parametrize(
    ("stored", "words"),
    [
        ({(0, "a"): b"2", (1, "b"): b"1"}, ""),
        ({(0, "a"): b"4", (1, "b"): b"1", (0, "c"): b"1"}, ""),
        ({(0, "a"): b"1", (1, "b"): b"1"}, "b'1' is stored, and b'2' was answered last"),
        ({(1, "b"): b"1"}, "b'' is stored, and b'2' was answered last"),
        ({(0, "a"): b"2", (0, "b"): b"1"}, "was never sent"),
    ],
)
def test_the_judge_flags_keys_that_are_lost_or_old(stored: dict[Key, bytes], words: str) -> None:
    """G3."""
    found = "\n".join(problems(SENT, stored))
    assert (words in found) if words else not found

"""The judge of messages that wait, on bad histories (G3)."""

import pytest

from tests.faults.waiting import Seen, Wish, problems

WISHES = {b"d1": Wish(1000, True), b"d2": Wish(1000, False), b"c3": Wish(0, True), b"r4": Wish(0, True), b"q5": Wish(0, True)}
TOPIC = {b"d1": [1010], b"c3": [500]}
POPPED = {b"d1": Seen([1.0, 6.0], 6.1), b"c3": Seen([1.0], 1.1)}


def test_a_good_history_passes() -> None:
    """With one that is unknown, one that was let go, and transactions that were rolled back."""
    assert problems(WISHES, TOPIC, POPPED) == []
    assert problems(WISHES, {**TOPIC, b"d2": [1000]}, {**POPPED, b"d2": Seen([2.0], 2.1)}) == []


@pytest.mark.parametrize(
    ("topic", "popped", "word"),
    [
        ({b"c3": [500]}, POPPED, "is not there"),
        ({**TOPIC, b"d1": [1010, 1011]}, POPPED, "2 times"),
        ({**TOPIC, b"d1": [900]}, POPPED, "early"),
        ({**TOPIC, b"r4": [1]}, {**POPPED, b"r4": Seen([2.0], 2.1)}, "rolled back"),
        ({**TOPIC, b"q5": [1]}, {**POPPED, b"q5": Seen([2.0], 2.1)}, "rolled back"),
        ({**TOPIC, b"d9": [1]}, {**POPPED, b"d9": Seen([2.0], 2.1)}, "invented"),
        (TOPIC, {b"d1": POPPED[b"d1"]}, "by nobody"),
        (TOPIC, {**POPPED, b"c3": Seen([1.0, 6.0], 1.1)}, "came again"),
    ],
)
def test_a_bad_history_is_noticed(topic: dict[bytes, list[int]], popped: dict[bytes, Seen], word: str) -> None:
    assert any(word in text for text in problems(WISHES, topic, popped))

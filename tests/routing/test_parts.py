"""Registrations that do not fit into one frame."""

import msgpack
import pytest
from hypothesis import given, strategies as st

from rmq.errors import Refusal
from rmq.model import TopicConfig
from rmq.routing import parts
from rmq.routing.parts import PART_BYTES, Parts, cut
from rmq.routing.rows import reported


@given(st.lists(st.builds(TopicConfig, st.text(max_size=255), attributes=st.dictionaries(st.text(), st.text())), max_size=20))
def test_nothing_is_lost_by_cutting(topics):
    assert [one for part in cut(topics) for one in part] == topics


def test_each_part_fits_into_a_frame():
    """A frame may hold 2 MiB of structure."""
    topics = [TopicConfig("\U0001f600" * 255, 2**31, 2**31, attributes={"a" * 100: "b" * 100}) for _ in range(3000)]
    sizes = [len(msgpack.packb(part)) for part in cut(topics)]
    assert len(sizes) > 3
    assert max(sizes) <= PART_BYTES
    assert list(cut([])) == [[]]


def test_no_part_holds_a_nameserver_up_for_long():
    """10 000 topics in one part took its loop 24 ms."""
    assert max(map(len, cut([TopicConfig(f"t{number}") for number in range(10_000)]))) < 1_500


def names(count, prefix="t"):
    return [reported(TopicConfig(f"{prefix}{number}")) for number in range(count)]


def test_the_list_counts_when_its_last_part_is_there():
    """N5: nobody sees half of it."""
    joined = Parts()
    assert joined.join(1, "a", 0, 3, names(2)) is None
    assert joined.join(2, "b", 0, 1, names(5)) == names(5), "another connection's"
    assert joined.join(1, "a", 1, 3, names(1, "u")) is None
    assert joined.join(1, "a", 2, 3, []) == names(2) + names(1, "u")


@pytest.mark.parametrize("part", [("a", 2, 3), ("a", 0, 0), ("a", 3, 3), ("b", 1, 3), ("a", -1, 3)])
def test_a_part_out_of_its_order_ends_the_list(part):
    joined = Parts()
    joined.join(1, "a", 0, 3, names(2))
    with pytest.raises(Refusal, match="order"):
        joined.join(1, *part, names(1))
    with pytest.raises(Refusal, match="order"):
        joined.join(1, "a", 1, 3, names(1))


def test_lists_that_never_end_take_little_room(monkeypatch):
    monkeypatch.setattr(parts, "MAX_TOPICS", 10)
    monkeypatch.setattr(parts, "MAX_ALL", 25)
    joined = Parts()
    for connection_id in (1, 2):
        assert joined.join(connection_id, "a", 0, 9, names(10)) is None
    with pytest.raises(Refusal, match="10 topics"):
        joined.join(1, "a", 1, 9, names(1))
    joined.join(3, "a", 0, 9, names(10))
    with pytest.raises(Refusal, match="too many at once"):
        joined.join(4, "a", 0, 9, names(6))
    joined.forget(2)
    assert joined.join(4, "a", 0, 9, names(6)) is None

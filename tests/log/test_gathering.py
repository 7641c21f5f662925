"""Records are cut out of what was read, in as few pieces as they stand in."""

from hypothesis import given, strategies as st

from rmq.log.files.gathering import parts_of


@given(st.lists(st.tuples(st.sampled_from([0, 0, 0, 1, 50]), st.integers(1, 40)), min_size=1, max_size=40), st.integers(0, 100))
def test_the_parts_are_the_records_and_neighbours_are_one(gaps_and_sizes: list[tuple[int, int]], offset: int) -> None:
    spans, end, pieces = [], offset, 1
    for gap, size in gaps_and_sizes:
        gap = gap if spans else 0  # what was read begins with the first
        pieces += gap > 0
        spans.append((end + gap, size))
        end += gap + size
    data = bytes(at * 7 % 251 for at in range(end))
    parts = parts_of(memoryview(data)[offset:end], offset, spans)
    assert b"".join(parts) == b"".join(data[at : at + size] for at, size in spans)
    assert len(parts) == pieces

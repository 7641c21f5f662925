"""What was checked is remembered, as a plain set of offsets would (D8)."""

import random

import pytest

from rmq.log.files.verified import BLOCK_BITS, CELL_BITS, Verified

BLOCK = 1 << BLOCK_BITS


def records(chance: random.Random, begin: int, end: int) -> list[tuple[int, int]]:
    """Back to back, as a log has them; some are larger than a cell."""
    found, at = [], begin
    while at < end:
        size = chance.choice([64, 91, 700, 700, 4000, 3 << CELL_BITS])
        found.append((at, size))
        at += size
    return found


@pytest.mark.parametrize("seed", range(8))
def test_it_knows_what_a_set_of_offsets_would(seed: int) -> None:
    chance = random.Random(seed)
    log = records(chance, BLOCK - (1 << 19), BLOCK + (1 << 19)) + records(chance, 2 * BLOCK - (1 << 18), 2 * BLOCK + (1 << 18))
    verified, checked = Verified(1 << 60), set[int]()
    for _ in range(600):
        first = chance.randrange(len(log))
        some = log[first : first + chance.choice([1, 20, 400]) : chance.choice([1, 1, 4])]
        assert verified.has(some) == checked.issuperset(offset for offset, _ in some)
        begin, end = some[0][0], sum(some[-1])
        if chance.random() < 0.05:
            verified.forget(begin, end)
            gone = range(((begin >> BLOCK_BITS) - 1) << BLOCK_BITS, ((end >> BLOCK_BITS) + 1) << BLOCK_BITS)
            checked = {offset for offset in checked if offset not in gone}
        elif chance.random() < 0.7:
            verified.add(some)
            checked.update(offset for offset, _ in some)


def test_one_page_that_was_read_makes_little_unknown() -> None:
    """Where memory is short single pages go: the rest of the log around them need not be checked again."""
    verified, log = Verified(1 << 60), [(at, 1 << 10) for at in range(0, 8 * BLOCK, 1 << 10)]
    verified.add(log)
    verified.forget(4 * BLOCK, 4 * BLOCK + 4096)
    known = [verified.has([span]) for span in log]
    assert known.count(False) * (1 << 10) == 2 * BLOCK
    assert not any(known[3 << 10 : 5 << 10])


def test_a_record_longer_than_a_block_is_checked_each_time() -> None:
    """Only the block before is forgotten with what was read, and this one may begin anywhere before that."""
    verified = Verified(1 << 60)
    long, most = (5, BLOCK + 1), (6 + BLOCK, BLOCK)
    verified.add([long, most])
    assert not verified.has([long])
    assert verified.has([most])
    verified.forget(2 * BLOCK, 2 * BLOCK + 4096)
    assert not verified.has([most])

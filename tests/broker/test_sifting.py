"""Sifting: which of the messages that were read an SQL92 expression wants, and what a step may take."""

import random
from collections.abc import Iterable

import pytest

from rmq.broker.shared import sifting
from rmq.delivery.sql import compile_sql
from rmq.log.queues.consumequeue import MatchingEntries
from rmq.log.records import record
from rmq.log.records.properties import bytes_to_properties

BORN = record.host_bytes("127.0.0.1", 1)


def stored(properties: Iterable[bytes]) -> tuple[MatchingEntries, bytes]:
    """Messages with these properties, as the log and a queue have them."""
    drafts = [record.draft("T", b"x", each, born_timestamp=1, born_host=BORN) for each in properties]
    records = [one[:20] + number.to_bytes(8, "big") + one[28:] for number, one in enumerate(drafts)]
    spans = [(number, len(one)) for number, one in enumerate(records)]
    return MatchingEntries(len(spans), spans, len(spans)), b"".join(records)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a > 30000000", "%d"),
        (" OR ".join(["a = 'x'"] * 250), "%d"),
        (" OR ".join(["a CONTAINS 'xy'"] * 32), "%d" + "x" * 30_000),
    ],
)
def test_a_step_costs_so_much_and_no_more(text: str, value: str) -> None:
    """Counted in units of about a microsecond: 10 ms are never reached, whatever the expression and the messages."""
    sql = compile_sql(text)
    properties = [f"a\x01{value % number}\x02".encode() for number in range(10_000_000, 10_000_800)]  # of one length
    found, messages = stored(properties)
    cost = sql.cost_of(len(properties[0]) + record.CRC_BYTES)
    part, none = sifting.sifted(found, messages, sql, 32, 1 << 20)
    assert none == b""
    assert 1 <= part.examined <= 800
    assert part.next_offset == part.examined
    assert part.examined * cost <= max(sifting.STEP_COST, cost) < 10_000


def test_messages_with_values_that_were_met_before_cost_little() -> None:
    """A hundred comparisons of a number that has 40 values are made 40 times."""
    sql = compile_sql(" OR ".join(f"a = {number}" for number in range(100, 350)))
    found, messages = stored(f"a\x01{number % 4}\x02".encode() for number in range(800))
    part, _ = sifting.sifted(found, messages, sql, 32, 1 << 20)
    assert part.examined == 800


ODD = ("", "a", "1", "7", "07", "x", "a\x01", "\x01", "x" * 70, "\ufffd", "ä", "7 ")  # values, and what is no pair
EXPRESSIONS = [
    "a > 3",
    "a = 'x' OR ba = 7",
    "a IS NULL",
    "a IS NOT NULL AND b IS NULL",
    "b BETWEEN 1 AND 9",
    "a CONTAINS 'x'",
    "a = b",
    "c IN ('ä', '7 ')",
    " OR ".join(f"n{number} = 1" for number in range(9)),
    "1 = 1",
]


def odd_properties(chance: random.Random) -> bytes:
    pairs = []
    for _ in range(chance.randrange(5)):
        name = chance.choice(("a", "b", "ba", "c", "n3", "", "A", "x" * 300))
        pairs.append(name + chance.choice(("\x01", "\x01", "\x01", "")) + chance.choice(ODD))
    text = "\x02".join(pairs).encode() + chance.choice((b"\x02", b"\x02", b""))
    if chance.random() < 0.1:
        at = chance.randrange(len(text) + 1)
        text = text[:at] + chance.choice((b"\xc3", b"\xff", b"\xe2\x82")) + text[at:]
    return text * chance.choice((1, 1, 1, 20))


@pytest.mark.parametrize("seed", range(20))
def test_what_is_remembered_is_what_the_properties_say(seed: int) -> None:
    """The twin: every message split and compared by itself."""
    chance = random.Random(seed)
    few = [odd_properties(chance) for _ in range(60)]
    many = [chance.choice(few) for _ in range(300)]
    found, messages = stored(many)
    for text in EXPRESSIONS:
        sql = compile_sql(text)
        wanted = [span for span, each in zip(found.spans, many, strict=True) if sql.matches(bytes_to_properties(each))]
        got, at = [], 0
        while at < len(many):
            rest = MatchingEntries(len(many), found.spans[at:], len(many) - at)
            skipped = sum(size for _, size in found.spans[:at])
            part, _ = sifting.sifted(rest, messages[skipped:], sql, 1000, 1 << 30)
            got += part.spans
            at = part.next_offset
        assert got == wanted, text

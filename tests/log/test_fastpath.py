"""The fast ways of `plain` against their slow twins in `record`: where they decide, they decide the same."""

import inspect
import random

from rmq.errors import InvalidArgument, Refusal
from rmq.log.records import fastpath, properties, record
from rmq.log.records.checking import check

ADDED = b"CLUSTER\x01c\x02"
HOST = bytes([10, 0, 0, 9, 0, 0, 15, 160])
TOPICS = ("T", "orders", "%RETRY%" + "g" * 130)
TEXTS = (
    b"TAGS\x01a\x02",
    b"TAGS\x01\xc3\xa4\x02",
    b"KEYS\x01k 1\x02",
    b"REAL_TOPIC\x01x\x02",
    b"DELAY\x013\x02",
    b"\x01\x02",
    b"a",
    b"x\x01\x02",
)
GIVEN = (*TEXTS[:5], b"MSG_REGION\x01r\x02", b"TRACE_ON\x01true\x02")


def test_the_fast_check_says_what_the_check_says() -> None:
    chance = random.Random(1)
    decided = 0
    for _ in range(4000):
        topic = chance.choice(TOPICS)
        data = bytearray(_draft(chance, topic))
        if chance.random() < 0.5:
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        code = fastpath.fast_check(topic)(bytes(data))
        if code is not None:
            decided += 1
            assert check(bytes(data), topic) == ((len(data),), (code,), False)
    assert decided > 500


def test_the_fast_draft_is_the_draft_and_passes_the_check() -> None:
    chance = random.Random(2)
    decided = 0
    for _ in range(2000):
        topic, body = chance.choice(TOPICS), chance.randbytes(chance.randrange(50))
        properties = b"UNIQ_KEY\x010A\x02" + b"".join(chance.choices(GIVEN, weights=(9, 1, 9, 1, 1, 1, 1), k=chance.randrange(4)))
        made = fastpath.fast_draft(topic, ADDED, body, properties, 7, 1_700_000_000_000, HOST, 2)
        if made is not None:
            decided += 1
            slowly = record.draft(
                topic, body, properties + ADDED, flag=7, born_timestamp=1_700_000_000_000, born_host=HOST, reconsume_times=2
            )
            assert made[0] == slowly
            assert check(made[0], topic) == ((len(slowly),), (made[1],), False)
            assert made[2] == b"0A"
    assert decided > 500


def test_what_the_fast_path_does_not_know_goes_the_long_way() -> None:
    good = record.draft("T", b"x", b"TAGS\x01a\x02", born_timestamp=1, born_host=HOST)
    assert fastpath.fast_check("T")(good) == record.tags_code("a")
    assert fastpath.fast_check("T")(good + good) is None
    assert fastpath.fast_check("U")(good) is None
    assert fastpath.fast_check("T")(b"") is None
    long = b"UNIQ_KEY\x010A\x02KEYS\x01" + b"k" * 32_768 + b"\x02"
    for given, host in ((long, HOST), (b"UNIQ_KEY\x010A\x02", bytes(20)), (b"TAGS\x01a\x02", HOST)):
        assert fastpath.fast_draft("T", b"", b"x", given, 0, 1, host, 0) is None


def _draft(chance: random.Random, topic: str) -> bytes:
    properties = b"".join(chance.choices(TEXTS, weights=(9, 1, 9, 1, 1, 1, 1, 1), k=chance.randrange(4)))
    host = HOST if chance.random() < 0.9 else bytes(20)
    try:
        return record.draft(topic, chance.randbytes(chance.randrange(30)), properties, born_timestamp=1, born_host=host)
    except (InvalidArgument, Refusal):
        return b"\0" * 91


def test_little_is_remembered_of_a_topic_and_its_tags() -> None:
    """A client that sends each time something else fills nothing."""
    check, draft = fastpath.fast_check("Remembered"), fastpath.matched_draft("Remembered", b"CLUSTER\x01c\x02")
    for number in range(3 * fastpath.MAX_LENGTHS):
        made = draft(b"x", b"UNIQ_KEY\x01A1\x02KEYS\x01" + b"k" * (number + 1) + b"\x02", b"A1", None, 0, 0, bytes(8), 0)
        assert made is not None
        assert check(made[0]) == 0
    for remembers in (check, draft):
        assert len(inspect.getclosurevars(remembers).nonlocals["middles"]) <= fastpath.MAX_LENGTHS
    for number in range(2 * properties.MAX_CODES):
        properties.code_of(b"tag%d" % number)
        properties.kept_properties(b"TAGS\x01tag%d\x02" % number)
    assert properties.code_of.cache_info().currsize == properties.MAX_CODES
    assert properties.kept_properties.cache_info().currsize == properties.KEPT_MAPS
    assert fastpath.fast_check.cache_info().maxsize == fastpath.matched_draft.cache_info().maxsize == fastpath.MAX_TOPICS

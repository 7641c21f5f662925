"""The fast ways of `plain` against their slow twins in `record`: where they decide, they decide the same."""

import random

from rmq.errors import InvalidArgument, Refusal
from rmq.log import plain, record

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


def test_a_plain_check_says_what_the_check_says() -> None:
    chance = random.Random(1)
    decided = 0
    for _ in range(4000):
        topic = chance.choice(TOPICS)
        data = bytearray(_draft(chance, topic))
        if chance.random() < 0.5:
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        code = plain.plain_check(topic)(bytes(data))
        if code is not None:
            decided += 1
            assert record.check(bytes(data), topic) == ((len(data),), (code,), False)
    assert decided > 500


def test_a_plain_draft_is_the_draft_and_passes_the_check() -> None:
    chance = random.Random(2)
    decided = 0
    for _ in range(2000):
        topic, body = chance.choice(TOPICS), chance.randbytes(chance.randrange(50))
        properties = b"UNIQ_KEY\x010A\x02" + b"".join(chance.choices(GIVEN, weights=(9, 1, 9, 1, 1, 1, 1), k=chance.randrange(4)))
        made = plain.plain_draft(topic, ADDED)(body, properties, 7, 1_700_000_000_000, HOST, 2)
        if made is not None:
            decided += 1
            slowly = record.draft(
                topic, body, properties + ADDED, flag=7, born_timestamp=1_700_000_000_000, born_host=HOST, reconsume_times=2
            )
            assert made[0] == slowly
            assert record.check(made[0], topic) == ((len(slowly),), (made[1],), False)
            assert made[2] == b"0A"
    assert decided > 500


def test_what_is_not_plain_goes_the_long_way() -> None:
    good = record.draft("T", b"x", b"TAGS\x01a\x02", born_timestamp=1, born_host=HOST)
    assert plain.plain_check("T")(good) == record.tags_code("a")
    assert plain.plain_check("T")(good + good) is None
    assert plain.plain_check("U")(good) is None
    assert plain.plain_check("T")(b"") is None
    assert plain.plain_draft("T", b"")(b"x", b"KEYS\x01" + b"k" * 32_768 + b"\x02", 0, 1, HOST, 0) is None
    assert plain.plain_draft("T", b"")(b"x", b"UNIQ_KEY\x010A\x02", 0, 1, bytes(20), 0) is None
    assert plain.plain_draft("T", b"")(b"x", b"TAGS\x01a\x02", 0, 1, HOST, 0) is None


def _draft(chance: random.Random, topic: str) -> bytes:
    properties = b"".join(chance.choices(TEXTS, weights=(9, 1, 9, 1, 1, 1, 1, 1), k=chance.randrange(4)))
    host = HOST if chance.random() < 0.9 else bytes(20)
    try:
        return record.draft(topic, chance.randbytes(chance.randrange(30)), properties, born_timestamp=1, born_host=host)
    except (InvalidArgument, Refusal):
        return b"\0" * 91

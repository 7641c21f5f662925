"""What is done to many records at once, against its slow twins, one record after the other."""

import random
import struct

from rmq.errors import Refusal
from rmq.log.records import record
from rmq.log.records.checking import Checked, check
from rmq.log.records.fastpath import fast_check
from rmq.log.records.many import MANY, check_many, draft_many, stamp_many

TOPIC = "orders"
TAG_OF = fast_check(TOPIC)
HOST = bytes([10, 0, 0, 9, 0, 0, 15, 160])
USUAL = (b"TAGS\x01a\x02", b"TAGS\x01bb\x02", b"KEYS\x01k 1\x02", b"x\x01\x02", b"")
ODD = (b"TAGS\x01\xc3\xa4\x02", b"REAL_TOPIC\x01x\x02", b"DELAY\x013\x02", b"\x01\x02", b"a", b"TAGS\x01\x02", b"n\x01\0\x02")


def draft(chance: random.Random, shaped: bool, tags: bytes) -> bytes:
    properties = b"TAGS\x01%c\x02KEYS\x01%05d\x02" % (chance.choice(tags), chance.randrange(99_999))
    if not shaped:
        properties = b"".join(chance.choices(USUAL, k=chance.randrange(4)))
    body = chance.randbytes(40 if shaped else chance.randrange(60))
    return record.draft(TOPIC, body, properties, born_timestamp=1, born_host=HOST)


def drafts(chance: random.Random, shaped: bool) -> list[bytes]:
    """Of one size if `shaped`, and then perhaps with one tag."""
    tags = chance.choice([b"a", b"ab"])
    return [draft(chance, shaped, tags) for _ in range(MANY + chance.randrange(40))]


def slowly(data: bytes, topic: str = TOPIC) -> Checked | None:
    try:
        return check(data, topic)
    except Refusal:
        return None


def test_many_are_checked_as_one_after_the_other() -> None:
    """Of one shape and of any; then with a flipped bit anywhere, with odd properties, with a piece too much or too little."""
    chance = random.Random(1)
    decided = {True: 0, False: 0}
    for turn in range(240):
        shaped = turn % 2 == 0
        parts = drafts(chance, shaped)
        data = b"".join(parts)
        assert check_many(data, TAG_OF) == check(data, TOPIC)
        flipped = bytearray(data)
        flipped[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        odd = record.draft(TOPIC, b"b", b"", born_timestamp=1, born_host=chance.choice([HOST, bytes(20)]))
        for other in (
            bytes(flipped),
            data + with_properties(chance.choice(ODD)),
            data + odd + data,
            data + chance.randbytes(chance.randrange(1, 200)),
            data[: -chance.randrange(1, len(parts[-1]))],
        ):
            found = check_many(other, TAG_OF)
            decided[found is None] += 1
            assert found is None or found == slowly(other)
        assert check_many(data, fast_check("order")) is None
    assert min(decided.values()) > 200


def with_properties(properties: bytes) -> bytes:
    made = record.decode(record.draft(TOPIC, b"body", b"", born_timestamp=1, born_host=HOST))
    return record.encode(made._replace(properties=properties + made.properties))


def item(body: bytes, properties: bytes, flag: int = 0) -> bytes:
    size = 22 + len(body) + len(properties)
    return struct.pack(">5i", size, 0, 0, flag, len(body)) + body + struct.pack(">H", len(properties)) + properties


def one_by_one(batch: bytes) -> tuple[bytes, list[int], list[int]] | None:
    """What each message of a batch becomes; None: one of them is refused."""
    made, at = [], 0
    while at < len(batch):
        size, _, _, flag, length = struct.unpack_from(">5i", batch, at)
        body, properties = batch[at + 20 : at + 20 + length], batch[at + 22 + length : at + size]
        made.append(record.draft(TOPIC, body, properties, flag=flag, born_timestamp=5, born_host=HOST))
        at += size
    found = slowly(b"".join(made))
    return None if found is None else (b"".join(made), [*found.sizes], [*found.tags_codes])


def test_many_drafts_are_drafts() -> None:
    """Also of RocketMQ 4, which leaves out the last mark; any odd message among them is left to the slow way."""
    chance = random.Random(2)
    for turn in range(60):
        said = [(chance.randbytes(1 + (chance.randrange(50) if turn % 2 else 9)), chance.choice(USUAL[:4])) for _ in range(MANY)]
        said = [(body, properties[: -1 if turn % 3 == 0 else None]) for body, properties in said]
        if turn % 4 == 0:  # all alike
            said = [(chance.randbytes(turn + 1), b"TAGS\x01a\x02KEYS\x01%03d\x02" % chance.randrange(999)) for _ in range(MANY)]
        flags = [chance.randrange(-(1 << 31), 1 << 31) for _ in said]
        made = draft_many(TOPIC, b"".join(item(*one, flag) for one, flag in zip(said, flags, strict=True)), 5, HOST, 2)
        given = {"born_timestamp": 5, "born_host": HOST, "reconsume_times": 2}
        expected = [record.draft(TOPIC, *one, flag=flag, **given) for one, flag in zip(said, flags, strict=True)]  # type: ignore[arg-type]
        data = b"".join(expected)
        assert made == (data, [*map(len, expected)], [*check(data, TOPIC).tags_codes])
        whole = b"".join(item(*one) for one in said)
        for _ in range(10):
            flipped = bytearray(whole)
            flipped[chance.randrange(len(whole))] ^= 1 << chance.randrange(8)
            found = draft_many(TOPIC, bytes(flipped), 5, HOST, 0)
            assert found is None or found == one_by_one(bytes(flipped))
        for odd in (
            *(item(b"x", text) for text in ODD[:5]),
            item(b"", b""),
            b"x",
            item(b"x", b"")[:-1],
            struct.pack(">6i", *[24] * 6),
        ):
            assert draft_many(TOPIC, whole + odd, 5, HOST, 0) is None
        assert draft_many(TOPIC, whole, 5, bytes(20), 0) is None
        assert draft_many(TOPIC, whole, 1 << 63, HOST, 0) is None


def test_many_are_stamped_as_one_after_the_other() -> None:
    chance = random.Random(3)
    for turn in range(40):
        groups, run, position = [], bytearray(chance.randbytes(chance.randrange(30))), 0
        for queue_id in range(1 + turn % 4):
            position = len(run)
            parts = drafts(chance, shaped=turn % 2 == 0)
            run += b"".join(parts)
            groups.append((position, [*map(len, parts)], queue_id, chance.randrange(1 << 40)))
        stored, base = chance.randbytes(16), chance.randrange(1 << 50)
        one_by_one = bytearray(run)
        record.stamp(one_by_one, groups, base, stored)
        assert stamp_many(run, groups, base, stored)
        assert run == one_by_one


def test_records_from_ipv6_are_stamped_one_by_one() -> None:
    parts = [record.draft(TOPIC, b"b", b"", born_timestamp=1, born_host=host) for host in [HOST] * MANY + [bytes(20)]]
    run = bytearray(b"".join(parts))
    before = bytes(run)
    assert not stamp_many(run, [(0, [*map(len, parts)], 0, 0)], 0, bytes(16))
    assert not stamp_many(run, [(0, [len(parts[0])] * MANY, 0, 0)], 0, bytes(28))
    assert run == before
    parts = [record.draft(TOPIC, b"b", b"", born_timestamp=1, born_host=bytes(20))] * MANY
    assert not stamp_many(bytearray(b"".join(parts)), [(0, [*map(len, parts)], 0, 0)], 0, bytes(16))

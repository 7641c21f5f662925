"""Pulls whose header looks like an earlier one are read without parsing, and mean the same."""

import json
import random
from typing import Any

import pytest
from hypothesis import given, strategies as st

from rmq.errors import BadBytes
from rmq.net.codec.frames import Received, decode_frame
from rmq.net.commands import Pull, PullAnswer
from rmq.net.remoting import pulls
from rmq.net.remoting.codec import Remoting, RemotingSettings
from rmq.net.remoting.headers import ANSWER_FLAG, write

FIELDS = {
    "consumerGroup": "g", "topic": "T", "queueId": "3", "queueOffset": "128", "maxMsgNums": "32", "sysFlag": "4",
    "commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0", "expressionType": "TAG",
}  # fmt: skip


def frame(fields: dict[str, str], opaque: object = 7, flag: int = 0, order: random.Random | None = None, **more: Any) -> bytes:
    names = list(fields)
    header = {"code": 11, "extFields": {}, "flag": flag, "language": "JAVA", "opaque": opaque, "version": 513, **more}
    keys = list(header)
    if order is not None:
        order.shuffle(names)
        order.shuffle(keys)
    header["extFields"] = {name: fields[name] for name in names}
    text = json.dumps({key: header[key] for key in keys}, separators=(",", ":")).encode()
    return len(text).to_bytes(4, "big") + text


def codec() -> Remoting:
    return RemotingSettings().codec(("127.0.0.1", 1))


def meant(received: Received) -> tuple[object, ...]:
    thing, call_id, oneway, context, size = received
    return thing, call_id, oneway, context.header._replace(opaque=0), context.quoted, size  # type: ignore[attr-defined]


@pytest.mark.parametrize("seed", range(30))
def test_they_mean_what_they_mean_to_one_who_never_saw_such(seed: int) -> None:
    """Whatever the order of the fields, which is another one for each client."""
    chance, learnt = random.Random(seed), codec()
    fields = FIELDS | chance.choice(({}, {"liteTopic": "lite"}, {"subscription": 'a"queueOffset":"5" || "opaque":5,'}))
    order = chance.randrange(1000)
    for _ in range(20):
        wanted = fields | {"queueOffset": str(chance.choice((0, 5, 10**17, 10**18, 10**19, -1, "007", chance.randrange(10**6))))}
        wanted["commitOffset"] = str(chance.choice((0, -1, chance.randrange(10**6))))
        wanted["queueId"] = str(chance.randrange(2))
        data = frame(wanted, chance.choice((1, -1, 0, 10**8, 2**31 - 1)), chance.choice((0, 2)), random.Random(order))
        found, plain = decode_frame(learnt, data), decode_frame(codec(), data)
        if isinstance(plain[0], Pull):
            assert type(found[0]) is Pull
            assert meant(found) == meant(plain)
        else:
            assert str(found[0]) == str(plain[0])


@given(st.lists(st.tuples(st.integers(0, 400), st.integers(0, 7)), max_size=2), st.integers(0, 10**6), st.integers(0, 10**6))
def test_one_that_is_as_long_as_a_known_one_means_what_it_says(flips: list[tuple[int, int]], offset: int, opaque: int) -> None:
    """Bits are flipped, and lengths are wrong."""
    learnt = codec()
    for value in (7, 77, 7_777):
        for known in (FIELDS, FIELDS | {"topic": "TT", "queueId": "3", "consumerGroup": ""}, FIELDS | {"subscription": "a||b"}):
            decode_frame(learnt, frame(known | {"queueOffset": str(value)}, value))
    data = bytearray(frame(FIELDS | {"queueOffset": str(offset)}, opaque))
    for at, bit in flips:
        if at < len(data):
            data[at] ^= 1 << bit
    seen = []
    for one in (learnt, codec()):
        try:
            found = decode_frame(one, bytes(data))
        except BadBytes as error:
            seen.append(str(error))
        else:
            seen.append(str(meant(found) if isinstance(found[0], Pull) else found[0]))
    assert seen[0] == seen[1]


def test_of_two_shapes_of_one_length_none_is_taken_for_the_other() -> None:
    """What is between the values of one, with a 0 in their places, is also that of the other; but they are elsewhere."""
    learnt = codec()
    wanted = FIELDS | {"queueOffset": "10", "commitOffset": "0", "subVersion": "100"}
    for fields in (
        wanted,
        wanted | {"queueOffset": "0", "commitOffset": "10"},
        wanted | {"queueOffset": "100", "subVersion": "10"},
    ):
        for opaque in (1, 10, 100):
            data = frame(fields, opaque)
            assert meant(decode_frame(learnt, data)) == meant(decode_frame(codec(), data))


def test_a_field_that_comes_twice_is_not_learnt() -> None:
    learnt = codec()
    data = frame(FIELDS).replace(b'"queueId"', b'"queueOffset":"5","queueId"')
    data = (len(data) - 4).to_bytes(4, "big") + data[4:]
    for value in (b"6", b"7"):
        other = data.replace(b'"5"', b'"' + value + b'"')
        assert decode_frame(learnt, other)[0] == decode_frame(codec(), other)[0]


def test_an_answer_is_written_as_any_other() -> None:
    asked = decode_frame(codec(), frame(FIELDS, 12))[3]
    for answer in (PullAnswer(160, 0, 7500, b"messages"), PullAnswer(160, 3, 2**60, b"", 19, 2), PullAnswer(0, 0, 0, b"", 21)):
        for remark in ("FOUND", "", 'odd "opaque":0 %d % x'):
            expected = write(False, answer.status, ANSWER_FLAG, 12, remark, pulls.pull_ext(answer), answer.messages)
            assert codec().answer(12, asked, answer, remark) == expected
            assert b"".join(codec().found(12, asked, answer, remark)) == expected

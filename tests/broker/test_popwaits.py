"""Waiting pops: a message wakes one of each group that wants it, what nobody waits for any more is forgotten."""

import asyncio

import pytest

from rmq.broker.pending import popwaits
from rmq.broker.pending.popwaits import PopWaits
from rmq.broker.shared import longpoll
from rmq.broker.shared.longpoll import LongPolls
from rmq.delivery.shares import Owner, Share

OWNER = Owner(1, "10.0.0.1")
T = ["T", "%RETRY%g_T"]


async def held(
    waits: PopWaits, group: str = "g", queue_id: int = -1, codes: frozenset[int] | None = None, **fields: object
) -> "asyncio.Future[bool]":
    waiter = waits.hold(
        (group, "T", queue_id), fields.pop("topics", T), codes, 100.0, fields.pop("alive", lambda: True), OWNER, 1, **fields
    )
    assert waiter is not None
    return waiter


async def test_one_of_each_group_and_the_first_come() -> None:
    polls = LongPolls()
    waits = PopWaits(polls)
    first, second, other = await held(waits), await held(waits), await held(waits, "h")
    assert (len(polls), waits.count(("g", "T", -1))) == (2, 2)
    polls.wake("T", 3, [7])
    assert (first.done(), second.done(), other.done()) == (True, False, True)
    assert first.result()
    polls.wake("%RETRY%g_T", 0, [0])
    assert second.result()
    assert len(polls) == 0, "nobody waits for these topics"
    polls.wake("T", 0, [7])


async def test_queue_and_tags_are_looked_at() -> None:
    polls = LongPolls()
    waits = PopWaits(polls)
    red, queue_2 = await held(waits, codes=frozenset({1})), await held(waits, queue_id=2)
    polls.wake("T", 1, [5])
    assert not red.done()
    assert not queue_2.done()
    polls.wake("T", 2, [5, 1])
    assert red.result()
    assert queue_2.result()


async def test_who_is_gone_takes_no_message_away() -> None:
    polls = LongPolls()
    waits = PopWaits(polls)
    gone, here = await held(waits), await held(waits)
    gone.cancel()
    waits.freed("g", "T", 0)
    assert here.result()
    waits.sweep(1.0)
    assert len(polls) == 0


async def test_time_ends_and_the_connection_too() -> None:
    polls = LongPolls()
    waits = PopWaits(polls)
    late, dead, ordered = await held(waits), await held(waits, "h", alive=lambda: False), await held(waits, "o", ordered=True)
    waits.sweep(99.0)
    assert (late.done(), dead.result(), ordered.result()) == (False, False, True)
    waits.sweep(100.0)
    assert not late.result()
    last = await held(waits, topics=["%RETRY%g", "%RETRY%g"])
    polls.wake_all()
    assert not last.result()
    assert len(polls) == 0


async def test_not_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(popwaits, "MAX_OF_QUEUE", 2)
    waits = PopWaits(LongPolls())
    for _ in range(2):
        await held(waits)
    assert waits.hold(("g", "T", -1), T, None, 100.0, lambda: True, OWNER, 1) is None
    await held(waits, "h")


async def test_pops_and_pulls_wait_in_the_same_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(longpoll, "HELD_BYTES", Share(of_connection=10, of_address=10, in_all=10))
    polls = LongPolls()
    waits = PopWaits(polls)
    waiter = waits.hold(("g", "T", -1), T, None, 100.0, lambda: True, OWNER, 10)
    assert waiter is not None
    assert waits.hold(("h", "T", -1), T, None, 100.0, lambda: True, OWNER, 1) is None
    assert waits.count(("h", "T", -1)) == 0
    polls.wake_all()
    assert polls.shares.taken == 0

"""Pulls that wait: what wakes them, what ends them, and that they are answered once."""

import asyncio

import pytest

from rmq.broker.shared import longpoll
from rmq.broker.shared.longpoll import HeldPull, LongPolls
from rmq.codes import ResponseCode as R
from rmq.delivery.shares import Owner, Share
from rmq.errors import Refusal
from rmq.model import GroupConfig
from rmq.net.commands import DeleteTopic, Ping, PullAnswer, UpdateGroup, UpdateTopic
from rmq.testing import LocalBroker
from tests.broker.conftest import Connect
from tests.broker.support import HELD, Peer, beat, bodies, send
from tests.compared import Name

OWNER = Owner(1, "10.0.0.1")


async def waiting(peer: Peer, offset: int = 0, flag: int = HELD, **fields: object) -> "asyncio.Task[PullAnswer]":
    """A pull that the broker holds: it has come, and is not answered. Nothing but its deadline ends it by time."""
    fields.setdefault("suspend_timeout_millis", 60_000)
    task = asyncio.create_task(peer.pull("T", offset, flag=flag, **fields))
    await asyncio.sleep(0)
    await peer.ask(Ping())  # answered behind the pull, had that been answered at once
    assert not task.done()
    return task


async def test_a_message_wakes_the_pull(peer: Peer, broker: LocalBroker, connect: Connect) -> None:
    pull = await waiting(peer)
    await (await connect(broker)).send(send("T", b"hello"))
    assert bodies(await pull) == [b"hello"]


async def test_only_a_matching_tag_wakes(peer: Peer) -> None:
    """C14; the messages in between are examined with it."""
    pull = await waiting(peer, subscription="A || B")
    await peer.send(send("T", b"c", tags="C"), send("T", b"none"), send("T", b"other queue", queue_id=1, tags="A"))
    await peer.ask(Ping())
    assert not pull.done()
    await peer.send(send("T", b"b", tags="B"))
    answer = await pull
    assert (bodies(answer), answer.next_begin_offset) == ([b"b"], 3)


async def test_everybody_who_waits_is_woken(broker: LocalBroker, connect: Connect) -> None:
    peers = [await connect(broker, f"c{n}") for n in range(3)]
    pulls = [await waiting(peer) for peer in peers]
    await peers[0].send(send("T", b"x"))
    assert [bodies(answer) for answer in await asyncio.gather(*pulls)] == [[b"x"]] * 3


async def test_at_the_deadline_it_is_told_that_nothing_came(broker: LocalBroker, peer: Peer) -> None:
    pull = await waiting(peer, suspend_timeout_millis=15_000)
    await broker.clock.advance(14)
    await peer.ask(Ping())
    assert not pull.done()
    await broker.clock.advance(3)
    assert (await pull).status == R.PULL_NOT_FOUND


async def test_nobody_waits_longer_than_a_minute(broker: LocalBroker, peer: Peer) -> None:
    """D18: a peer that vanished without a word is not kept for ever."""
    pull = await waiting(peer, suspend_timeout_millis=2**62)
    await broker.clock.advance(62)
    assert (await pull).status == R.PULL_NOT_FOUND


async def test_without_the_flag_nobody_waits(peer: Peer) -> None:
    assert (await peer.pull("T", 0, flag=4)).status == R.PULL_NOT_FOUND


async def test_a_connection_that_went_is_forgotten(broker: LocalBroker, connect: Connect, peer: Peer) -> None:
    gone = await connect(broker, "gone")
    pull = asyncio.gather(await waiting(gone), return_exceptions=True)
    await gone.close()
    await pull
    await peer.send(send("T", b"x"))
    assert bodies(await peer.pull("T", 0)) == [b"x"]


async def test_a_new_subscription_takes_hold_of_waiting_pulls(peer: Peer) -> None:
    """C14: who waits by the old tags is sent to ask again, and misses nothing."""
    await peer.ask(beat("c", "g", expression="A", version=1))
    await peer.send(send("T", b"b", tags="B"))
    assert (await peer.pull("T", 0, flag=2, sub_version=1)).next_begin_offset == 1
    pull = await waiting(peer, offset=1, flag=2, sub_version=1)
    await peer.ask(beat("c", "g", expression="B", version=2))
    assert (await pull).status == R.PULL_NOT_FOUND
    pull = await waiting(peer, offset=1, flag=2, sub_version=2)
    await peer.send(send("T", b"b2", tags="B"))
    assert bodies(await pull) == [b"b2"]


async def test_a_deleted_topic_ends_the_wait(broker: LocalBroker, connect: Connect, peer: Peer) -> None:
    """And a topic of that name made later is not read through the old one's queue."""
    pull = asyncio.gather(await waiting(peer), return_exceptions=True)
    await (await connect(broker)).ask(DeleteTopic("T"))
    (refusal,) = await pull
    assert isinstance(refusal, Refusal)
    assert refusal.code == R.TOPIC_NOT_EXIST


async def test_closing_a_topic_or_a_group_to_readers_ends_the_wait(peer: Peer) -> None:
    pull = asyncio.gather(await waiting(peer), return_exceptions=True)
    await peer.ask(UpdateTopic("T", read_queue_nums=4, write_queue_nums=4, perm=2))
    assert [error.code for error in await pull if isinstance(error, Refusal)] == [R.NO_PERMISSION]
    await peer.ask(UpdateTopic("T", read_queue_nums=4, write_queue_nums=4, perm=6))
    pull = asyncio.gather(await waiting(peer), return_exceptions=True)
    await peer.ask(UpdateGroup(GroupConfig("g", consume_enable=False)))
    assert [error.code for error in await pull if isinstance(error, Refusal)] == [R.NO_PERMISSION]


async def test_a_stopping_broker_answers_who_waits(broker: LocalBroker, peer: Peer) -> None:
    pull = await waiting(peer)
    await broker.stop_broker()
    assert (await pull).status == R.PULL_NOT_FOUND


def held(log: list[str], name: str, deadline: float = 10.0, codes: set[int] | None = None, alive: bool = True) -> HeldPull:
    wanted = None if codes is None else frozenset(codes)
    return HeldPull(name, deadline, wanted, lambda _: log.append(name), lambda: alive, OWNER, 1)


def test_bookkeeping() -> None:
    polls, log = LongPolls(), list[str]()
    for name, deadline, codes, alive in (("all", 10.0, None, True), ("one", 10.0, {1}, True), ("two", 5.0, {2}, True)):
        assert not polls.hold("T", 0, held(log, name, deadline, codes, alive))
    polls.hold("U", 0, held(log, "gone", 99.0, None, False))
    assert len(polls) == 4
    polls.wake("T", 0, (1, 7))
    assert (log, len(polls)) == (["all", "one"], 2)
    polls.sweep(4.9)
    assert (log, len(polls)) == (["all", "one"], 1), "the dead one is dropped unanswered"
    polls.sweep(5.0)
    assert (log, len(polls)) == (["all", "one", "two"], 0)


def test_a_topic_that_changes_is_not_compared_with_all_for_which_somebody_waits() -> None:
    """Thousands change together when a topic with lite topics is deleted."""
    polls, log = LongPolls(), list[str]()
    for number in range(100):
        polls.hold(Name(f"T{number}"), 0, held(log, f"pull {number}"))
    Name.compared = 0
    polls.topic_changed("T7")
    polls.topic_changed("nobody's")
    assert (log, len(polls)) == (["pull 7"], 99)
    assert Name.compared < 5


def test_one_that_is_woken_may_wait_again() -> None:
    """What `again` does while others are gone through neither loses nor repeats anybody."""
    polls, log = LongPolls(), list[str]()

    def again(_may_wait: bool) -> None:
        log.append("again")
        polls.hold("T", 0, held(log, "second"))

    polls.hold("T", 0, HeldPull("g", 10.0, None, again, lambda: True, OWNER, 1))
    polls.hold("T", 0, held(log, "other", codes={3}))
    polls.wake("T", 0, (1,))
    assert (log, len(polls)) == (["again"], 2)
    polls.wake_all()
    assert sorted(log) == ["again", "other", "second"]
    assert len(polls) == 0


def test_what_waits_is_bounded_by_bytes_for_each_peer_and_in_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(longpoll, "HELD_BYTES", Share(of_connection=30, of_address=50, in_all=70))
    polls, log = LongPolls(), list[str]()

    def hold(connection: int, address: str, size: int) -> str:
        return polls.hold("T", 0, held(log, f"{connection}")._replace(owner=Owner(connection, address), size=size))

    assert not hold(1, "a", 30)
    assert "30" in hold(1, "a", 1)
    assert not hold(2, "a", 20)
    assert "50" in hold(3, "a", 1)
    assert not hold(4, "b", 20)
    assert "70" in hold(5, "c", 1)
    polls.wake_all()
    assert polls.shares.taken == 0
    assert not hold(1, "a", 30), "what went leaves room"


async def test_one_client_does_not_end_the_waiting_of_others(
    broker: LocalBroker, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is refused what is above its share; a pull of another one waits all the same."""
    monkeypatch.setattr(longpoll, "HELD_BYTES", Share(of_connection=4096, of_address=1 << 20, in_all=1 << 20))
    await broker.stop_broker()
    await broker.start_broker()
    greedy, good = await connect(broker, "greedy"), await connect(broker, "good")
    many = [asyncio.create_task(greedy.pull("T", 0, flag=HELD, suspend_timeout_millis=60_000)) for _ in range(20)]
    _, held_ones = await asyncio.wait(many, return_when=asyncio.FIRST_COMPLETED)
    await greedy.ask(Ping())
    refused = [task.exception() for task in many if task.done()]
    assert len(refused) >= 15
    assert {error.code for error in refused if isinstance(error, Refusal)} == {R.SYSTEM_BUSY}
    pull = await waiting(good)
    await good.send(send("T", b"x"))
    assert bodies(await pull) == [b"x"]
    answers = await asyncio.gather(*held_ones, return_exceptions=True)
    assert {bytes(body) for one in answers if not isinstance(one, BaseException) for body in bodies(one)} == {b"x"}

"""Transactions, locks and POP of RocketMQ's clients that talk to a member which does not lead, over a change of leader."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from rmq.codes import RequestCode, ResponseCode as R
from rmq.model import MessageQueue
from rmq.net.commands import UpdateTopic
from rmq.net.commands.locks import LockQueues, UnlockQueues
from rmq.net.commands.peers import TransferLeader
from rmq.net.commands.transactions import COMMIT, EndTransaction
from rmq.net.remoting.headers import Header
from rmq.testing import TestClock
from tests.broker.groups import GROUP, LocalGroup
from tests.broker.javaclient import JavaClient
from tests.broker.pair import Pair
from tests.broker.popping import ack, bodies, change, pop, popped
from tests.broker.support import Peer, beat, everything, send
from tests.net.java_peer import read_answer

MAKE = UpdateTopic("T", read_queue_nums=1, write_queue_nums=1)
TRANSACTION = "UNIQ_KEY\x01A1\x02TRAN_MSG\x01true\x02PGROUP\x01p\x02"


class Place(NamedTuple):
    """`java` talks to a node that does not lead, or soon leads no more. `cross()` changes the leader, or starts it again."""

    broker: str
    java: JavaClient
    clock: TestClock
    leader: Callable[[], Awaitable[Peer]]
    cross: Callable[[], Awaitable[None]]

    async def ask(self, request: Any) -> Any:
        header, body = await self.answer(request)
        assert header.code in (R.SUCCESS, R.POLLING_TIMEOUT), (request, header.code, header.remark)
        return read_answer(header, body, type(request))

    async def answer(self, request: Any) -> tuple[Header, bytes]:
        answer = self.java.ask(request)
        await self.clock.advance_until(answer.done, 0.05)
        return await answer


@asynccontextmanager
async def _elected(folder: Path, at_leader: bool) -> AsyncIterator[Place]:
    async with LocalGroup(folder) as group:
        first = await group.leader()
        await (await group.connect(first)).ask(MAKE)
        await group.level()
        name = first if at_leader else (await group.followers())[0]

        async def leader() -> Peer:
            return await group.connect(await group.leader())

        async def cross() -> None:
            now = await group.leader()
            to = next(one for one in group.nodes if one not in (now, name))
            await (await group.connect(now)).ask(TransferLeader(to))
            await group.leader(but=now)

        async with JavaClient.connect(group.address(name)) as java:
            yield Place(GROUP, java, group.clock, leader, cross)


@asynccontextmanager
async def _fixed(folder: Path) -> AsyncIterator[Place]:
    pair, connections = Pair(folder), []
    await pair.begin()
    await pair.start(0, "ASYNC_MASTER")
    await pair.start(1, "SLAVE")

    async def leader() -> Peer:
        connections.append(await Peer.connect(pair.nodes[0].address))
        return connections[-1]

    async def cross() -> None:
        await pair.stop(0)
        await pair.start(0, "ASYNC_MASTER")

    await (await leader()).ask(MAKE)
    await pair.level()
    async with JavaClient.connect(pair.nodes[1].address) as java:
        yield Place("g", java, pair.clock, leader, cross)
    for one in connections:
        await one.close()
    for number in list(pair.nodes):
        await pair.stop(number)
    await pair.nameserver.stop()


@pytest.fixture(params=["a follower", "the leader before", "a slave"])
async def place(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Place]:
    at: str = request.param
    async with _fixed(tmp_path) if at == "a slave" else _elected(tmp_path, at == "the leader before") as place:
        yield place


async def test_a_transaction_begins_at_one_leader_and_ends_at_the_next(place: Place) -> None:
    """Java ends it one-way, at the address that it took for the leader's when it began."""
    await place.ask(beat("me@1"))
    sent, _ = await place.java.send(b"half", i=TRANSACTION, f="4")
    assert sent.code == 0
    await place.cross()
    await place.ask(beat("me@1"))
    place.java.tell(_end(sent.ext["queueOffset"], sent.ext["msgId"]))
    await _until_stored(place, [b"half"])


async def test_the_next_leader_asks_a_producer_that_is_elsewhere(place: Place) -> None:
    """After what became of its transaction, through the node that it talks to, where it answers, too."""
    await place.ask(beat("me@1"))
    assert (await place.java.send(b"half", i=TRANSACTION, f="4"))[0].code == 0
    await place.cross()
    checks: list[Header] = []

    def asked() -> bool:
        checks[:] = [header for header, _ in place.java.pushed if header.code == RequestCode.CHECK_TRANSACTION_STATE]
        return bool(checks)

    await place.clock.advance_until(asked, 0.5)
    ext = checks[0].ext
    place.java.tell(
        EndTransaction(
            "p", int(ext["tranStateTableOffset"]), int(ext["commitLogOffset"]), COMMIT, ext["msgId"], True, ext["transactionId"]
        )
    )
    await _until_stored(place, [b"half"])


def _end(queue_offset: str, message_id: str) -> EndTransaction:
    return EndTransaction("p", int(queue_offset), int(message_id[-16:], 16), COMMIT, "A1")


async def _until_stored(place: Place, wanted: list[bytes]) -> None:
    leader, found = await place.leader(), None
    for _ in range(100):
        found = [one.body for one in await everything(leader)]
        if found == wanted:
            return
        await place.clock.advance(0.1)
    raise AssertionError(found)


async def test_locks_are_the_same_before_and_after(place: Place) -> None:
    mine = [MessageQueue("T", place.broker, 0)]

    async def lock(client: str) -> list[Any]:
        _, body = await place.answer(LockQueues("g", client, mine))
        found: list[Any] = json.loads(body)["lockOKMQSet"]
        return found

    await place.ask(beat("me@1", "g"))
    assert await lock("me@1")
    await place.cross()
    assert await lock("me@1")
    assert not await lock("other@2")
    place.java.tell(UnlockQueues("g", "me@1", mine))
    assert await lock("other@2")


async def test_what_was_popped_at_one_leader_is_acknowledged_at_the_next(place: Place) -> None:
    """One message is done before, one after; one is kept for longer at each of them; one comes again."""
    await place.ask(beat("me@1", "g"))
    await (await place.leader()).send(*(send("T", b"%d" % number) for number in range(5)))
    got = await _pop(place)
    assert bodies(got) == [b"0", b"1", b"2", b"3", b"4"]
    await ack(place.ask, got[0])
    longer = await change(place.ask, got[1], 600_000)
    await place.cross()
    await ack(place.ask, got[2], longer)
    await change(place.ask, got[3], 600_000)
    assert (await place.answer(pop()))[0].code == R.POLLING_TIMEOUT
    again: list[bytes] = []
    for _ in range(100):
        await place.clock.advance(1.0)
        again += bodies(await _pop(place))
        if again:
            break
    assert again == [b"4"]


async def _pop(place: Place) -> Any:
    request = pop()
    header, body = await place.answer(request)
    return popped(read_answer(header, body, type(request)), request) if header.code == 0 else []

"""A store that an earlier build wrote is served as that build left it: D17. `earlierstore.py` says what is in it."""

from collections.abc import AsyncIterator, Iterable
from pathlib import Path

import pytest

from rmq.client import Client, Decision, ReceivedMessage
from rmq.client.admin import access, calls, lookups
from rmq.log.files.disk import RealDisk
from rmq.log.repair.verify import Finding, Verifier
from rmq.testing import INDEX_SLOTS, LocalBroker, TestClock
from tests import archives
from tests.broker.earlierstore import BEGAN_MS, SETTINGS, write

ARCHIVE = Path(__file__).parents[1] / "data" / "earlier" / "2026-11-28.tar.xz"


def damage(store: Path) -> list[Finding]:
    return [finding for finding in Verifier(RealDisk(), str(store), INDEX_SLOTS).run().findings if finding.damage]


@pytest.fixture(params=["stopped", "killed"])
async def broker(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[LocalBroker]:
    archives.unpack(ARCHIVE, tmp_path)
    store = tmp_path / request.param
    async with LocalBroker(clock=TestClock(wall_ms=BEGAN_MS + 100_000), store_dir=store, **SETTINGS) as broker:
        yield broker
    assert damage(store) == []


@pytest.fixture
async def client(broker: LocalBroker) -> AsyncIterator[Client]:
    async with broker.client() as client:
        yield client


async def first_of(client: Client, topic: str, count: int) -> list[ReceivedMessage]:
    """What a group that is new gets of it."""
    found: list[ReceivedMessage] = []
    async with client.consumer(f"new-{topic}", topic, start="first") as consumer:
        while len(found) < count:
            found += await consumer.receive()
    return found


def bodies(messages: Iterable[ReceivedMessage]) -> list[bytes]:
    return sorted(message.body for message in messages)


async def test_messages_topics_groups_and_offsets(broker: LocalBroker, client: Client) -> None:
    plain = {message.body: message for message in await first_of(client, "Plain", 24)}
    assert plain.keys() == {
        b"long " * 2000,
        *(b"plain-%d" % number for number in range(1, 20)),
        *(b"light-%d" % number for number in range(4)),
    }
    assert (plain[b"plain-7"].tags, plain[b"plain-7"].keys, plain[b"plain-7"].properties["n"]) == ("odd", ["key-7"], "7")
    progress = await calls.consume_stats(client, "readers", "Plain")
    assert sum(queue.consumer_offset for queue in progress.queues) == 24
    assert bodies(await first_of(client, "Batches", 5)) == [b"batch-%d" % number for number in range(5)]
    assert {b"value-4", b"value-5"} <= set(bodies(await first_of(client, "Keys", 2)))
    assert bodies(await first_of(client, "Urgent", 4)) == [b"urgent-%d" % number for number in range(4)]
    assert bodies(await first_of(client, "%DLQ%failers", 1)) == [b"dead"]
    kinds = [(await calls.topic_config(client, topic, broker.address)).attributes for topic in ("Keys", "Rooms", "Urgent")]
    assert kinds == [{"cleanup.policy": "COMPACTION"}, {"message.type": "LITE"}, {"message.type": "PRIORITY"}]
    assert "Gone" not in await calls.topic_list(client)
    assert (await calls.group_config(client, "takers", broker.address)).attributes == {"lite.bind.topic": "Rooms"}
    assert [user.username for user in await access.users_at(client, broker.address)] == ["ann"]


async def test_keys_and_light_queues(client: Client) -> None:
    assert [hit.body for hit in (await lookups.by_key(client, "Plain", "key-7")).messages] == [b"plain-7"]
    for name, wanted in (("l0", [b"light-0", b"light-2"]), ("l1", [b"light-1", b"light-3"])):
        async with client.light_consumer("looking", name, "Plain") as reader:
            assert bodies(await reader.receive()) == wanted


async def test_what_waits_comes_once(broker: LocalBroker, client: Client) -> None:
    """C11, C13: by its level, by its time, at the end of its transaction; not what was recalled, rolled back, or deleted."""
    asked: list[bytes] = []

    def check(half: ReceivedMessage) -> Decision:
        asked.append(half.body)
        return Decision.COMMIT

    client.transaction_producer(check, "cashiers", topics="Halves")
    await broker.clock.advance_until(lambda: asked, step_s=5)
    assert bodies(await first_of(client, "Halves", 2)) == [b"COMMIT", b"UNKNOWN"]
    await broker.clock.advance(700)
    assert bodies(await first_of(client, "Later", 2)) == [b"by level", b"by time"]
    assert asked == [b"UNKNOWN"]
    assert sum(queue.max_offset for queue in (await calls.topic_stats(client, "Later")).queues) == 2


async def test_what_was_popped_comes_again_unless_it_was_acknowledged(broker: LocalBroker, client: Client) -> None:
    """C12."""
    async with client.simple_consumer("poppers", "Popped", start="first") as consumer:
        fresh = await consumer.receive(4)
        assert bodies(fresh) == [b"popped-2", b"popped-3"]
        for message in fresh:
            await consumer.ack(message)
        await broker.clock.advance(700)
        assert bodies(await consumer.receive(4)) == [b"popped-1"]


async def test_lite_topics_go_on_behind_what_was_acknowledged(client: Client) -> None:
    async with client.lite_consumer("takers", "Rooms", ["r0", "r1"]) as consumer:
        found: list[bytes] = []
        while len(found) < 3:
            found += [message.body for message in await consumer.receive()]
    assert sorted(found) == [b"room-1", b"room-2", b"room-3"]


async def test_the_program_that_writes_such_a_store_runs_with_the_build_of_today(tmp_path: Path) -> None:
    await write(tmp_path)
    assert [damage(tmp_path / name) for name in ("stopped", "killed")] == [[], []]

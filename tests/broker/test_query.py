"""Looking messages up at a real broker: by key, unique key, tag, id; while the index is behind, and after it was deleted."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from rmq.broker.shared import indexer
from rmq.codes import ResponseCode as R
from rmq.log.records import record
from rmq.net.commands import QueryMessage, QueryMessageAnswer, Send, SendAnswer, UpdateTopic, ViewMessage
from rmq.testing import LocalBroker
from tests.broker.conftest import Connect
from tests.broker.support import BORN, Peer

FOREVER_MS = 2**63 - 1


def keyed(topic: str, body: bytes, **properties: str) -> Send:
    draft = record.draft(topic, body, record.properties_to_bytes(properties), born_timestamp=1, born_host=BORN)
    return Send("p", topic, 0, draft)


def query(topic: str, key: str, limit: int = 64, **fields: Any) -> QueryMessage:
    return QueryMessage(topic, key, limit, fields.pop("begin", 0), fields.pop("end", FOREVER_MS), **fields)


async def bodies(peer: Peer, request: QueryMessage) -> list[bytes]:
    answer = await peer.ask(request)
    assert isinstance(answer, QueryMessageAnswer)
    assert answer.complete
    assert (answer.status == 0) == bool(answer.messages)
    return [one.body for one in record.iterate(answer.messages)]


async def test_a_message_is_found_as_soon_as_it_is_acknowledged(peer: Peer) -> None:
    """C16: by its unique key, each of its keys and its tag; nobody waits for the next turn of the index."""
    await peer.ask(keyed("T", b"one", UNIQ_KEY="A" * 32, KEYS="red  round", TAGS="new"))
    await peer.ask(keyed("T", b"two", UNIQ_KEY="B" * 32, KEYS="red", TAGS="new"))
    assert await bodies(peer, query("T", "A" * 32, unique_key_query=True)) == [b"one"]
    assert await bodies(peer, query("T", "red")) == [b"one", b"two"]
    assert await bodies(peer, query("T", "red", 1)) == [b"two"]
    assert await bodies(peer, query("T", "round", index_type="K")) == [b"one"]
    assert await bodies(peer, query("T", "new", index_type="T")) == [b"one", b"two"]
    assert await bodies(peer, query("T", "new")) == await bodies(peer, query("T", "red", index_type="T")) == []
    assert await bodies(peer, query("U", "red")) == await bodies(peer, query("T", "red", 0)) == []
    assert await bodies(peer, query("T", "")) == []


async def test_a_key_that_is_longer_than_any_is_refused(peer: Peer) -> None:
    """S7: its hash took half a second, beside all others, and 1024 of 2 MB were remembered."""
    await peer.ask(keyed("T", b"one", KEYS="k" * 30_000))
    assert await bodies(peer, query("T", "k" * 30_000)) == [b"one"]
    for wrong in (query("T", "k" * 32_748), query("t" * 256, "k"), query("T", "k" * 1_900_000, unique_key_query=True)):
        assert await peer.refusal(wrong) == R.INVALID_PARAMETER


async def test_the_window_of_time_is_that_of_the_store(broker: LocalBroker, peer: Peer) -> None:
    first: SendAnswer = await peer.ask(keyed("T", b"one", KEYS="k"))
    stored = record.decode((await peer.ask(ViewMessage(first.physical_offset))).message).store_timestamp
    await broker.clock.advance(5)
    await peer.ask(keyed("T", b"two", KEYS="k"))
    assert await bodies(peer, query("T", "k", end=stored)) == [b"one"]
    assert await bodies(peer, query("T", "k", begin=stored + 1)) == [b"two"]
    assert await bodies(peer, query("T", "k", end=stored - 1)) == []


async def test_at_most_64_and_the_newest(peer: Peer) -> None:
    await peer.ask(keyed("T", b"0", KEYS="k"))
    for number in range(1, 70):
        await peer.ask(keyed("T", b"%d" % number, KEYS="k"))
    assert await bodies(peer, query("T", "k", 1000)) == [b"%d" % number for number in range(6, 70)]
    assert await bodies(peer, query("T", "k", unique_key_query=True)) == [b"%d" % number for number in range(38, 70)]
    assert await bodies(peer, query("T", "k", -1)) == []


async def test_an_id_leads_to_its_message_and_nothing_else(peer: Peer) -> None:
    """R18, D9: an offset in the middle, behind the end, or of the broker's own records is no message."""
    answer: SendAnswer = await peer.ask(keyed("T", b"body", KEYS="k"))
    found = record.decode((await peer.ask(ViewMessage(answer.physical_offset, "anything"))).message)
    assert (found.topic, found.body, found.physical_offset) == ("T", b"body", answer.physical_offset)
    end = found.physical_offset + found.total_size
    for offset in (answer.physical_offset + 1, end, 1 << 40, -1, 0):  # at 0 stands this epoch's own record
        assert await peer.refusal(ViewMessage(offset)) == R.SYSTEM_ERROR


async def test_an_index_that_was_deleted_is_built_again(broker: LocalBroker, connect: Connect) -> None:
    """D10: it is served meanwhile; what is asked waits for it."""
    peer = await connect(broker)
    for number in range(200):
        await peer.ask(keyed("T", b"%d" % number, UNIQ_KEY=f"{number:032X}", KEYS=f"k{number % 10}"))
    await broker.stop_broker()
    files = sorted((broker.store_dir / "index").iterdir())
    assert [path.stat().st_size for path in files] == [40 + 4 * 10_000 + 20 * 40_000]
    shutil.rmtree(broker.store_dir / "index")
    await broker.start_broker()
    peer = await connect(broker)
    assert await bodies(peer, query("T", f"{77:032X}", unique_key_query=True)) == [b"77"]
    assert await bodies(peer, query("T", "k3")) == [b"%d" % number for number in range(3, 200, 10)]


async def test_what_may_be_incomplete_is_said(broker: LocalBroker, connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    """C16: with hits the answer says so; without any it is a refusal, so that nobody takes it for "there is none"."""
    peer = await connect(broker)
    await peer.ask(keyed("T", b"one", KEYS="k"))
    assert await bodies(peer, query("T", "k")) == [b"one"]
    monkeypatch.setattr(indexer, "WAIT_S", 0.0)
    await peer.ask(keyed("T", b"two", KEYS="k new"))
    answer = await peer.ask(query("T", "k"))
    assert not answer.complete
    assert [one.body for one in record.iterate(answer.messages)] == [b"one"]
    assert await peer.refusal(query("T", "new")) == R.SYSTEM_BUSY
    monkeypatch.undo()
    assert await bodies(peer, query("T", "new")) == [b"two"]


async def test_without_an_index_the_question_is_refused(connect: Connect, tmp_path: Path) -> None:
    async with LocalBroker(message_index=False, store_dir=tmp_path) as broker:
        peer = await connect(broker)
        await peer.ask(UpdateTopic("T", read_queue_nums=1, write_queue_nums=1))
        answer: SendAnswer = await peer.ask(keyed("T", b"one", KEYS="k"))
        assert await peer.refusal(query("T", "k")) == R.SERVICE_NOT_AVAILABLE
        assert record.decode((await peer.ask(ViewMessage(answer.physical_offset))).message).body == b"one"
        assert not (tmp_path / "index").exists()

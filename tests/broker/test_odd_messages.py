"""Whatever a client may store stops nothing that is derived from it: index, queues, timers, halves, receipts, exports, Spark."""

import asyncio
import json
import logging
import shutil
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgpack
from hypothesis import HealthCheck, Phase, given, settings, strategies as st

from rmq.broker.tables.tables import Tables
from rmq.delivery.groups import GroupTable
from rmq.delivery.offsets import OffsetTable
from rmq.errors import Refusal
from rmq.log.files.disk import ReadOnlyDisk
from rmq.log.records import record
from rmq.log.records.record import Record
from rmq.log.repair.verify import Verifier
from rmq.model import DELAY_TOPIC, HALF_TOPIC, OP_TOPIC, REVIVE_PREFIX, TIMER_TOPIC, TopicConfig
from rmq.net.commands import QueryMessage, Send
from rmq.net.commands.retries import SendBack
from rmq.routing.topics import TopicTable
from rmq.testing import LocalBroker
from tests.broker.popping import ack, take
from tests.broker.support import BORN, Peer, beat, everything
from tests.broker.transactions import COMMIT, ROLLBACK, checks, end
from tests.net import java_peer

FOREVER_MS = 2**63 - 1
DAY_MS = 86_400_000
SETTINGS: dict[str, Any] = {
    "idle_timeout_ms": DAY_MS,
    "client_expiry_ms": 3_600_000,
    "transaction_check_max": 2,
    "index_slots": 100,
    "index_entries": 400,
    "segment_bytes": 1 << 20,
    "max_message_bytes": 60_000,
}

NAMES = [
    "UNIQ_KEY", "KEYS", "TAGS", "DELAY", "TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS", "TIMER_DEL_UNIQKEY", "TRAN_MSG",
    "PGROUP", "__transactionId__", "CHECK_IMMUNITY_TIME_IN_SECONDS", "TRANSACTION_CHECK_TIMES", "TRAN_PREPARED_QUEUE_OFFSET",
    "RETRY_TOPIC", "ORIGIN_MESSAGE_ID", "ORIGIN_GROUP", "MAX_RECONSUME_TIMES", "RECONSUME_TIME", "1ST_POP_TIME", "MIN_OFFSET",
    "__SHARDINGKEY", "WAIT", "INSTANCE_ID", "MSG_REGION", "TRACE_ON", "CLUSTER", "XRMQ_SRC", "XTAGS", "uniq_key", " ", "é", "a b",
]  # fmt: skip
"""Every name that something looks at, and some that only look like one. (Those kept for brokers are refused at the door.)"""

OWN_NAMES = ["RMQ_SRC", "REAL_TOPIC", "REAL_QID", "TIMER_OUT_MS", "INNER_MULTI_QUEUE_OFFSET", "POP_CK"]

VALUES = [
    "", " ", "  ", "a b", " a", "a ", "\t", "\n", "\0", "\x7f", "\x85", "\xa0", "\u2028", "\ufffd", "\ufeff", "😀", "中文 中文",
    "0", "-1", "+5", " 7 ", "1.5", "1e3", "0x10", "1_000", "²", "٣", "9" * 18, "9" * 19, "9" * 30, "9" * 5000, "-" + "9" * 18,
    "true", "TRUE", "True", "false", "null", "[]", "{", "%s %d", "../../x", "a;b", "a||b", "*",
    "due 1 2", "due x", "due 1 " + "9" * 5000, "half 0 0", "pop 1 1",
    "0123456789ABCDEF" * 2, "0123456789abcdef" * 2, "x" * 300, "F" * 64, "F" * 65, "中" * 64,
]  # fmt: skip

values = st.sampled_from(VALUES) | st.integers(-5, 400_000).map(str) | st.text(st.characters(codec="utf-8"), max_size=40)
pairs = st.lists(st.tuples(st.sampled_from(NAMES), values), max_size=6)
"""Of one message; a name may come twice."""
wide = st.sampled_from([0, 0, 0, 1, -1, 16, 2**31 - 1, -(2**31)])
moments_ms = st.sampled_from([0, 1, -1, 1_700_000_000_000, 2**63 - 1, -(2**63)])
hosts = st.sampled_from([BORN, bytes(20), b"\xff" * 8])
flags = st.sampled_from([0, 0, record.SYS_COMPRESSED, record.SYS_COMPRESSED | 0x100, record.SYS_PREPARED, record.SYS_MULTI_TAGS])


kinds = st.sampled_from([
    {}, {}, {"UNIQ_KEY": "a b"}, {"DELAY": "1"}, {"DELAY": "18"}, {"TIMER_DELAY_SEC": "5", "UNIQ_KEY": "k 1"},
    {"TIMER_DELAY_MS": "250000000"}, {"TIMER_DELAY_SEC": "5", "TIMER_DEL_UNIQKEY": "k 1"},
    {"TRAN_MSG": "true", "PGROUP": "p", "UNIQ_KEY": "half"}, {"TRAN_MSG": "TRUE", "PGROUP": " ", "DELAY": "2"},
])  # fmt: skip
"""Most of them wait for something; whatever else is drawn stands behind, and wins."""


@st.composite
def odd_messages(draw: st.DrawFn) -> Send:
    said = [*draw(kinds).items(), *draw(pairs)]
    properties = "".join(f"{name}\x01{value}\x02" for name, value in said if "\x02" not in value)
    made = record.draft(
        "T",
        draw(st.sampled_from([b"", b"body", b"\xff" * 100])),
        properties.encode(),
        flag=draw(wide),
        sys_flag=draw(flags),
        born_timestamp=draw(moments_ms),
        born_host=draw(hosts),
        reconsume_times=draw(wide),
    )
    return Send("p", "T", 0, made)


class Told(logging.Handler):
    """What was logged with a traceback: something that nobody foresaw."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def emit(self, one: logging.LogRecord) -> None:
        if one.exc_info:
            self.found.append(f"{one.getMessage()}: {one.exc_info[1]!r}")


async def allowed(peer: Peer, request: Any) -> Any:
    """The answer; None if it is refused with a reason (an internal error is none)."""
    try:
        return await peer.ask(request)
    except Refusal as refusal:
        why = str(refusal)
    assert "internal error" not in why
    return None


async def send_as_java(address: str, messages: Sequence[Send]) -> None:
    """The same messages by the other codec, where the broker itself makes records of them."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    for opaque, message in enumerate(messages):
        one = record.decode(message.records)
        properties = one.properties.decode().partition("__CRC32#")[0]
        fields = {
            "b": "T",
            "e": "0",
            "f": one.sys_flag & ~record.SYS_BORN_V6,
            "g": one.born_timestamp,
            "h": one.flag,
            "i": properties,
            "j": one.reconsume_times,
        }
        writer.write(java_peer.send_frame(opaque, one.body, **{name: str(value) for name, value in fields.items()}))
        answer = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
        assert b"internal error" not in answer
    writer.close()


class Play:
    """One life of a broker with such messages."""

    def __init__(self, broker: LocalBroker, peer: Peer) -> None:
        self.broker = broker
        self.peer = peer

    async def send(self, messages: Sequence[Send]) -> None:
        await self.peer.ask(beat("c", "g"))
        for message in messages:
            answer = await allowed(self.peer, message)
            if answer is not None and b"TRAN_MSG" in message.records and (how := answer.queue_offset % 3):
                await allowed(self.peer, end(answer, ROLLBACK if how == 1 else COMMIT))

    async def fail_and_pop(self) -> None:
        """Every message fails once, is popped, and every second one comes back by its receipt."""
        for stored in await everything(self.peer):
            await allowed(self.peer, SendBack(stored.physical_offset, "g", 0))
        while popped := await take(self.peer.ask, topic="T"):
            await ack(self.peer.ask, *popped[::2])
        await self.broker.clock.advance(70)
        while popped := await take(self.peer.ask, topic="T"):
            await ack(self.peer.ask, *popped)

    async def let_time_pass(self) -> None:
        """Until nothing waits: all delays and timers came, halves were asked after and put aside."""
        for _ in range(5):
            self.broker.clock.jump_wall(4 * DAY_MS)
            await self.broker.clock.advance(31)
            for question in checks(self.peer):
                await allowed(self.peer, end(question))

    async def look_up(self) -> list[Record]:
        """By each word that it carries, every message is found; there are fewer of one word than an answer holds."""
        found = await everything(self.peer)
        for stored in found:
            said = record.bytes_to_properties(stored.properties)
            words = [said.get("UNIQ_KEY", ""), *said.get("KEYS", "").split(" ")]
            for word, kind in [(word, "K") for word in words if word] + ([(said["TAGS"], "T")] if "TAGS" in said else []):
                answer = await self.peer.ask(QueryMessage("T", word, 64, 0, FOREVER_MS, index_type=kind))
                places = [one.physical_offset for one in record.iterate(answer.messages)]
                assert stored.physical_offset in places or len(places) == 64, (word, kind)
        return found


def rows_of(store: Path, body: str) -> int:
    from pyspark.sql.pandas.types import to_arrow_schema

    from analytics.records.batches import batches
    from analytics.spark.source import schema_of
    from analytics.stores.options import Wanted
    from analytics.stores.plan import plan

    wanted = Wanted(topics=frozenset({"T"}), body=body)
    schema = to_arrow_schema(schema_of(wanted), timezone="UTC")
    return sum(batch.num_rows for parts in plan(store, wanted) for batch in batches(parts, wanted, schema, ""))


async def play(messages: Sequence[Send], folder: Path) -> None:
    async with LocalBroker(store_dir=folder, **SETTINGS) as broker:
        await broker.create_topic("T", 1)
        play = Play(broker, await Peer.connect(broker.address))
        await play.send(messages)
        await send_as_java(broker.address, messages)
        await play.fail_and_pop()
        await play.let_time_pass()
        found = await play.look_up()
        await play.peer.close()
        await broker.stop_broker()
        check_files(folder, len(found))
        for derived in ("consumequeue", "index"):
            shutil.rmtree(folder / derived, ignore_errors=True)
        for snapshot in (folder / "rmq").glob("snapshot-*"):
            snapshot.unlink()
        await broker.start_broker()
        play = Play(broker, await Peer.connect(broker.address))
        assert await play.look_up() == found, "made anew from the log it is something else"
        await play.peer.close()


def check_files(folder: Path, count: int) -> None:
    """What others read of a store; `count` messages are in the topic."""
    for exported in (folder / "config").glob("*.json"):
        json.loads(exported.read_bytes())
    report = Verifier(ReadOnlyDisk(), str(folder), SETTINGS["index_slots"]).run()
    assert report.clean, report.findings
    if find_spec("pyspark"):  # the extra `spark`
        assert rows_of(folder, "raw") == rows_of(folder, "plain") == count


@settings(max_examples=5, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
@given(st.lists(odd_messages(), min_size=10, max_size=20))
def test_no_message_stops_what_is_derived_from_it(messages: list[Send]) -> None:
    """C16: nothing ends in an internal error, at its sender or behind it, and all of it is complete at the end."""
    told = Told()
    logging.getLogger().addHandler(told)
    try:
        with tempfile.TemporaryDirectory() as folder:
            asyncio.run(play(messages, Path(folder)))
    finally:
        logging.getLogger().removeHandler(told)
    assert told.found == []


numbers = st.sampled_from([0, 1, -1, 5, 2**31, 2**63 - 1, 2**64 - 1]) | st.none() | st.text(max_size=3)
receipts = st.dictionaries(st.sampled_from(["c", "t", "q", "so", "pt", "it", "n", "bm", "ao", "at", "cu"]), numbers).map(
    lambda said: json.dumps({"c": "g", "t": "T", "q": 0, "so": 0, "pt": 1, "it": 1, "n": 2, "bm": 0, "ao": 0, **said}).encode()
)
theirs = st.tuples(
    st.sampled_from([DELAY_TOPIC, TIMER_TOPIC, HALF_TOPIC, OP_TOPIC, f"{REVIVE_PREFIX}c", "T"]),
    st.lists(st.tuples(st.sampled_from([*NAMES, *OWN_NAMES]), values), max_size=6),
    st.sampled_from([b"", b"5,,x,-1,\xff", b"{", b"[]", b"null"]) | receipts,
)


@settings(deadline=None)
@given(st.lists(theirs, max_size=10))
def test_no_record_of_rocketmq_stops_a_node(records: list[tuple[str, list[tuple[str, str]], bytes]]) -> None:
    """Nobody checked what lies in its system topics when such a directory is taken over."""
    tables = Tables(TopicTable(), GroupTable(), OffsetTable())
    tables.topics.apply("T", list(TopicConfig("T", 1, 1)))
    for number, (topic, said, body) in enumerate(records):
        properties = "".join(f"{name}\x01{value}\x02" for name, value in said).encode()
        properties += b"TAGS\x01%s\x02" % (b"ck", b"ack", b"bAck")[number % 3]
        made = record.decode(record.draft(topic, body, properties, born_timestamp=0, born_host=BORN))
        stored = made._replace(queue_offset=number, physical_offset=1000 * number, store_timestamp=10**12)
        assert -(2**63) <= record.entry_code(stored) < 2**63
        assert all(0 <= place < 2**63 for _, _, place in record.queue_places(stored))
        tables.note(stored)
    for table in tables.by_name.values():
        msgpack.packb(list(table.committed().items()))
    tables.pending.alive_from()

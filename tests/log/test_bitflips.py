"""One flipped bit, anywhere in a record of any kind, is found; and no flip changes what a store serves (D7, D8)."""

import random
import zlib
from collections.abc import Callable

import msgpack
import pytest

from rmq.errors import BadBytes, StoreError
from rmq.log.files.memory import MemoryDisk
from rmq.log.files.segment import FILLER, BadEntry, walk
from rmq.log.records import record
from rmq.log.store import Store
from rmq.log.units import Unit
from rmq.model import EPOCH_TOPIC, STATE_TOPIC
from tests.log.conftest import BORN, ROOT, SETTINGS, Bench

V6 = record.host_bytes("2001:db8::7", 10911)
TAGGED = b"TAGS\x01a\x02KEYS\x01k1 k2\x02UNIQ_KEY\x01AC1100020A2E18B4AAC27C2EAC3F0000\x02"
DELAYED = TAGGED + b"DELAY\x013\x02REAL_QID\x010\x02REAL_TOPIC\x01T\x02"
HALF = TAGGED + b"TRAN_MSG\x01true\x02PGROUP\x01p\x02REAL_QID\x010\x02REAL_TOPIC\x01T\x02"


def draft(topic: str = "T", body: bytes = b"a body", properties: bytes = TAGGED, sys_flag: int = 0, host: bytes = BORN) -> bytes:
    return record.draft(topic, body, properties, sys_flag=sys_flag, flag=7, born_timestamp=1000, born_host=host)


KINDS: dict[str, Callable[[], list[bytes]]] = {
    "plain": lambda: [draft()],
    "version 2": lambda: [draft("t" * 128)],
    "IPv6 born host": lambda: [draft(host=V6)],
    "batch": lambda: [draft(body=b"%d" % number) for number in range(3)],
    "compressed": lambda: [draft(body=zlib.compress(b"x" * 900), sys_flag=record.SYS_COMPRESSED | 0x300)],
    "several tags": lambda: [draft(sys_flag=record.SYS_MULTI_TAGS)],
    "half": lambda: [draft("RMQ_SYS_TRANS_HALF_TOPIC", properties=HALF, sys_flag=record.SYS_PREPARED)],
    "delayed": lambda: [draft("SCHEDULE_TOPIC_XXXX", properties=DELAYED)],
    "state": lambda: [draft(STATE_TOPIC, msgpack.packb([["offset", ["g", "T", 0], 7]]), b"")],
    "empty body": lambda: [draft(body=b"")],
    "no properties": lambda: [draft(properties=b"")],
    "nothing at all": lambda: [draft(body=b"", properties=b"")],
    "zeros": lambda: [draft(body=bytes(300))],
}


@pytest.fixture(params=[*KINDS, "epoch", "IPv6 store host"])
def written(request: pytest.FixtureRequest) -> tuple[Bench, int, int]:
    """A store with some records of that kind between others; where they begin and end in the log."""
    kind = request.param
    bench = Bench(SETTINGS._replace(store_host=V6) if kind == "IPv6 store host" else SETTINGS).begin()
    if kind == "epoch":
        return bench, 0, bench.store.log.end
    bench.send(b"before")
    records = KINDS["plain" if kind == "IPv6 store host" else kind]()
    queue = bench.store.queues.get(record.decode(records[0]).topic, 0)
    unit = Unit(b"".join(records), tuple(map(len, records)), (0,) * len(records), queue)
    bench.append(unit)
    bench.append(bench.unit(b"behind"))
    bench.commit()
    return bench, unit.physical_offset, unit.end


def flips(data: bytes, at: int, end: int) -> list[tuple[int, bytes]]:
    """(byte, the data) for each bit of [at, end)."""
    number = int.from_bytes(data, "little")
    return [(bit >> 3, (number ^ 1 << bit).to_bytes(len(data), "little")) for bit in range(at * 8, end * 8)]


def test_every_flipped_bit_of_a_record_is_found(written: tuple[Bench, int, int]) -> None:
    """D7: 100 %, whatever the bit makes of lengths, magic, flags, checksums or the property's name."""
    bench, start, end = written
    data = bench.store.log.read(start, end - start)
    at = 0
    for one in record.iterate(data):
        size = one.total_size
        assert record.verify(data, at, start + at, True) == size
        for _, flipped in flips(data[at : at + size], 0, size):
            with pytest.raises(BadBytes):
                record.verify(flipped, 0, start + at, True)
        at += size


def test_a_walk_ends_at_the_flipped_record(written: tuple[Bench, int, int]) -> None:
    """D6, D7: neither a bit earlier nor later, with the records behind it whole and in their places."""
    bench, start, end = written
    log = bench.store.log
    data = log.read(0, log.end) + bytes(200)
    places = [place.offset for place in walk(lambda at, size: data[at : at + size], 8192, 0, log.end, True)]
    for byte, flipped in flips(data, start, end):
        seen: list[int] = []
        entries = walk(lambda at, size, buf=flipped: buf[at : at + size], 8192, 0, log.end, True)  # type: ignore[misc]
        with pytest.raises(BadEntry) as stopped:
            seen.extend(place.offset for place in entries)
        assert seen == [offset for offset in places if offset < stopped.value.at]
        assert stopped.value.at == max(offset for offset in places if offset <= byte)


def served(disk: MemoryDisk) -> dict[tuple[str, int, int], bytes] | None:
    """What consumers could get from the store on this disk; None if it does not start, or says that part is damaged."""
    try:
        store = Store.open(disk, ROOT, SETTINGS)
    except StoreError:
        return None
    found = {}
    for queue in store.queues.all():
        for number in range(queue.min, queue.max):
            offset, size, _ = queue.entry(number)
            try:
                one = record.decode(store.log.read(offset, size))
            except StoreError:
                continue
            found[queue.topic, queue.queue_id, number] = one.body
    return found


@pytest.mark.parametrize("durable", [False, True])
def test_no_flip_in_the_log_changes_what_is_served(durable: bool) -> None:
    """D8: in a torn tail it ends the log there; in what was durable it is damage. Served is the truth or nothing."""
    bench = Bench().begin()
    bench.send(b"first")
    bench.store.save_progress()
    for number, make in enumerate(KINDS.values()):
        records = make()
        topic = record.decode(records[0]).topic
        if topic not in (STATE_TOPIC, EPOCH_TOPIC):
            queue = bench.store.queues.get(topic, number)
            bench.append(Unit(b"".join(records), tuple(map(len, records)), (0,) * len(records), queue))
    if durable:
        bench.commit()
        bench.store.save_progress()
    bench.disk.kill()
    files = {path: bytes(bench.disk.content(path)) for path in bench.disk.paths()}
    end, path = bench.store.log.end, bench.segment()
    truth = served(bench.disk)
    assert truth is not None
    assert len(truth) > len(KINDS)
    chance, hidden = random.Random(7), 0
    for byte in range(0, end, 2 if not durable else 5):
        disk = MemoryDisk()
        for name, content in files.items():
            disk.put(name, content)
        disk.flip(path, byte * 8 + chance.randrange(8))
        found = served(disk)
        hidden += found != truth
        assert found is None or found.items() <= truth.items()
    assert hidden > 100


def test_every_flipped_bit_of_a_filler_ends_the_log_there() -> None:
    """D9: the filler carries no checksum; its two numbers must be right."""
    bench = Bench().begin()
    while bench.store.log.end < 7000:
        bench.append(bench.unit(b"x" * 200))
    bench.append(bench.unit(b"y" * 3000))
    content = bytes(bench.disk.content(bench.segment()))
    at = next(i for i in range(len(content) - 8) if content[i : i + 8] == FILLER.pack(8192 - i, record.BLANK_MAGIC))
    for byte, flipped in flips(content, at, at + 8):
        assert at <= byte < at + 8
        with pytest.raises(BadEntry) as stopped:
            list(walk(lambda offset, size, buf=flipped: buf[offset : offset + size], 8192, 0, 8192, True))  # type: ignore[misc]
        assert stopped.value.at == at

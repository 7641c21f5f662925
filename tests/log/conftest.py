"""A store on a memory disk, and short ways to fill it."""

from collections.abc import Callable

import pytest

from rmq.log.files.memory import MemoryDisk, PowerLoss
from rmq.log.records import record
from rmq.log.records.checking import check
from rmq.log.store import Store, StoreSettings
from rmq.log.units import Unit

HOST = record.host_bytes("127.0.0.1", 10911)
BORN = record.host_bytes("127.0.0.1", 50000)
ROOT = "/store"
SETTINGS = StoreSettings(HOST, segment_bytes=8192, queue_file_entries=50, index_slots=16, index_entries=20)


def draft(topic: str = "T", body: bytes = b"body", **properties: str) -> bytes:
    return record.draft(topic, body, record.properties_to_bytes(properties), born_timestamp=1000, born_host=BORN)


class BadSector(MemoryDisk):
    """A device that cannot read the file at the path `bad` any more."""

    bad = ""

    def pread(self, handle: int, size: int, offset: int) -> bytes:
        if self.bad and self._handles[handle][0] == self.bad:
            raise OSError(5, "input/output error")
        return super().pread(handle, size, offset)


class Bench:
    """One store directory on one memory disk, opened, killed and opened again as a test tells it."""

    def __init__(self, settings: StoreSettings = SETTINGS, disk: MemoryDisk | None = None) -> None:
        self.disk = disk or MemoryDisk()
        self.settings = settings
        self.wall_ms = 1_700_000_000_000
        self.store = Store.open(self.disk, ROOT, settings)

    def begin(self) -> "Bench":
        self.store.open_epoch(self.wall_ms)
        return self

    def open(self) -> Store:
        self.store = Store.open(self.disk, ROOT, self.settings)
        return self.store

    def unit(self, body: bytes = b"body", topic: str = "T", queue_id: int = 0, count: int = 1, **properties: str) -> Unit:
        records = draft(topic, body, **properties) * count
        checked = check(records, topic)
        return Unit(records, checked.sizes, checked.tags_codes, self.store.queues.get(topic, queue_id))

    def append(self, *units: Unit) -> list[Unit]:
        self.wall_ms += 1
        self.store.log.append(units, self.wall_ms)
        return list(units)

    def send(self, body: bytes = b"body", topic: str = "T", queue_id: int = 0, count: int = 1, **properties: str) -> Unit:
        """Append, flush, dispatch."""
        unit = self.unit(body, topic, queue_id, count, **properties)
        self.append(unit)
        self.commit()
        return unit

    def commit(self) -> list[Unit]:
        end = self.store.log.flush()
        self.store.log.prepare()
        return self.store.dispatcher.advance(end)

    def fill(self, count: int = 30) -> None:
        """Messages of two topics, several queues, single and in batches, over a few segments."""
        for number in range(count):
            self.append(
                self.unit(b"x" * (number * 13 % 400), "T", number % 3, TAGS=f"tag{number % 4}"),
                self.unit(b"%d" % number, "U", 0, 1 + number % 3),
            )
        self.commit()

    def bodies(self, topic: str = "T", queue_id: int = 0) -> list[bytes]:
        return [found.body for found in self.store.records(topic, queue_id)]

    def queues(self) -> dict[tuple[str, int], tuple[int, int, bytes]]:
        """What every queue says: min, max, and its entries."""
        return {
            (queue.topic, queue.queue_id): (
                queue.min,
                queue.max,
                b"".join(b"%d,%d,%d;" % queue.entry(number) for number in range(queue.min, queue.max)),
            )
            for queue in self.store.queues.all()
            if queue.max
        }

    def index_files(self) -> list[bytes]:
        """What is in the files of the index; their names depend on when they were made."""
        return [bytes(self.disk.content(path)) for path in self.disk.paths() if path.startswith(f"{ROOT}/index/")]

    def segment(self, base: int = 0) -> str:
        return f"{ROOT}/commitlog/{base:020d}"


def nth(count: int, error: BaseException, operations: tuple[str, ...] = ()) -> Callable[[str, str], None]:
    """A hook that raises `error` at the `count`-th operation (of these kinds, if any are named), and only there."""
    left = count

    def before(operation: str, path: str) -> None:
        nonlocal left
        if not operations or operation in operations:
            left -= 1
            if left == 0:
                raise type(error)(*error.args)  # an error that is raised again keeps all frames it ever passed

    return before


def power_lost_after(count: int) -> Callable[[str, str], None]:
    """A hook that raises PowerLoss at the operation behind the first `count`, and at all that follow."""
    left = count

    def before(operation: str, path: str) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise PowerLoss

    return before


@pytest.fixture
def bench() -> Bench:
    return Bench().begin()


@pytest.fixture
def new_bench() -> Callable[..., Bench]:
    return Bench

"""Our own small files: vote, run, epochs, progress, queues, index (docs/storage has the table).

Each is a NamedTuple with a `save_...` and a `load_...`; load returns None when the file does not exist. The
callers decide when each must be durable. All raise StoreError for a file that cannot be read (see `rmq.log.files.smallfile`).
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from rmq.errors import StoreError
from rmq.log.files import smallfile
from rmq.log.files.disk import Disk
from rmq.log.files.epochs import EpochEntry, EpochHistory
from rmq.log.files.smallfile import Lines
from rmq.log.records.queuenames import topic_of, word_of
from rmq.staged import Between

RUNNING, CLEAN, ADOPTING = "running", "clean", "adopting"
LOWERING = "lowering"  # the file that `rmq.log.repair.lowering` goes by
_T = TypeVar("_T")


class Vote(NamedTuple):
    """The store's identity and its promises. `incarnation` counts starts; `proven`: it has lost nothing that it acknowledged."""

    store_id: str  # 16 hex digits, made once
    node_id: str
    group: str
    epoch: int
    voted_for: str  # a store id, or "-"
    incarnation: int
    proven: bool


class Run(NamedTuple):
    """The last run. `boot_id` "-": unknown. `state` adopting: tables of Apache RocketMQ are not all taken over yet; `visited` and
    `tidy` as of `Adopted`. `in_group`: others had its records, so its end need not be what was committed.

    When it stopped cleanly: `end` of the log (else 0), and in `exports` (name, SHA-256) of each config/*.json.
    """

    state: str
    boot_id: str
    flush_mode: str
    pid: int
    end: int
    exports: tuple[tuple[str, str], ...] = ()
    in_group: bool = False
    visited: bool = False
    tidy: bool = False


class Progress(NamedTuple):
    """Offsets that are durable: the log's end, the committed end, and up to where the ConsumeQueues and the index are.

    `stored_ms`: store time of the last record below `log`. `settled_ms`: a wall time by which the node was in touch with its
    group; all that was stored before it is below `hw`. 0: not known.
    """

    log: int
    hw: int
    cq: int
    stored_ms: int
    indexed: int = 0
    settled_ms: int = 0


class QueueRow(NamedTuple):
    """Entries min <= n < max of a queue are in its files."""

    topic: str
    queue_id: int
    min: int
    max: int


class IndexRow(NamedTuple):
    """A file of the index that must be there, and the offset of its last record; -1 while it is being filled."""

    name: str
    end: int


def save_vote(disk: Disk, directory: str, vote: Vote) -> None:
    words = (vote.store_id, vote.node_id, vote.group, vote.epoch, vote.voted_for, vote.incarnation, int(vote.proven))
    _save(disk, directory, "vote", zip(_VOTE, words, strict=True))


def load_vote(disk: Disk, directory: str) -> Vote | None:
    def read(found: dict[str, str]) -> Vote:
        store_id, node_id, group, epoch, voted_for, incarnation, proven = (found[key] for key in _VOTE)
        return Vote(store_id, node_id, group, int(epoch), voted_for, int(incarnation), proven == "1")

    return _load(disk, directory, "vote", read)


def save_run(disk: Disk, directory: str, run: Run) -> None:
    lines = [[key, str(value)] for key, value in zip(_RUN, run[: len(_RUN)], strict=True)]
    lines += [[flag, "1"] for flag, is_set in zip(_FLAGS, run[-len(_FLAGS) :], strict=True) if is_set]
    smallfile.save(disk, directory, "run", [*lines, *(["export", name, digest] for name, digest in run.exports)])


def load_run(disk: Disk, directory: str) -> Run | None:
    lines = smallfile.load(disk, directory, "run") or []
    exports = tuple((line[1], line[2]) for line in lines if line[0] == "export" and len(line) == 3)

    def read(found: dict[str, str]) -> Run:
        state, boot_id, flush_mode, pid, end = (found[key] for key in _RUN)
        return Run(state, boot_id, flush_mode, int(pid), int(end), exports, *[found.get(flag) == "1" for flag in _FLAGS])

    return _load(disk, directory, "run", read)


def save_progress(disk: Disk, directory: str, progress: Progress) -> None:
    _save(disk, directory, "progress", zip(Progress._fields, progress, strict=True))


def load_progress(disk: Disk, directory: str) -> Progress | None:
    def read(found: dict[str, str]) -> Progress:
        return Progress(*(int(found.get(key, "0") if key in _NEWER else found[key]) for key in Progress._fields))

    return _load(disk, directory, "progress", read)


def save_epochs(disk: Disk, directory: str, history: Sequence[EpochEntry], checked_to: int) -> None:
    lines = [["row", str(one.epoch), str(one.start), one.writer, *(["lossy"] if one.lossy else [])] for one in history]
    smallfile.save(disk, directory, "epochs", [*lines, ["checkedTo", str(checked_to)]])


def load_epochs(disk: Disk, directory: str) -> tuple[EpochHistory, int] | None:
    """(epoch history, checkedTo)"""
    lines = smallfile.load(disk, directory, "epochs")
    return (parse_epochs(lines), int(lines[-1][1])) if lines else None


def parse_epochs(lines: Lines) -> EpochHistory:
    return tuple(EpochEntry(int(line[1]), int(line[2]), line[3], line[4:] == ["lossy"]) for line in lines[:-1])


def save_queues(disk: Disk, directory: str, rows: Sequence[QueueRow], between: Between = iter) -> None:
    smallfile.save(disk, directory, "queues", (["queue", word_of(row.topic), *map(str, row[1:])] for row in between(rows)))


def remove_queues(disk: Disk, directory: str) -> None:
    """Durable when it returns. Raises OSError."""
    if disk.exists(f"{directory}/queues"):
        disk.unlink(f"{directory}/queues")
    disk.fsync_directory(directory)


def load_queues(disk: Disk, directory: str) -> list[QueueRow] | None:
    lines = smallfile.load(disk, directory, "queues")
    if lines is None:
        return None
    return [QueueRow(topic_of(word), int(queue_id), int(low), int(high)) for _, word, queue_id, low, high in lines]


def save_index(disk: Disk, directory: str, rows: Sequence[IndexRow]) -> None:
    smallfile.save(disk, directory, "index", [["file", row.name, str(row.end)] for row in rows])


def load_index(disk: Disk, directory: str) -> list[IndexRow] | None:
    lines = smallfile.load(disk, directory, "index")
    return None if lines is None else [IndexRow(name, int(end)) for _, name, end in lines]


def save_archived(disk: Disk, directory: str, to: int) -> None:
    """Up to where `rmq archive` has shipped the log. Raises OSError."""
    smallfile.save(disk, directory, "archived", [["to", str(to)]])


def load_archived(disk: Disk, directory: str) -> int:
    """0 if nothing was shipped."""
    lines = smallfile.load(disk, directory, "archived")
    return int(lines[0][1]) if lines else 0


def check_lowered(disk: Disk, root: str) -> None:
    """Raises StoreError where a lowering of epochs was interrupted. To complete it is to write again what it wrote, also over
    what a node had written there since; and a record that is half written would be taken for a torn end, and cut off."""
    if disk.exists(f"{root}/rmq/{LOWERING}"):
        raise StoreError(
            f"`rmq store epochs --lower` was interrupted in {root}: run `rmq store epochs {root}`, which completes it, first"
        )


_VOTE = ("storeId", "nodeId", "group", "epoch", "votedFor", "incarnation", "proven")
_NEWER = ("indexed", "settled_ms")  # lines that a file of an older version lacks
_RUN = ("state", "bootId", "flushMode", "pid", "end")
_FLAGS = ("in_group", "visited", "tidy")  # of a run; older releases do not know them


def _save(disk: Disk, directory: str, kind: str, pairs: "zip[tuple[str, object]]") -> None:
    smallfile.save(disk, directory, kind, [[key, str(value)] for key, value in pairs])


def _load(disk: Disk, directory: str, kind: str, read: Callable[[dict[str, str]], _T]) -> _T | None:
    lines: Lines | None = smallfile.load(disk, directory, kind)
    if lines is None:
        return None
    try:
        return read({line[0]: line[1] for line in lines})
    except (KeyError, IndexError, ValueError) as error:
        raise StoreError(f"{directory}/{kind} lacks a line or holds a wrong one: {error!r}; restore it from a backup") from error

"""`rmq store`: looks at a store directory and repairs it, without a node.

verify, dump and stats only read: a stopped store, a copy of a live one, or a directory of Apache RocketMQ. adopt, repair
and distrust change the store, and hold its lock.
"""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from rmq.broker.adoption import tables as adoption
from rmq.broker.startup.opening import store_settings
from rmq.commands.shared import exits, options
from rmq.commands.shared.output import Table, show, show_json, show_json_line
from rmq.commands.store.storeepochs import epochs
from rmq.commands.store.storelines import index_lines, of, own_lines, record_line, records, short, state_lines, units
from rmq.commands.views.adminviews import moment
from rmq.config.loading import load
from rmq.config.settings import NodeSettings
from rmq.errors import BadBytes, InvalidArgument, StoreError
from rmq.log import reader
from rmq.log.adoption import refuse, refuse_visited
from rmq.log.files import ownfiles
from rmq.log.files.disk import ReadOnlyDisk, RealDisk
from rmq.log.records import record
from rmq.log.records.innerbatch import message_count
from rmq.log.recovery import distrusted
from rmq.log.repair.repair import plan as plan_repair
from rmq.log.repair.verify import Report, Verifier
from rmq.log.settings import StoreSettings
from rmq.net.transport import descriptors

_DIRECTORY = click.argument("directory", metavar="DIR", type=click.Path(exists=True, file_okay=False, path_type=Path))
_SLOTS = click.option(
    "--index-slots",
    type=click.IntRange(min=1),
    default=5_000_000,
    show_default=True,
    help="Slots of an index file (RocketMQ: maxHashSlotNum).",
)
_CONFIG = click.option(
    "--config",
    "file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="RocketMQ's broker.conf; its messageDelayLevel is used.",
)
_YES = click.option("--yes", is_flag=True, help="Do it without asking.")
_HOST = record.host_bytes("127.0.0.1", 10911)  # of the few records that these commands write


@click.group()
def store() -> None:
    """Look at a store directory and repair it, without a node."""
    descriptors.raise_limit(descriptors.LOG_FILES)


# --- verify -----------------------------------------------------------------------------------------------------------


@store.command()
@_DIRECTORY
@_SLOTS
@_CONFIG
@options.output
def verify(directory: Path, index_slots: int, file: Path | None, form: str) -> int:
    """Check everything: the log, queues, index, our own files, the tables.

    Prints what was checked, what is wrong, and what cannot be checked. The exit code is 5 if something is damaged.
    """
    refuse_visited(ReadOnlyDisk(), str(directory))
    report = _look(ReadOnlyDisk(), directory, index_slots, _delays_ms(file))
    wrong = list(_wrong_tables(directory / "config"))
    if form == "json":
        show_json(_report_json(report, wrong))
    else:
        _show_report(report, wrong)
    return exits.OK if report.clean and not wrong else exits.DAMAGED


def _delays_ms(file: Path | None) -> tuple[int, ...] | None:
    """The delay levels of that configuration; None without one. Raises InvalidArgument."""
    return None if file is None else load(file, env={}).settings.delays_ms


def _look(disk: RealDisk, directory: Path, index_slots: int, delays_ms: tuple[int, ...] | None = None) -> Report:
    with _bar("verify", _log_bytes(directory)) as on_progress:
        return Verifier(disk, str(directory), index_slots, on_progress, delays_ms).run()


def _wrong_tables(folder: Path) -> Iterator[str]:
    """Files in config/ that are not JSON, not even RocketMQ's kind of it."""
    for path in sorted(folder.glob("*.json")):
        try:
            data = path.read_bytes()
            if data.strip():
                adoption.parse_json(data)
        except (BadBytes, OSError) as error:
            yield f"config/{path.name}: {error}"


def _report_json(report: Report, wrong: list[str]) -> dict[str, Any]:
    found = [(one.damage, one.where, one.what, one.at if one.at >= 0 else None) for one in report.findings]
    found += [(True, text.partition(":")[0], text.partition(": ")[2], None) for text in wrong]
    findings = [dict(zip(("damage", "where", "what", "offset"), row, strict=True)) for row in found]
    return {
        "clean": report.clean and not wrong,
        "logStart": report.start,
        "logEnd": report.end,
        "checked": report.checked,
        "findings": findings,
        "unchecked": report.unchecked,
    }


def _show_report(report: Report, wrong: list[str]) -> None:
    rows = [(name, count) for name, count in report.checked.items()]
    show(Table({"what": "Checked", "count": "Count"}, rows), "table")
    for found in report.findings:
        click.echo(f"{'DAMAGED' if found.damage else 'note'}: {found.where}: {found.what}")
    for text in wrong:
        click.echo(f"DAMAGED: {text}")
    for text in report.unchecked:
        click.echo(f"not checked: {text}")
    damaged = sum(found.damage for found in report.findings) + len(wrong)
    if damaged:
        advice = "" if report.clean else "; `rmq store repair` shows what can be done"
        click.echo(f"{damaged} thing{' is' if damaged == 1 else 's are'} damaged{advice}")
    else:
        click.echo(f"clean: log from {report.start} to {report.end}")


# --- dump -------------------------------------------------------------------------------------------------------------


@store.command()
@_DIRECTORY
@click.argument("what", type=click.Choice(["records", "queues", "index", "state", "epochs", "own"]))
@click.option("-t", "--topic", help="Only this topic.")
@click.option("-i", "--queue", "queue_id", type=click.IntRange(min=0), help="Only this queue.")
@click.option("--from", "from_", type=click.IntRange(min=0), default=0, help="Start at this log offset.")
@click.option("--to", type=click.IntRange(min=0), help="Stop at this log offset.")
@click.option("--limit", type=click.IntRange(min=1), help="Print at most this many lines.")
@_SLOTS
@options.output
def dump(
    directory: Path,
    what: str,
    topic: str | None,
    queue_id: int | None,
    from_: int,
    to: int | None,
    limit: int | None,
    index_slots: int,
    form: str,
) -> int:
    """Print what the files hold, one line each; `-o json`: JSON lines.

    records: the log. queues: the consume queues. index: the index. state: the changes in our state records. epochs: which
    leader wrote which bytes. own: the small files in rmq/.
    """
    refuse_visited(ReadOnlyDisk(), str(directory))
    most = sys.maxsize if to is None else to
    lines: Iterator[dict[str, Any]]
    if what in ("records", "state"):
        wanted = (one for one in records(directory, from_) if one.physical_offset < most)
        lines = state_lines(wanted) if what == "state" else map(record_line, of(wanted, topic, queue_id))
    elif what == "queues":
        lines = (unit for unit in units(directory, topic, queue_id) if from_ <= unit["offset"] < most)
    elif what == "index":
        lines = (entry for entry in index_lines(directory / "index", index_slots) if from_ <= entry["offset"] < most)
    elif what == "epochs":
        lines = ({"epoch": one.epoch, "start": one.start, "writer": one.writer} for one in reader.read_epochs(str(directory)))
    else:
        lines = own_lines(directory / "rmq")
    for index, line in enumerate(lines):
        if index == limit:
            break
        if form == "json":
            show_json_line(line)
        else:
            click.echo("  ".join(f"{name}={short(value)}" for name, value in line.items()))
    return exits.OK


# --- stats ------------------------------------------------------------------------------------------------------------


@store.command()
@_DIRECTORY
@click.option("--queues", is_flag=True, help="Print a line for each queue.")
@options.output
def stats(directory: Path, queues: bool, form: str) -> int:
    """Count messages and bytes by topic or queue, and show the time of the first and last, and the space on the disk."""
    refuse_visited(ReadOnlyDisk(), str(directory))
    found: dict[tuple[str, int], list[int]] = {}
    with _bar("stats", _log_bytes(directory)) as on_progress:
        for one in records(directory):
            row = found.setdefault((one.topic, one.queue_id if queues else 0), [0, 0, one.store_timestamp, one.store_timestamp])
            row[0] += message_count(one)
            row[1] += one.total_size
            row[3] = one.store_timestamp
            on_progress(one.total_size)
    columns = {
        "topic": "Topic",
        **({"queueId": "QID"} if queues else {}),
        "messages": "Messages",
        "bytes": "Bytes",
        "first": "First",
        "last": "Last",
        "perSecond": "Per Second",
    }
    rows = [
        (*key[: 1 + queues], row[0], row[1], moment(row[2]), moment(row[3]), _rate(row)) for key, row in sorted(found.items())
    ]
    parts = {
        name: _disk_bytes(directory / name)
        for name in ("commitlog", "consumequeue", "batchconsumequeue", "index", "config", "rmq")
    }
    total = {"messages": ("Messages", sum(row[0] for row in found.values()))}
    sizes = {f"{name}Bytes": (f"{name} on disk", size) for name, size in parts.items()}
    show(Table(columns, rows, {**total, **sizes}), form)
    return exits.OK


def _rate(row: list[int]) -> float:
    """Messages per second between the first and the last; 0 if both have the same time."""
    return row[0] * 1000 / (row[3] - row[2]) if row[3] > row[2] else 0.0


def _disk_bytes(folder: Path) -> int:
    """Bytes on the device; holes in files take none."""
    return sum(path.stat().st_blocks * 512 for path in folder.rglob("*") if path.is_file())


# --- changing ---------------------------------------------------------------------------------------------------------


@store.command()
@_DIRECTORY
@click.option("--name", metavar="NAME", help="Name of the broker group (brokerName).  [default: as in --config, or broker-a]")
@click.option(
    "--index-slots",
    type=click.IntRange(min=1),
    help="Slots of an index file (maxHashSlotNum).  [default: as in --config, or 5000000]",
)
@click.option(
    "--config",
    "file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="RocketMQ's broker.conf: how its brokerName, delay levels and sizes of files are known.",
)
@_YES
def adopt(directory: Path, name: str | None, index_slots: int | None, file: Path | None, yes: bool) -> int:
    """Take over a directory of Apache RocketMQ, or a store of ours that RocketMQ wrote to. `rmq node` does so at its start."""
    if not yes:
        _agree(f"{directory} becomes a store of rmq; RocketMQ can still open it. Go on?")
    told = load(file, env={}).settings if file else NodeSettings()
    told = replace(told, broker_name=name or told.broker_name, index_slots=index_slots or told.index_slots)
    settings, now_ms = _settings(directory, told), time.time_ns() // 1_000_000
    done = adoption.adopt(RealDisk(), str(directory), settings, now_ms, told.delays_ms)
    click.echo(done or "nothing to take over: this is a store of rmq, and RocketMQ did not write to it")
    return exits.OK


@store.command()
@_DIRECTORY
@_SLOTS
@_YES
def repair(directory: Path, index_slots: int, yes: bool) -> int:
    """Repair damage with what this node has; the command first shows what it will do.

    Damaged parts of the log are saved elsewhere and replaced, so that all messages around them keep their offsets and are
    served again. Derived files are rebuilt. In a group just start the node: it fetches damaged bytes from the others. Use
    this command only for bytes that no node has any more, and on one node only.
    """
    disk, root = RealDisk(), str(directory)
    refuse_visited(disk, root)
    segment_bytes = _segment_bytes(directory)
    lock = disk.lock(f"{root}/lock")
    try:
        steps = plan_repair(disk, root, _look(disk, directory, index_slots), segment_bytes, _HOST)
        for step in steps:
            click.echo(f"- {step.what}", err=True)
        if not steps:
            click.echo("there is nothing to repair")
            return exits.OK
        if not yes:
            _agree("Do this?")
        for step in steps:
            step.do()
        report = _look(disk, directory, index_slots)
    finally:
        disk.unlock(lock)
    left = [found for found in report.findings if found.damage and found.where in ("commitlog", "rmq/run")]
    for found in left:
        click.echo(f"DAMAGED: {found.where}: {found.what}")
    click.echo("repaired; start the node, then look with `rmq store verify`" if not left else "this cannot be repaired")
    return exits.DAMAGED if left else exits.OK


@store.command()
@_DIRECTORY
@_YES
def distrust(directory: Path, yes: bool) -> int:
    """Mark this store: it may have lost acknowledged messages (an old copy of the disk, a device that lied).

    In a group the node then neither votes nor counts until it has caught up with the others. Alone, its next epoch is marked.
    """
    disk, own = RealDisk(), f"{directory}/rmq"
    lock = disk.lock(f"{directory}/lock")
    try:
        vote = ownfiles.load_vote(disk, own)
        if vote is None:
            raise InvalidArgument(f"{directory} is no store of rmq: there is no rmq/vote in it")
        if not yes:
            _agree(f"Mark {directory} as a store that may have lost acknowledged messages?")
        ownfiles.save_vote(disk, own, distrusted(vote, int(time.time())))
    finally:
        disk.unlock(lock)
    click.echo(f"{directory} is not proven any more")
    return exits.OK


store.add_command(epochs)

# --- what they share --------------------------------------------------------------------------------------------------


def _agree(question: str) -> None:
    """Raises StoreError if the answer is no."""
    if not click.confirm(question, err=True):
        raise StoreError("nothing was done")


def _settings(directory: Path, told: NodeSettings) -> StoreSettings:
    """Settings of the store: those of its node, but what its files say. Raises InvalidArgument for a directory without a log,
    StoreError if it cannot be served."""
    refuse(ReadOnlyDisk(), str(directory))
    segments = reader.read_segments(str(directory))
    if not segments:
        raise InvalidArgument(f"{directory} has an empty commitlog/: there is nothing in it yet")
    asked = store_settings(told, _HOST, ReadOnlyDisk())
    vote = ownfiles.load_vote(ReadOnlyDisk(), f"{directory}/rmq")
    group, node_id = (vote.group, vote.node_id) if vote else (asked.group, asked.node_id)
    return asked._replace(
        segment_bytes=segments[0].size, group=group, node_id=node_id, alone=True, apart_above=0, reserve_bytes=0
    )


def _segment_bytes(directory: Path) -> int:
    """The same from the files of the log alone, because our own files may be damaged. Raises as `_settings`."""
    refuse(ReadOnlyDisk(), str(directory))
    sizes = [path.stat().st_size for path in (directory / "commitlog").glob("[0-9]" * 20)]
    if not sizes:
        raise InvalidArgument(f"{directory} is no store directory: it has no commitlog/ with files in it")
    return max(sizes)


def _log_bytes(directory: Path) -> int:
    return sum(path.stat().st_size for path in (directory / "commitlog").glob("*"))


@contextmanager
def _bar(label: str, length: int) -> Iterator[Callable[[int], None]]:
    """A progress bar on stderr, if that is a terminal."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    with click.progressbar(length=length, label=label, file=sys.stderr) as bar:
        yield bar.update

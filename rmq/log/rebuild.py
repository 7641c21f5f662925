"""Makes all ConsumeQueues anew from the log, in a process of its own, for a node that waits for them.

    python -m rmq.log.rebuild ROOT SEGMENT_BYTES QUEUE_FILE_ENTRIES BATCH_FILE_ENTRIES TO

The node holds the store's lock and has removed the old files; it has recovered the log to `TO` and saved its epochs.
Each line on stdout says how far the queues are. They are durable, and `rmq/queues` says so, when this ends with 0; ended
earlier it leaves files that nobody believes.
"""

import sys
from collections.abc import Callable

from rmq.log import recovery
from rmq.log.commitlog import CommitLog
from rmq.log.dispatch import Dispatcher
from rmq.log.files import ownfiles
from rmq.log.files.disk import Disk, RealDisk
from rmq.log.progress import queue_rows
from rmq.log.queues.queues import ConsumeQueues
from rmq.log.settings import StoreSettings

DAMAGED = 5  # exit code: the log has to be looked at first


def rebuild(disk: Disk, root: str, settings: StoreSettings, to: int, tell: Callable[[int], None]) -> bool:
    """False if the log is damaged; then nothing was saved. Raises StoreError, OSError."""
    known = ownfiles.load_epochs(disk, f"{root}/rmq")
    segments = recovery.open_segments(disk, f"{root}/commitlog", settings.segment_bytes, to)
    queues = ConsumeQueues(disk, root, settings.queue_file_entries, settings.batch_file_entries)
    log = CommitLog(disk, root, settings, segments, to, 0, queues.end)
    queues.read = log.read
    log.epochs = known[0] if known else ()

    def save(position: int) -> None:
        queues.flush()
        queues.trim()
        tell(position)

    try:
        Dispatcher(log, queues, log.start).catch_up(to, save)
        save(to)
        if not log.damages:
            ownfiles.save_queues(disk, f"{root}/rmq", queue_rows(queues))
        return not log.damages
    finally:
        log.close()


def main() -> int:
    root, segment_bytes, entries, batch_entries, to = sys.argv[1], *map(int, sys.argv[2:])
    settings = StoreSettings(b"", segment_bytes=segment_bytes, queue_file_entries=entries, batch_file_entries=batch_entries)

    def tell(position: int) -> None:
        sys.stdout.write(f"{position}\n")
        sys.stdout.flush()

    return 0 if rebuild(RealDisk(), root, settings, to, tell) else DAMAGED


if __name__ == "__main__":
    raise SystemExit(main())

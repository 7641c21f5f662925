"""Removes old segments from the store: the facts for retention, and the steps of a deletion. In a thread of its own."""

from collections.abc import Callable
from itertools import pairwise
from operator import itemgetter

from rmq.errors import StoreError
from rmq.log.commitlog import CommitLog
from rmq.log.files import ownfiles, reserve
from rmq.log.files.disk import Disk, remedy
from rmq.log.files.segment import Segment
from rmq.log.index.indexed import Indexed
from rmq.log.queues.queues import ConsumeQueues
from rmq.log.retention import MAX_AT_ONCE, SegmentFacts


class Cleaning:
    """All methods raise StoreError."""

    def __init__(
        self,
        disk: Disk,
        root: str,
        reserve_bytes: int,
        log: CommitLog,
        queues: ConsumeQueues,
        indexed: Indexed,
        save_progress: Callable[[], object],
    ) -> None:
        self._disk = disk
        self._root = root
        self._reserve_bytes = reserve_bytes
        self._log = log
        self._queues = queues
        self._indexed = indexed
        self._save_progress = save_progress

    def fullest(self) -> tuple[float, str]:
        """How full the disk is, 0 to 1, and a directory on it; the fullest one, if the log or the queues have a disk of their own
        [DefaultMessageStore.CleanCommitLogService.isSpaceToDelete]."""
        directories = self._root, f"{self._root}/commitlog", f"{self._root}/consumequeue"
        try:
            return max([(self._disk.used_ratio(each), each) for each in directories], key=itemgetter(0))
        except OSError as error:
            raise StoreError(f"cannot ask how full the disk with {self._root} is: {error}") from error

    def refusal(self) -> str:
        """Why the disk takes no new file, which its ratio may not show (a quota, no inodes, read only); "" if it takes one."""
        path = f"{self._root}/rmq/probe"
        try:
            handle = self._disk.create(path)
            try:
                self._disk.pwrite(handle, b"x", 0)
            finally:
                self._disk.close(handle)
                self._disk.unlink(path)
        except OSError as error:
            return f"the disk takes no new file: {remedy(error, 'free space, or repair the disk')}"
        return ""

    def hold_back(self) -> None:
        """Some room for when the disk is full (`rmq.log.files.reserve`)."""
        try:
            reserve.keep(self._disk, f"{self._root}/rmq", self._reserve_bytes)
        except OSError as error:
            raise StoreError(f"cannot hold back room in {self._root}: {remedy(error, 'check the disk')}") from error

    def oldest_segments(self) -> list[SegmentFacts]:
        """The segments that retention may look at. A segment's last record is not younger than the next one's first."""
        segments = [segment for segment in self._log.segments() if segment.base < self._log.end][: MAX_AT_ONCE + 1]
        try:
            return [
                SegmentFacts(one.end, max(self._disk.modified_ms(one.path), self._log.store_time(after.base)))
                for one, after in pairwise(segments)
            ]
        except OSError as error:
            raise StoreError(f"cannot look at the oldest segments: {remedy(error, 'check the disk')}") from error

    def archived_to(self) -> int:
        """The offset below which the log is in an archive, as `rmq archive` said last."""
        try:
            return ownfiles.load_archived(self._disk, f"{self._root}/rmq")
        except OSError as error:
            raise StoreError(f"cannot read {self._root}/rmq/archived: {remedy(error, 'check the disk')}") from error

    def drop_before(self, start: int) -> list[Segment]:
        """Everything before `start` (a segment's) leaves log, queues and index. Returns what the appending thread is to withdraw.

        First every queue says where it begins now, durably; then bytes go, the log's first. A crash between any two steps
        leaves a store that opens with the same queues (D15).
        """
        self._save_progress()  # to behind `start`: no start from there meets a number below where a queue will say it begins
        for queue in self._queues.all():
            queue.begin_behind(start)
        self._save_progress()
        try:
            dropped = self._log.drop_before(start)
            self._indexed.delete_before(start)
        except OSError as error:
            raise StoreError(f"cannot delete the segments below {start}: {remedy(error, 'check the disk')}") from error
        self._queues.drop_files()
        return dropped

    def drop_empty_queues(self) -> None:
        """Removes also the last files of queues whose messages are all gone; the queues' offsets stay."""
        self._save_progress()
        self._queues.drop_files(empty_too=True)

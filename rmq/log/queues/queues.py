"""All queues of a store: finds, makes and flushes them, and ends them with their topic."""

import logging
from collections import Counter
from collections.abc import Callable
from threading import Lock

from rmq.errors import InvalidArgument, StoreError
from rmq.log.files.disk import Disk, remedy
from rmq.log.queues.batchqueue import BatchQueue
from rmq.log.queues.consumequeue import BLANK_SIZE, ConsumeQueue
from rmq.log.records.queuenames import directory_of
from rmq.model import LIGHT_PREFIX
from rmq.staged import Between

_LOG = logging.getLogger(__name__)


def _remove_tree(disk: Disk, directory: str) -> None:
    """A directory with the files in it."""
    for name in disk.listdir(directory):
        disk.unlink(f"{directory}/{name}")
    disk.remove_directory(directory)


class ConsumeQueues:
    """Every queue of the store, by topic and queue id. No name leaves its directory (S9).

    `read(offset, size)`: bytes of the log, which queues of batches ask for. `batch_entries`: rows in one file of theirs.
    """

    def __init__(self, disk: Disk, root: str, file_entries: int, batch_entries: int) -> None:
        self._disk = disk
        self._directory, self._batch_directory = f"{root}/consumequeue", f"{root}/batchconsumequeue"
        self._file_entries, self._batch_entries = file_entries, batch_entries
        self.read: Callable[[int, int], bytes] = _no_log
        self._of_batches: set[str] = set()  # topics
        self._queues: dict[tuple[str, int], ConsumeQueue] = {}
        self._lights: set[str] = set()  # of them, the light queues
        self._ids: dict[str, tuple[int, ...]] = {}  # queues of every other topic; a set of one would be four times as large
        self._ending: Counter[str] = Counter()  # topics whose deletion is in the log and not dispatched yet
        self._coming: dict[tuple[str, int], int] = {}  # next queue offset of queues that are made anew behind such a deletion
        self._deleted: set[str] = set()  # directories of deleted topics whose files still exist
        self._files = Lock()  # a queue is not flushed while its files are removed

    def get(self, topic: str, queue_id: int) -> ConsumeQueue:
        """The queue, made (empty, without a file) if it is new. InvalidArgument for an impossible queue id."""
        queue = self._queues.get((topic, queue_id))
        if queue is None:
            queue = self._queues[topic, queue_id] = self._new(topic, queue_id)
            if topic.startswith(LIGHT_PREFIX):
                self._lights.add(topic)
            elif queue_id not in (ids := self._ids.get(topic, ())):
                self._ids[topic] = (*ids, queue_id)
        return queue

    def look(self, topic: str, queue_id: int) -> ConsumeQueue:
        """The queue, for a reader, in any thread. It makes no queue: instead of a missing one it returns an empty one that nobody
        else has. InvalidArgument for an impossible queue id."""
        return self._queues.get((topic, queue_id)) or self._new(topic, queue_id)

    def _new(self, topic: str, queue_id: int) -> ConsumeQueue:
        if not 0 <= queue_id < 1 << 31:
            raise InvalidArgument(f"topic {topic[:300]!r} has no queue {queue_id}: they are counted from 0 on")
        place = f"{directory_of(topic)}/{queue_id}"
        if topic in self._of_batches:
            directory = f"{self._batch_directory}/{place}"
            queue: ConsumeQueue = BatchQueue(self._disk, directory, topic, queue_id, self._batch_entries, self.read)
        else:
            queue = ConsumeQueue(self._disk, f"{self._directory}/{place}", topic, queue_id, self._file_entries)
        queue.ended, queue.next = topic in self._ending, self._coming.get((topic, queue_id), 0)
        return queue

    def find(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """The queue, if it exists."""
        return self._queues.get((topic, queue_id))

    def of_topic(self, topic: str) -> list[ConsumeQueue]:
        """In any thread."""
        ids = (0,) if topic in self._lights else self._ids.get(topic, ())
        return [queue for queue_id in ids if (queue := self._queues.get((topic, queue_id))) is not None]

    def lights(self) -> set[str]:
        """The names of all light queues. For the thread that appends."""
        return self._lights

    def all(self) -> list[ConsumeQueue]:
        return list(self._queues.values())

    # --- topics with batches

    def hold_batches(self, topic: str) -> bool:
        """The topic's queues are queues of batches from now on, until it is deleted; False if they are. What a queue holds
        already, because that was not known when its records were put, is put there anew: records of single messages."""
        if topic in self._of_batches:
            return False
        self._of_batches.add(topic)
        for queue in self.of_topic(topic):
            self._replace(queue)
        return True

    def _replace(self, old: ConsumeQueue) -> None:
        with self._files:
            old.ended = True
            directory = f"{self._batch_directory}/{directory_of(old.topic)}/{old.queue_id}"
            if self._disk.exists(directory):
                self._remove(directory)
            new = self._new(old.topic, old.queue_id)
            new.skip_to(old.min)
            for queue_offset in range(old.min, old.max):
                offset, size, code = old.entry(queue_offset)
                if size != BLANK_SIZE:
                    new.put_many(queue_offset, offset, (size,), (code,))
            new.skip_to(old.max)
            new.next = old.next
            new.came, new.came_bytes = old.came, old.came_bytes
            self._queues[old.topic, old.queue_id] = new
            directory = f"{self._directory}/{directory_of(old.topic)}/{old.queue_id}"
            if self._disk.exists(directory):
                self._remove(directory)

    # --- the lives of topics

    def end(self, topic: str) -> None:
        """A line that deletes the topic was appended: until its dispatch nothing may be appended to it (`CommitLog.append`)."""
        self._ending[topic] += 1
        self._coming = {place: offset for place, offset in self._coming.items() if place[0] != topic}
        for queue in self.of_topic(topic):
            queue.ended = True

    def go_on(self, topic: str, queue_id: int, queue_offset: int) -> None:
        """A message before this queue offset stands in the log and is not dispatched yet. What is appended goes on behind it,
        also once the topic's deletion, if one stands before the message, is dispatched: a tail is dispatched part by part."""
        self.get(topic, queue_id).next = queue_offset
        if topic in self._ending:
            self._coming[topic, queue_id] = queue_offset

    def begin_leadership(self) -> None:
        """Forgets appended messages that may have been cut: each queue goes on behind its last entry."""
        self._ending.clear()
        self._coming.clear()
        for queue in self.all():
            queue.ended, queue.next = False, queue.max

    def delete(self, topic: str) -> None:
        """Drops all queues of a topic; a topic of that name made later begins at 0.

        Their files go with the next flush (`remove_deleted`), before anything new is written there: one request deletes a
        topic, and the loop must wait neither for its hundreds of files nor for a flush that is under way.
        """
        if self._ending[topic] > 1:
            self._ending[topic] -= 1
        else:
            del self._ending[topic]
        for queue in self.of_topic(topic):
            queue.ended = True
            del self._queues[topic, queue.queue_id]
        self._of_batches.discard(topic)
        self._lights.discard(topic)
        self._ids.pop(topic, None)
        self._deleted.update(self._directories_of(topic))

    def _directories_of(self, topic: str) -> tuple[str, str]:
        return f"{self._directory}/{directory_of(topic)}", f"{self._batch_directory}/{directory_of(topic)}"

    def remove_deleted(self) -> None:
        """Removes files of deleted topics. A file that cannot be removed does no harm, and goes at a later start. In any
        thread."""
        for directory in [*self._deleted]:
            with self._files:
                self._remove_topic(directory)

    def _remove_topic(self, directory: str) -> None:
        if directory in self._deleted:
            self._deleted.discard(directory)  # first: it may be deleted again meanwhile
            if self._disk.exists(directory):
                self._remove(*(f"{directory}/{queue_id}" for queue_id in self._disk.listdir(directory)), directory)

    def restart(self, queue: ConsumeQueue) -> ConsumeQueue:
        """The queue that replaces it, from offset 0 on."""
        queue.ended = True
        with self._files:
            del self._queues[queue.topic, queue.queue_id]
            for directory in self._directories_of(queue.topic):
                if self._disk.exists(f"{directory}/{queue.queue_id}"):
                    self._remove(f"{directory}/{queue.queue_id}")
        return self.get(queue.topic, queue.queue_id)

    def _remove(self, *directories: str) -> None:
        """What is left is overwritten: a queue never believes a file that it has not written."""
        try:
            for directory in directories:
                _remove_tree(self._disk, directory)
        except OSError as error:
            _LOG.warning("files of queues that are no more are left in %s: %s", directories[-1], error)

    def delete_all(self) -> None:
        """Removes everything, to be rebuilt from the log."""
        self._ending.clear()
        self._coming.clear()
        for queue in self.all():
            queue.ended = True
        self._queues.clear()
        self._of_batches.clear()
        self._lights.clear()
        self._ids.clear()
        for topic in (*self._disk.listdir(self._directory), *self._disk.listdir(self._batch_directory)):
            self.delete(topic)
        self.remove_deleted()

    def drop_files(self, empty_too: bool = False) -> None:
        """Removes files whose messages are gone (see `ConsumeQueue.drop_files`). In any thread. Raises StoreError."""
        try:
            for queue in self.all():
                with self._files:
                    if self._queues.get((queue.topic, queue.queue_id)) is queue:
                        queue.drop_files(empty_too)
        except OSError as error:
            raise StoreError(f"cannot clean {self._directory}: {remedy(error, 'check the disk')}") from error

    def flush(self, most: int = 0, between: Between = iter, enough: Callable[[], bool] | None = None) -> int | None:
        """Makes every entry durable; of more than `most` queues (0: no bound) only those that have the oldest ones, and none more
        once `enough()`. The log offset of the oldest entry that is not durable then, None without one. May run in another
        thread, which may rest `between` two queues. Raises StoreError."""
        self.remove_deleted()
        changed = [queue for queue in between(self.all()) if queue.flushed < queue.max]
        if 0 < most < len(changed) or enough is not None:
            changed.sort(key=lambda queue: queue.unflushed_from())
        done = 0
        try:
            for queue in between(changed[: most or None]):
                if enough is not None and enough():
                    break
                self._flush(queue)
                done += 1
        except OSError as error:
            raise StoreError(f"cannot write {self._directory}: {remedy(error, 'free space or repair the disk')}") from error
        return changed[done].unflushed_from() if done < len(changed) else None

    def _flush(self, queue: ConsumeQueue) -> None:
        with self._files:
            if self._queues.get((queue.topic, queue.queue_id)) is queue:
                for directory in self._directories_of(queue.topic):  # of an earlier life, deleted since this flush began
                    self._remove_topic(directory)
                queue.flush()

    def trim(self) -> None:
        """Drops durable entries from memory. For the thread that appends."""
        for queue in self.all():
            queue.trim()


def _no_log(offset: int, size: int) -> bytes:
    raise StoreError(f"bytes {offset} to {offset + size} cannot be read here")

"""Which keys of compacted topics were sent while older messages of theirs are about to be appended again."""

from collections.abc import Container

from rmq.log.queues.consumequeue import ConsumeQueue

QueueKey = tuple[ConsumeQueue, bytes]
"""A key in a queue: all KEYS of a message, as they are stored."""


class NewerKeys:
    """A copy must not come behind a newer message of its key. Who proposes one for a compacted topic notes the key here first."""

    def __init__(self) -> None:
        self._wanted: Container[QueueKey] = ()
        self._seen = set[QueueKey]()

    def watch(self, wanted: Container[QueueKey]) -> None:
        """From now on these are noted, and no others; none of them was seen yet."""
        self._wanted, self._seen = wanted, set()

    def note(self, key: QueueKey) -> None:
        if key in self._wanted:
            self._seen.add(key)

    def __contains__(self, key: QueueKey) -> bool:
        return key in self._seen

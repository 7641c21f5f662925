"""A disk of the machine's own that a test holds up."""

import threading

from rmq.log.files.disk import RealDisk


class HeldDisk(RealDisk):
    """`full`: the log takes no more bytes. `flushes`: fdatasync waits for it."""

    def __init__(self) -> None:
        super().__init__()
        self.full = False
        self.flushes = threading.Event()
        self.flushes.set()
        self._of_log: set[int] = set()

    def open(self, path: str) -> int:
        return self._note(path, super().open(path))

    def create(self, path: str) -> int:
        return self._note(path, super().create(path))

    def _note(self, path: str, handle: int) -> int:
        (self._of_log.add if "/commitlog/" in path or "/rmq/next" in path else self._of_log.discard)(handle)
        return handle

    def pwrite(self, handle: int, data: bytes | bytearray | memoryview, offset: int) -> int:
        if self.full and handle in self._of_log:
            raise OSError(28, "No space left on device")
        return super().pwrite(handle, data, offset)

    def fdatasync(self, handle: int) -> None:
        self.flushes.wait()
        super().fdatasync(handle)

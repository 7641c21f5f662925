"""What a member's machine has done with files, in threads, while the loop goes on."""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from rmq import background
from rmq.clock import Clock
from rmq.errors import NoRoom

log = logging.getLogger("rmq.elected")

TRY_AGAIN_S = 1.0  # to save what the disk had no room for
READERS = 4  # threads, as `ColdReads` has: those that save votes must not wait for a device that reads
_Read = tuple[Callable[[], bytes], Callable[[bytes], None]]
T = TypeVar("T")


async def finished(work: Callable[[], T]) -> T:
    """Runs `work` in a thread. A cancelled caller still waits for its end: the files that it uses are closed then, and another
    one may have the number of such a file a moment later."""
    task = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait((task,))
        raise


class FileWork:
    """`fatal(error)`: the node must end. `unsaved`: why this node takes no part in its group now."""

    def __init__(self, clock: Clock, fatal: Callable[[Exception], None]) -> None:
        self._clock = clock
        self._fatal = fatal
        self._writing: asyncio.Task[None] | None = None  # kept, or the loop forgets it
        self._pause: asyncio.Future[None] | None = None  # before it is tried again
        self._readers = ThreadPoolExecutor(READERS, "old-bytes")
        self._reading: dict[str, asyncio.Task[None]] = {}
        self._waiting: dict[str, _Read] = {}
        self._stopped = False
        self.unsaved = ""

    def write(self, work: Callable[[], None], then: Callable[[], None]) -> None:
        """Events wait until `then` is called."""
        self._writing = asyncio.get_running_loop().create_task(self._write(work, then), name="group-files")

    async def _write(self, work: Callable[[], None], then: Callable[[], None]) -> None:
        while True:
            try:
                await asyncio.to_thread(work)
                break
            except NoRoom as error:  # nothing has left this node, and nothing does before it is saved (D14)
                self._tell(str(error))
                if not self._stopped:
                    self._pause = asyncio.ensure_future(self._clock.sleep(TRY_AGAIN_S))
                    await asyncio.wait([self._pause])
                if self._stopped:
                    return
            except Exception as error:
                self._fatal(error)
                return
        self._tell("")
        if not self._stopped:  # what follows could be the next write
            then()

    def read(self, asker: str, work: Callable[[], bytes], then: Callable[[bytes], None]) -> None:
        """Events go on meanwhile. One read at a time for each `asker`, who asks again when that takes long: then only the newest
        question counts, and those before it are given nothing."""
        if asker in self._reading:
            if asker in self._waiting:
                _, given_up = self._waiting[asker]
                given_up(b"")
            self._waiting[asker] = work, then
        else:
            self._reading[asker] = background.start(self._read(asker, work, then), "old bytes for a follower")

    async def _read(self, asker: str, work: Callable[[], bytes], then: Callable[[bytes], None]) -> None:
        found: _Read | None = (work, then)
        try:
            while found is not None:
                work, then = found
                data = await asyncio.get_running_loop().run_in_executor(self._readers, work)
                if self._stopped:
                    return
                then(data)
                found = self._waiting.pop(asker, None)
        finally:
            del self._reading[asker]
            self._waiting.pop(asker, None)

    def _tell(self, why: str) -> None:
        """One line in the log for each time that it begins, and ends."""
        if why and not self.unsaved:
            log.error("this node takes no part in its group until that works: %s", why)
        elif self.unsaved and not why:
            log.warning("what could not be saved is saved: this node takes part in its group again")
        self.unsaved = why

    async def stop(self) -> None:
        """What threads do now is awaited, or a vote could come late, over that of the next start (R8). What waits for room is
        given up."""
        self._stopped = True
        if self._pause is not None:
            self._pause.cancel()
        if self._writing is not None:
            await asyncio.gather(self._writing, return_exceptions=True)
        await asyncio.gather(*self._reading.values(), return_exceptions=True)
        self._readers.shutdown()

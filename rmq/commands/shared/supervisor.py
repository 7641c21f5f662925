"""Several processes of one command, and what becomes of all when one of them ends.

The first process keeps no loop and no thread, so it may fork at any time. Each of the others holds the end of a pipe, its
lifeline: it stops in order when the pipe ends, because the first process closed it, or is gone.
"""

import logging
import os
import signal
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Final, Generic, TypeVar

from rmq.commands.shared import exits

log = logging.getLogger("rmq.processes")

MOST_STARTS, STARTS_S = 5, 60.0  # so many new starts within so many seconds, then all is ended
_STOPS: Final = (signal.SIGTERM, signal.SIGINT)
_BY_SIGNAL: Final = 128  # exit codes from here on: a process that a second signal ended
_WATCHED: Final = (*_STOPS, signal.SIGCHLD, signal.SIGHUP)

P = TypeVar("P")


class _Child(Generic[P]):
    def __init__(self, part: P, lifeline: int) -> None:
        self.part = part
        self._lifeline: int | None = lifeline

    def let_go(self) -> None:
        lifeline, self._lifeline = self._lifeline, None
        if lifeline is not None:
            os.close(lifeline)


class Supervisor(Generic[P]):
    """One process for each of `parts`. `name` is what a part is called; `is_last`: it ends after the others.

    A process that was killed, that a bug ended, or that somebody stopped by itself is started again. One that says why it cannot
    go on (exit codes 1 to 5) would not come further the next time: then all stop, so that who started them (systemd) hears of it.
    """

    def __init__(self, parts: Sequence[P], name: Callable[[P], str], is_last: Callable[[P], bool]) -> None:
        self._parts = parts
        self._name = name
        self._is_last = is_last
        self._running: dict[int, _Child[P]] = {}  # by process id
        self._starts: deque[float] = deque(maxlen=MOST_STARTS)
        self._stopping = False
        self._code = exits.OK

    def run(self) -> tuple[P, int] | int:
        """Returns in each new process its part and its lifeline (a descriptor), and in the first one, once all have ended, the
        exit code."""
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)  # some systems drop it otherwise
        signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED)
        due = list(self._parts)
        while due or self._running:
            for part in due:
                if lifeline := self._start(part):
                    return part, lifeline
            due = self._after(signal.sigwait(_WATCHED))
        log.info("stopped")
        return self._code

    def _start(self, part: P) -> int:
        """0 in the first process; the lifeline in the new one."""
        reading, writing = os.pipe()
        if pid := os.fork():
            os.close(reading)
            self._running[pid] = _Child(part, writing)
            log.info("process %s has the id %d", self._name(part), pid)
            return 0
        os.close(writing)
        for sibling in self._running.values():
            sibling.let_go()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _WATCHED)
        return reading

    def _after(self, number: int) -> list[P]:
        """What a signal means; gives the parts that are to be started again."""
        again: list[P] = []
        if number == signal.SIGHUP:
            log.info("SIGHUP: the node goes on; SIGTERM stops it")
        elif number == signal.SIGCHLD:
            again = [child.part for child, status in self._ended() if self._comes_again(child.part, status)]
        elif self._stopping:
            for pid in self._running:
                os.kill(pid, signal.SIGKILL)
            os._exit(_BY_SIGNAL + number)
        else:
            log.info("stopping (a second signal ends all processes at once)")
            self._stopping = True
        if self._stopping:
            self._let_go()
            again = []
        return again

    def _ended(self) -> Iterator[tuple[_Child[P], int]]:
        with suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if not pid:
                    return
                if child := self._running.pop(pid, None):
                    child.let_go()
                    yield child, os.waitstatus_to_exitcode(status)

    def _comes_again(self, part: P, code: int) -> bool:
        """`code`: of its exit, or minus the signal that killed it."""
        how = f"was killed ({signal.Signals(-code).name})" if code < 0 else f"ended with exit code {code}"
        name = self._name(part)
        if self._stopping:
            if -code not in _STOPS:  # a signal that came before the process could handle it
                self._code = self._code or max(code, exits.FAILED if code else exits.OK)
            return False
        now = time.monotonic()
        too_often = len(self._starts) == MOST_STARTS and now - self._starts[0] < STARTS_S
        if code in (exits.OK, exits.BUG) or code < 0 or code >= _BY_SIGNAL:
            if not too_often:
                log.error("process %s %s; it is started again, the others go on", name, how)
                self._starts.append(now)
                return True
            how += f", after {MOST_STARTS} new starts of processes within {STARTS_S:g} s"
        log.error("process %s %s: all others are stopped; its own lines say why", name, how)
        self._code = code if code > 0 else exits.FAILED
        self._stopping = True
        return False

    def _let_go(self) -> None:
        """Ends those that are not to end last, and these only after them."""
        first = [child for child in self._running.values() if not self._is_last(child.part)]
        for child in first or list(self._running.values()):
            child.let_go()

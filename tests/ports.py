"""Ports for what is started again on the same one, or on several that belong together.

Not from where the system takes the ports of connections: one of another test could have it when it is wanted again. Each
test process has a range of its own and goes through it, so that a port that somebody will listen on only later is his. All end
below 20 000, where those of `LocalBroker` begin.
"""

import contextlib
import itertools
import os
import random
import socket

_STEP = 5
_PORTS = 9_000 // int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")) // _STEP * _STEP
_first = 11_000 + int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:]) * _PORTS
_turns = itertools.count(random.SystemRandom().randrange(_PORTS // _STEP))  # another place in each run: they may overlap


def free_port(*neighbours: int) -> int:
    """One that nobody has; nor any so many above or below it."""
    for _ in range(_PORTS // _STEP):
        port = _first + next(_turns) * _STEP % _PORTS
        with contextlib.ExitStack() as probes:
            try:
                for each in (port, *(port + away for away in neighbours)):
                    probe = probes.enter_context(socket.socket())
                    probe.bind(("127.0.0.1", each))
            except OSError:
                continue
            return port
    raise AssertionError(f"no free port from {_first} to {_first + _PORTS}")

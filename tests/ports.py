"""Ports for what is started again on the same one, or on several that belong together.

Not from where the system takes the ports of connections: one of another test could have it when it is wanted again.
"""

import contextlib
import random
import socket

_CHOICE = range(12_000, 30_000, 5)
_random = random.SystemRandom()  # two test processes must not choose alike


def free_port(*neighbours: int) -> int:
    """One that nobody has; nor any so many above or below it."""
    for _ in range(1000):
        port = _random.choice(_CHOICE)
        with contextlib.ExitStack() as probes:
            try:
                for each in (port, *(port + away for away in neighbours)):
                    probe = probes.enter_context(socket.socket())
                    probe.bind(("127.0.0.1", each))
            except OSError:
                continue
            return port
    raise AssertionError("no free port in 1000 tries")

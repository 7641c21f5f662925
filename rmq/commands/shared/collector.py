"""Python's cycle collector in a node. While it runs everything else stands still, so it must never look at much.

A node's objects are freed with their last reference, and what it keeps (topics, queues, offsets, ...) it keeps for long. So the
collector looks at new objects only, a few thousand at a time, and at most twice at each. By Python's own rules it looked now and
then at all that had come in hours, for a quarter of a second. What was in a circle and in use for long (asyncio leaves one for
each connection that has ended) is found by a look at everything, which waits for a moment in which the node has little to do.
"""

import gc
import time
from typing import Final

from rmq.clock import Clock

NEW_OBJECTS: Final = 2_000
"""So many more than before begin a look. It takes less than 1 ms, but where much else goes through the caches up to 5, and every
second one twice as long: with 5 000 a loaded node stood still for 20 ms."""
HOUR_S, DAY_S = 3_600.0, 86_400.0  # between two looks at everything: if there is little to do, and at most
MINUTE_S: Final = 60.0
_LITTLE: Final = 0.05  # of a core
_NEVER: Final = 1_000_000_000


def settle() -> None:
    """What there is stays, and is not looked at again. For the begin of a node, before it serves."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(NEW_OBJECTS, 1, _NEVER)


async def look_now_and_then(clock: Clock) -> None:
    """At everything that came since `settle`. Until cancelled."""
    looked = clock.monotonic()
    while True:
        used = time.process_time()
        await clock.sleep(MINUTE_S)
        idle = time.process_time() - used < _LITTLE * MINUTE_S
        if clock.monotonic() - looked > (HOUR_S if idle else DAY_S):
            gc.collect()
            looked = clock.monotonic()

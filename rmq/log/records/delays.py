"""Delay levels: how long a message with a level waits [messageDelayLevel]. Pure."""

from collections.abc import Mapping, Sequence
from typing import Final

from rmq.log.records.properties import is_number

DELAYS_S = (1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)
LEVELS_MS = tuple(seconds * 1000 for seconds in DELAYS_S)


OWN_DELAY = "RMQ_DELAY_MS"
"""Property of a message with a delay level whose broker has a list of its own (messageDelayLevel): it keeps the delay that it was
stored with, whatever the list says later, and says so to every node."""


OUT_DIGITS: Final = 13  # of a time in ms, until the year 2286
out_property = b"TIMER_OUT_MS\x01%d\x02".__mod__
"""What is added to a message with a time of its own while it waits."""
OUT_ROOM: Final = out_property(10 ** (OUT_DIGITS - 1))
"""The same where the time is not known yet."""


def asked_time(delay_s: bytes | None, delay_ms: bytes | None, deliver_ms: bytes | None) -> tuple[int, bool]:
    """The time that a message of its own asks for, in ms (0: none), and whether that counts from now on. Of several kinds the
    first one counts [HookUtils]."""
    if delay_s is not None:
        return int(delay_s) * 1000, True
    if delay_ms is not None:
        return int(delay_ms), True
    return int(deliver_ms or 0), False


def delay_ms(properties: Mapping[str, str], delays_ms: Sequence[int]) -> int:
    """How long a message with a delay level waits; 0 without one. `delays_ms`: of level 1, 2, ... if it does not say itself."""
    if is_number(own := properties.get(OWN_DELAY, "")):
        return int(own)
    if is_number(level := properties.get("DELAY", "")) and int(level) > 0:
        return delays_ms[min(int(level), len(delays_ms)) - 1]
    return 0

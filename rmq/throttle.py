"""Slows down password guessing: each failure makes the next try wait longer. Others are not locked out. Pure; times in
seconds."""

from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from typing import Final

FREE: Final = 3  # mistakes that cost nothing
_FIRST_S, _LONGEST_S = 0.5, 30.0
_LONGEST_BESIDE_S = 1.0
_FORGET_S = 300.0
_MOST = 10_000
Guess = tuple[str, str]
"""The source (`source_of`) and the user of a login."""


@lru_cache(4096)
def source_of(host: str) -> str:
    """What counts as one source: an IPv4 address, or an IPv6 network of 64 bits: who has one address there has them all."""
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if not isinstance(address, IPv6Address) or address.ipv4_mapped:
        return host
    return str(IPv6Address(int(address) >> 64 << 64))


class Throttle:
    """Failures by source and user: the same user from elsewhere, and other users from there, are not slowed down. Where the right
    secret was proven lately somebody else uses it too, a program beside one with an old secret; there the wait is short."""

    def __init__(self) -> None:
        self._failed: dict[Guess, tuple[int, float]] = {}
        self._unknown: dict[Guess, tuple[int, float]] = {}  # the same of users that do not exist
        self._proved: dict[Guess, float] = {}

    def wait_s(self, guess: Guess, now: float) -> float:
        """Seconds until the next try is allowed; 0: now."""
        count, last = self._failed.get(guess) or self._unknown.get(guess, (0, 0.0))
        if count <= FREE:
            return 0.0
        longest_s = _LONGEST_BESIDE_S if now - self._proved.get(guess, -_FORGET_S) < _FORGET_S else _LONGEST_S
        return max(0.0, last + min(_FIRST_S * 2.0 ** min(count - FREE - 1, 10), longest_s) - now)

    @property
    def watches(self) -> bool:
        """Whether anybody failed lately."""
        return bool(self._failed)

    def failed(self, guess: Guess, now: float, exists: bool = True) -> None:
        """`exists`: the user. Names that are made up would push real ones out of the memory, and these might be tried again."""
        failed = self._failed if exists else self._unknown
        count, last = failed.pop(guess, (0, now))
        failed[guess] = (count + 1 if now - last < _FORGET_S else 1, now)
        if len(failed) > _MOST:
            del failed[next(iter(failed))]  # the oldest

    def succeeded(self, guess: Guess, now: float) -> None:
        self._proved.pop(guess, None)
        self._proved[guess] = now
        if len(self._proved) > _MOST:
            del self._proved[next(iter(self._proved))]

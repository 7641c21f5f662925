"""What a connection remembers of its peer's proofs, for the guard."""

from typing import Any


class Standing:
    """Who a peer has proven to be, once for all its requests, and what it may do, as the guard remembers it. `at`: since which
    version of users and policies. `unproven`: it was served without having proven it. `asked_to_wait`: until when
    (monotonic s), because of a quota; `too_early`: how often it did not, in a row. `beats`: who signed the last heartbeat, where
    each request is signed."""

    __slots__ = ("asked_to_wait", "at", "beats", "logging_in", "login", "permitted", "too_early", "unproven")

    def __init__(self) -> None:
        self.login: Any = None
        self.beats: Any = None
        self.logging_in: object = None
        self.permitted: set[object] = set()
        self.at: object = None
        self.unproven = False
        self.asked_to_wait = 0.0
        self.too_early = 0

"""Chooses where to pull a queue from: the leader of its group, the suggested node, or a follower while nobody leads.

It only decides. Times are monotonic seconds, handed in. [PullAPIWrapper.recalculatePullFromWhichNode]
"""

from collections.abc import Mapping

from rmq.client.shared.leaders import LEADERLESS_S
from rmq.client.shared.routes import LEADER


class Source:
    """Of one queue."""

    def __init__(self) -> None:
        self._suggested = LEADER
        self._failing_since: float | None = None  # the leader
        self._failed = ""  # its address
        self._to_follower = False  # the leader failed last: a follower's turn
        self._turn = 0

    def choose(self, leader: str, reachable: bool, followers: Mapping[int, str], now: float) -> tuple[str, bool]:
        """Address to pull from, and whether it is a follower's; the leader's may be "". `followers`: by broker id.

        `reachable`: there is a connection to the leader. One that has failed is not dialled before each pull:
        heartbeats do that, and a new leader has another address.
        """
        if self._suggested in followers:
            return followers[self._suggested], True
        waited = self._failing_since is not None and now - self._failing_since >= LEADERLESS_S
        if not waited or not followers:
            return leader, False
        if not self._to_follower and leader and (reachable or leader != self._failed):
            return leader, False
        return followers[sorted(followers)[self._turn % len(followers)]], True

    def answered(self, by_follower: bool, suggested: int) -> None:
        """`suggested`: broker id to ask next."""
        self._suggested = suggested
        self._to_follower = False
        if not by_follower:
            self._failing_since = None

    def failed(self, by_follower: bool, leader: str, now: float) -> None:
        """Notes a failure: no answer, a refusal, or a useless answer."""
        self._suggested = LEADER
        self._to_follower = not by_follower
        if by_follower:
            self._turn += 1
            return
        self._failed = leader
        if self._failing_since is None:
            self._failing_since = now

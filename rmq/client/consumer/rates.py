"""What a consumer did with one topic lately, as RocketMQ's tools show it [ConsumerStatsManager]. Reads no clock."""

from collections import deque
from typing import Final, NamedTuple

from rmq.net.commands.reports import TopicRates

_MINUTE_S: Final = 60.0
_HOUR_S: Final = 3600.0


class _Counts(NamedTuple):
    """Until some moment. Times in ms."""

    pulls: int = 0
    pulled: int = 0
    pull_ms: float = 0.0
    handled: int = 0
    failed: int = 0
    handled_ms: float = 0.0


class Rates:
    """`now` is in monotonic seconds in all calls. Call `sample` every few seconds."""

    def __init__(self, now: float) -> None:
        self.pulls = self.pulled = self.handled = self.failed = 0
        self.pull_ms = self.handled_ms = 0.0
        self._minute: deque[tuple[float, _Counts]] = deque([(now, _Counts())])
        self._hour: deque[tuple[float, int]] = deque([(now, 0)])  # failed, once a minute

    def sample(self, now: float) -> None:
        self._minute.append((now, self._counts()))
        if now - self._hour[-1][0] >= _MINUTE_S:
            self._hour.append((now, self.failed))
        while len(self._minute) > 1 and self._minute[1][0] <= now - _MINUTE_S:
            self._minute.popleft()
        while len(self._hour) > 1 and self._hour[1][0] <= now - _HOUR_S:
            self._hour.popleft()

    def _counts(self) -> _Counts:
        return _Counts(self.pulls, self.pulled, self.pull_ms, self.handled, self.failed, self.handled_ms)

    def report(self, now: float) -> TopicRates:
        since, before = self._minute[0]
        seconds = max(now - since, 1.0)
        pulls, pulled, pull_ms, handled, failed, handled_ms = (
            end - begin for end, begin in zip(self._counts(), before, strict=True)
        )
        return TopicRates(
            pull_rt=pull_ms / max(pulls, 1),
            pull_tps=pulled / seconds,
            consume_rt=handled_ms / max(handled + failed, 1),
            consume_ok_tps=handled / seconds,
            consume_failed_tps=failed / seconds,
            consume_failed_msgs=self.failed - self._hour[0][1],
        )

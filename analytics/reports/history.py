"""The numbers of a page: sums over days and brokers, differences from former weeks, when the disk will be full. Pure."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import date, datetime, timedelta
from typing import NamedTuple

from analytics.reports.days import BUSINESS, Day, Detail, Manifest
from analytics.reports.lag import Lag

FORMER_WEEKS = 4
REFUSED_AT = 0.90  # share of the disk from which producers are refused [diskSpaceWarningLevelRatio]
LEAST_CHANGE = 100  # messages; with fewer, a change is chance
_RATIO = 1.5
_RATE_DAYS = 7
_DAY = timedelta(days=1)


class Shown(NamedTuple):
    """`days`: one for each day and broker; `before`: those of the four weeks before, if they were counted. `lags`: for each
    broker, the time and the lags. `now`: when the page is made.
    """

    days: Sequence[Day]
    before: Sequence[Day]
    first: date
    last: date
    timezone: str
    lags: Sequence[tuple[datetime, Sequence[Lag]]]
    now: datetime


class Summary(NamedTuple):
    """One topic over all days and brokers shown. `keys`: distinct keys, summed over days and brokers. `peak`: the detail with the
    busiest second, None if it was not counted. `queues`: messages by broker and queue.
    """

    topic: str
    kind: str
    messages: int
    bytes: int
    repeats: int
    keys: int
    peak: Detail | None
    sizes: Counter[int]
    delays_ms: Counter[int]
    queues: Counter[tuple[str, int]]
    top_keys: Counter[str]
    origins: Counter[str]

    @property
    def skew(self) -> float:
        """The messages of the busiest queue, divided by the mean of all its queues."""
        return max(self.queues.values()) * len(self.queues) / sum(self.queues.values()) if self.queues else 0.0


class Change(NamedTuple):
    """A topic that differs from former weeks; `usual`: the mean of these weeks."""

    topic: str
    messages: int
    usual: float


class Disk(NamedTuple):
    """The disk of one broker. `grows`: bytes a day, measured over `of_days` days. `full`: when producers will be refused, None if
    not in ten years."""

    broker: str
    total: int
    free: int
    store: int
    grows: float
    of_days: int
    full: date | None


def summaries(counted: Iterable[Day]) -> dict[str, Summary]:
    """Summaries by topic, of every kind; topic "" has the details of all business topics together."""
    found: dict[str, Summary] = {}
    for each in counted:
        for row in (*each.rows, *each.apart):
            one = found.get(row.topic) or _new(row.topic, row.kind)
            found[row.topic] = one._replace(
                messages=one.messages + row.messages,
                bytes=one.bytes + row.bytes,
                repeats=one.repeats + row.repeats,
            )
        for detail in each.details:
            one = found.get(detail.topic) or _new(detail.topic, "")
            found[detail.topic] = _with(one, detail, each.manifest.broker)
    return found


def _new(topic: str, kind: str) -> Summary:
    return Summary(topic, kind, 0, 0, 0, 0, None, Counter(), Counter(), Counter(), Counter(), Counter())


def _with(one: Summary, detail: Detail, broker: str) -> Summary:
    """`one` with a detail added; its counters grow in place."""
    one.sizes.update(detail.sizes)
    one.delays_ms.update(detail.delays_ms)
    one.queues.update({(broker, queue.queue_id): queue.messages for queue in detail.queues})
    one.top_keys.update(dict(detail.top_keys))
    one.origins.update(detail.origins)
    is_higher = one.peak is None or detail.peak_messages > one.peak.peak_messages
    return one._replace(keys=one.keys + detail.distinct_keys, peak=detail if is_higher else one.peak)


def of_kind(found: dict[str, Summary], kind: str = BUSINESS) -> list[Summary]:
    """The topics of one kind, with the most messages first."""
    return sorted((one for one in found.values() if one.kind == kind), key=lambda one: (-one.messages, one.topic))


# --- former weeks -----------------------------------------------------------------------------------------------------


def weeks(shown: Shown) -> list[Counter[str]]:
    """Messages by topic on the same days one to four weeks earlier; only weeks whose days are all counted and complete."""
    span = [shown.first + n * _DAY for n in range((shown.last - shown.first).days + 1)]
    there = {each.manifest.day for each in shown.before} - {
        each.manifest.day for each in shown.before if each.manifest.complete is False
    }
    found = []
    for week in range(1, FORMER_WEEKS + 1):
        same = {(day - week * 7 * _DAY).isoformat() for day in span}
        if same <= there:
            found.append(_messages(each for each in shown.before if each.manifest.day in same))
    return found


def changes(shown: Shown, former: Sequence[Counter[str]]) -> list[Change]:
    """Topics with half as many messages again as the mean of former weeks, or a third less; the largest differences first."""
    now, usual = _messages(shown.days), sum(former, Counter[str]())
    found = [Change(topic, now[topic], usual[topic] / len(former)) for topic in {*now, *usual}]
    return sorted((one for one in found if _differs(one)), key=lambda one: (-abs(one.messages - one.usual), one.topic))


def _differs(one: Change) -> bool:
    low, high = sorted((one.messages, one.usual))
    return high - low >= LEAST_CHANGE and high >= low * _RATIO


def _messages(counted: Iterable[Day]) -> Counter[str]:
    sums: Counter[str] = Counter()
    for each in counted:
        for row in each.rows:
            sums[row.topic] += row.messages
    return sums


# --- the disk ---------------------------------------------------------------------------------------------------------


def disks(shown: Shown) -> Iterator[Disk]:
    """The disk of each broker, if its last counted day tells of it."""
    by_broker: dict[str, list[Manifest]] = {}
    for each in (*shown.before, *shown.days):
        by_broker.setdefault(each.manifest.broker, []).append(each.manifest)
    for broker, found in sorted(by_broker.items()):
        counted = [one for one in found if one.complete is not None]  # otherwise the day's bytes are spread over the log
        last = max(counted, key=lambda one: one.made, default=None)
        if last and last.disk:
            grows, of_days = _growth(counted)
            yield Disk(broker, last.disk["total"], last.disk["free"], last.disk["store"], grows, of_days, _full(last, grows))


def _growth(found: Sequence[Manifest]) -> tuple[float, int]:
    """Bytes a day, and the days measured: how fast free space shrank between two reports, else how fast the log grew."""
    made = sorted((datetime.fromisoformat(one.made), one.disk["free"]) for one in found if one.disk)
    (first, free_then), (last, free_now) = made[0], made[-1]
    if last - first >= _DAY:
        return (free_then - free_now) / ((last - first) / _DAY), round((last - first) / _DAY)
    complete = [one for one in found if one.complete][-_RATE_DAYS:] or found[-1:]
    return sum(one.log_to - one.log_from for one in complete) / len(complete), len(complete)


def _full(last: Manifest, grows: float) -> date | None:
    left = last.disk["free"] - (1 - REFUSED_AT) * last.disk["total"]
    days = left / grows if grows > 0 else 1e9
    return (datetime.fromisoformat(last.made) + max(days, 0) * _DAY).date() if days < 3650 else None

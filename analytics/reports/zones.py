"""Days and hours of a time zone: parsing days, when each begins and ends, and which one a moment is in."""

import difflib
from collections.abc import Iterable
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

import numpy as np

from analytics.stores.walk import Ints
from rmq.errors import InvalidArgument

LONGEST_RANGE_DAYS = 366
_DAY = timedelta(days=1)
_QUARTER_S = 900  # zones differ from UTC by multiples of it, and change at its multiples
_EPOCH = date(1970, 1, 1)
_FIRST, _LAST = date(2000, 1, 1), date(9998, 12, 31)  # others come from clocks gone wrong [reports.counting]


def find_zone(name: str) -> ZoneInfo:
    """A zone by its name in the IANA database. Raises InvalidArgument, which suggests the nearest name."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        near = difflib.get_close_matches(name, available_timezones(), 1)
        advice = f"did you mean {near[0]}?" if near else "write it as Europe/Berlin or UTC"
        raise InvalidArgument(f"there is no time zone {name!r}; {advice}") from None


def parse_days(text: str, now: datetime, zone: ZoneInfo) -> tuple[date, ...]:
    """`yesterday`, `today`, a day, or FIRST..LAST, as days of the zone. Raises InvalidArgument."""
    today = now.astimezone(zone).date()
    words = {"today": today, "yesterday": today - _DAY}
    first, dots, last = text.strip().partition("..")
    try:
        days = [words.get(word) or date.fromisoformat(word) for word in ([first, last] if dots else [first])]
    except ValueError:
        how = "write it as 2026-11-21, 2026-11-01..2026-11-21, yesterday, or today"
        raise InvalidArgument(f"{text!r} is not a day; {how}") from None
    if not all(_FIRST <= day <= _LAST for day in days):
        raise InvalidArgument(f"{text!r} is not a day of {_FIRST} to {_LAST}")
    count = (days[-1] - days[0]).days + 1
    if not 1 <= count <= LONGEST_RANGE_DAYS:
        raise InvalidArgument(f"{text!r} has {count} days; a range is FIRST..LAST, of {LONGEST_RANGE_DAYS} days at most")
    return tuple(days[0] + n * _DAY for n in range(count))


def moments(day: date, zone: ZoneInfo) -> tuple[datetime, datetime]:
    """When the day begins, and the next one. A day may have 23 or 25 hours."""
    start, end = (datetime.combine(each, time(), zone).astimezone(UTC) for each in (day, day + _DAY))
    return start, end


def stretches(days: Iterable[date]) -> list[tuple[date, date]]:
    """The days as (first, last) of each run of consecutive days."""
    found: list[tuple[date, date]] = []
    for day in sorted(set(days)):
        if found and day - found[-1][1] == _DAY:
            found[-1] = (found[-1][0], day)
        else:
            found.append((day, day))
    return found


def day_number(day: date) -> int:
    """Days since 1970."""
    return (day - _EPOCH).days


def day_of(number: int) -> date:
    return _EPOCH + timedelta(days=number)


def local_places(seconds: Ints, zone: ZoneInfo) -> tuple[Ints, Ints]:
    """The day (since 1970) and the beginning of the hour (Unix seconds) of each moment, in local time of the zone."""
    quarters, which = np.unique(seconds // _QUARTER_S, return_inverse=True)
    ahead = np.array([_ahead_s(int(quarter) * _QUARTER_S, zone) for quarter in quarters], np.int64)[which]
    local = seconds + ahead
    return local // 86400, local // 3600 * 3600 - ahead


def _ahead_s(second: int, zone: ZoneInfo) -> int:
    try:
        offset = datetime.fromtimestamp(second, zone).utcoffset()
    except (OverflowError, ValueError, OSError):
        return 0  # a time that no calendar has: no wanted day contains it
    return round(offset.total_seconds()) if offset else 0

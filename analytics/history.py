"""What a page shows: its days, those before them, and how far consumers are behind. Pure."""

from collections.abc import Sequence
from datetime import date, datetime
from typing import NamedTuple

from analytics.days import Day
from analytics.lag import Lag


class Shown(NamedTuple):
    """`days`: one for each day and broker; `before`: the same of the four weeks before, as far as they are there. `lags`: of each
    broker, as of when. `now`: when the page is made.
    """

    days: Sequence[Day]
    before: Sequence[Day]
    first: date
    last: date
    timezone: str
    lags: Sequence[tuple[datetime, Sequence[Lag]]]
    now: datetime

"""The plots of the report's page, made with plotly. Pure: rows in, figures out."""

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import date, datetime, timedelta
from html import escape
from typing import Any
from zoneinfo import ZoneInfo

import plotly.graph_objects as go

from analytics.reports.days import Row

TOP_TOPICS = 20
OTHER = "other topics"
_LONGEST_BY_HOUR = timedelta(days=7)  # a longer time is drawn day by day
_DAY_MS = 86_400_000
_MOST_TAGS = 25
_MOST_LETTERS = 32
_LAYOUT: dict[str, Any] = {"template": "plotly_white", "height": 400, "margin": {"l": 60, "r": 20, "t": 50, "b": 50}}
_COLORS = [
    "#4269d0", "#efb118", "#ff725c", "#6cc5b0", "#3ca951", "#ff8ab7", "#a463f2", "#97bbf5", "#9c6b4e", "#5d6673",
    "#1f3a93", "#b37b00", "#c0392b", "#2a8c76", "#1e6b2c", "#c2185b", "#6a1b9a", "#5b8def", "#6d4c41", "#2f3640",
]  # fmt: skip
_GREY = "#c8ccd0"


def plots(rows: Sequence[Row], before: Sequence[Row], top: Sequence[str], timezone: str) -> list[go.Figure]:
    """Messages and bytes by time and topic, messages by tag, and by day with the weeks before."""
    found = [
        _by_time(rows, top, timezone, "Messages", lambda row: row.messages),
        _by_time(rows, top, timezone, "Stored bytes", _bytes),
        _by_tag(rows),
    ]
    return [_by_day([*before, *rows]), *found] if before else found


def shortened(text: str) -> str:
    """The text, short enough for a label."""
    return escape(text if len(text) <= _MOST_LETTERS else text[: _MOST_LETTERS - 1] + "…")


def _by_time(rows: Sequence[Row], top: Sequence[str], timezone: str, what: str, value: Callable[[Row], int]) -> go.Figure:
    by_day = max(row.hour for row in rows) - min(row.hour for row in rows) > _LONGEST_BY_HOUR
    zone, ranks = ZoneInfo(timezone), {topic: rank for rank, topic in enumerate(top[:TOP_TOPICS])}
    sums: dict[str, Counter[date]] = {}
    for row in rows:
        moment = row.day if by_day else row.hour.astimezone(zone).replace(tzinfo=None)
        sums.setdefault(row.topic if row.topic in ranks else OTHER, Counter())[moment] += value(row)
    figure = go.Figure()
    for topic in sorted(sums, key=lambda topic: ranks.get(topic, len(ranks))):
        look = {"color": _COLORS[ranks[topic]] if topic in ranks else _GREY, "line_width": 0}
        times = sorted(sums[topic])
        figure.add_bar(name=shortened(topic), x=times, y=[sums[topic][at] for at in times], marker=look)
    title = f"{what} by {'day' if by_day else 'hour'} and topic ({escape(timezone)})"
    height = max(_LAYOUT["height"], 120 + 20 * len(sums))  # room for the whole legend
    layout = {**_LAYOUT, "height": height, "bargap": 0 if by_day else 0.05}
    figure.update_layout(title=title, barmode="stack", showlegend=True, **layout)
    figure.update_yaxes(ticksuffix="B" if value is _bytes else "")
    return _days_apart(figure) if by_day else figure


def _bytes(row: Row) -> int:
    return row.bytes


def _by_tag(rows: Sequence[Row]) -> go.Figure:
    sums: Counter[str] = Counter()
    for row in rows:
        sums[row.tag or "(no tag)"] += row.messages
    top = sums.most_common(_MOST_TAGS)
    places = list(range(len(top)))  # and not the tags: several may begin alike, and look the same when shortened
    figure = go.Figure(go.Bar(x=places, y=[count for _, count in top], marker_color=_COLORS[0]))
    title = "Messages by tag" + (f" (the {_MOST_TAGS} most frequent of {len(sums):,})" if len(sums) > _MOST_TAGS else "")
    ticks = {"tickvals": places, "ticktext": [shortened(tag) for tag, _ in top]}
    return figure.update_layout(title=title, xaxis=ticks, **_LAYOUT)


def _by_day(rows: Sequence[Row]) -> go.Figure:
    sums: Counter[datetime | date] = Counter()
    for row in rows:
        sums[row.day] += row.messages
    days = sorted(sums)
    bars = go.Bar(x=days, y=[sums[day] for day in days], width=0.8 * _DAY_MS, marker_color=_COLORS[0])
    figure = go.Figure(bars)  # a bar without a width would reach to days that were not counted
    return _days_apart(figure.update_layout(title="Messages by day, with the weeks before", **_LAYOUT))


def _days_apart(figure: go.Figure) -> go.Figure:
    """Puts no ticks of hours between days."""
    return figure.update_xaxes(tickformat="%d %b %Y")

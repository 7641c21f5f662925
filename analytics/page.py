"""The report as one HTML page that needs nothing else: numbers, plots, a table. Pure: rows in, text out.

The plots are plotly's and its script is inside the page (4.8 MB), so the page works without a network (docs/decisions).
"""

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import date, datetime, timedelta
from html import escape
from typing import NamedTuple

import plotly.graph_objects as go

_LONGEST_BY_HOUR = timedelta(days=7)  # a longer time is drawn by day
_MOST_TAGS = 25
_LAYOUT = {"template": "plotly_white", "height": 380, "margin": {"l": 60, "r": 20, "t": 50, "b": 50}}
_VIEWPORT = '<meta name="viewport" content="width=device-width">'
_CONFIG = {"displaylogo": False, "responsive": True}
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 70em; padding: 0 1em; color: #222 }
table { border-collapse: collapse } td, th { padding: .2em .9em; border-bottom: 1px solid #ddd; text-align: right }
td:first-child, th:first-child { text-align: left } .numbers td { font-size: 1.3em }
.numbers { margin-bottom: 1.5em } .numbers :is(td, th) { text-align: right } @media (max-width: 40em) { body { font-size: 12px } }
"""


class Row(NamedTuple):
    """One row of the rollup (see analytics.rollup)."""

    day: date
    hour: datetime
    topic: str
    tag: str
    messages: int
    bytes: int
    distinct_keys: int
    repeats: int


def render(title: str, source: str, rows: Sequence[Row], keys: dict[str, int]) -> str:
    """The page. `keys`: distinct keys by topic; `source`: what was read, told at the page's top."""
    first, last = min(row.hour for row in rows), max(row.hour for row in rows)
    figures = [_by_time(rows, last - first > _LONGEST_BY_HOUR), _by_topic(rows), _by_tag(rows)]
    plots = [figure.to_html(full_html=False, include_plotlyjs=(n == 0), div_id=f"plot-{n}", config=_CONFIG)
             for n, figure in enumerate(figures)]  # fmt: skip
    body = [f"<h1>{escape(title)}</h1>", f"<p>{escape(source)}</p>", _numbers(rows, keys), *plots, _table(rows, keys)]
    head = f'<meta charset="utf-8">{_VIEWPORT}<title>{escape(title)}</title><style>{_STYLE}</style>'
    return f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body>\n' + "\n".join(body) + "\n</body></html>\n"


def sum_by(rows: Sequence[Row], key: Callable[[Row], object], value: Callable[[Row], int]) -> Counter[object]:
    """Sums of `value` over rows with the same `key`."""
    sums: Counter[object] = Counter()
    for row in rows:
        sums[key(row)] += value(row)
    return sums


def totals(rows: Sequence[Row]) -> tuple[int, int, int]:
    """Messages, bytes and repeats of all rows together."""
    return sum(row.messages for row in rows), sum(row.bytes for row in rows), sum(row.repeats for row in rows)


def _by_time(rows: Sequence[Row], by_day: bool) -> go.Figure:
    figure = go.Figure()
    for topic in sorted({row.topic for row in rows}):
        own = [row for row in rows if row.topic == topic]
        sums = sum_by(own, (lambda row: row.day) if by_day else (lambda row: row.hour), lambda row: row.messages)
        figure.add_bar(name=escape(topic), x=list(sums), y=list(sums.values()), marker_line_width=0)
    return figure.update_layout(title=f"Messages by {'day' if by_day else 'hour'} (UTC)", barmode="stack", bargap=0, **_LAYOUT)


def _by_topic(rows: Sequence[Row]) -> go.Figure:
    sums = sum_by(rows, lambda row: escape(row.topic), lambda row: row.bytes)
    figure = go.Figure(go.Bar(x=list(sums), y=list(sums.values())))
    return figure.update_layout(title="Stored bytes by topic", **_LAYOUT)


def _by_tag(rows: Sequence[Row]) -> go.Figure:
    sums = sum_by(rows, lambda row: escape(row.tag) or "(no tag)", lambda row: row.messages)
    top = sums.most_common(_MOST_TAGS)
    figure = go.Figure(go.Bar(x=[tag for tag, _ in top], y=[count for _, count in top]))
    title = "Messages by tag" + (f" (the {_MOST_TAGS} largest of {len(sums)})" if len(sums) > _MOST_TAGS else "")
    return figure.update_layout(title=title, **_LAYOUT)


def _numbers(rows: Sequence[Row], keys: dict[str, int]) -> str:
    messages, size, repeats = totals(rows)
    topics = len({row.topic for row in rows})
    numbers = {"messages": messages, "bytes": size, "topics": topics, "keys (by topic)": sum(keys.values()), "repeats": repeats}
    names = "".join(f"<th>{name}</th>" for name in numbers)
    return f'<table class="numbers"><tr>{names}</tr><tr>{"".join(map(_cell, numbers.values()))}</tr></table>'


def _table(rows: Sequence[Row], keys: dict[str, int]) -> str:
    lines = ["<tr><th>topic</th><th>messages</th><th>bytes</th><th>distinct keys</th><th>repeats</th></tr>"]
    for topic in sorted({row.topic for row in rows}):
        own = [row for row in rows if row.topic == topic]
        messages, size, repeats = totals(own)
        values = [messages, size, keys.get(topic, 0), repeats]
        lines.append(f"<tr><td>{escape(topic)}</td>{''.join(map(_cell, values))}</tr>")
    return f'<h2>By topic</h2>\n<table id="topics">\n{chr(10).join(lines)}\n</table>'


def _cell(value: int) -> str:
    return f"<td>{value:,}</td>"

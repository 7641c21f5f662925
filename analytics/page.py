"""The report as one HTML page that needs nothing else: numbers, plots, a table. Pure: rows in, text out.

The plots are plotly's and its script is inside the page (4.8 MB), so the page works without a network (docs/decisions).
"""

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta
from html import escape

import plotly.graph_objects as go

from analytics.days import BUSINESS, Day, Row, kind_of
from analytics.history import Shown

_LONGEST_BY_HOUR = timedelta(days=7)  # a longer time is drawn by day
_MOST_TAGS = 25
_MOST_WARNINGS = 3
_LAYOUT = {"template": "plotly_white", "height": 380, "margin": {"l": 60, "r": 20, "t": 50, "b": 50}}
_VIEWPORT = '<meta name="viewport" content="width=device-width">'
_CONFIG = {"displaylogo": False, "responsive": True}
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 70em; padding: 0 1em; color: #222 }
table { border-collapse: collapse } td, th { padding: .2em .9em; border-bottom: 1px solid #ddd; text-align: right }
td:first-child, th:first-child { text-align: left } .numbers td { font-size: 1.3em }
.numbers { margin-bottom: 1.5em } .numbers :is(td, th) { text-align: right } .warning { color: #a40000 }
@media (max-width: 40em) { body { font-size: 12px } }
"""


def render(title: str, shown: Shown) -> str:
    """The page of these days (of one or more brokers)."""
    counted = shown.days
    rows = [row for each in counted for row in each.rows]
    apart = [row for each in counted for row in each.apart]
    keys: Counter[str] = Counter()
    for each in counted:
        keys.update({topic: count for topic, count in each.manifest.keys.items() if kind_of(topic) == BUSINESS})
    figures = [_by_time(rows), _by_topic(rows), _by_tag(rows)] if rows else []
    plots = [figure.to_html(full_html=False, include_plotlyjs=(n == 0), div_id=f"plot-{n}", config=_CONFIG)
             for n, figure in enumerate(figures)]  # fmt: skip
    body = [f"<h1>{escape(title)}</h1>", f"<p>{_summary(counted)}</p>", _numbers(rows, keys), *plots, _table(rows, keys)]
    body += [_apart(apart), _sources(counted)]
    head = f'<meta charset="utf-8">{_VIEWPORT}<title>{escape(title)}</title><style>{_STYLE}</style>'
    return f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body>\n' + "\n".join(body) + "\n</body></html>\n"


def _summary(counted: Sequence[Day]) -> str:
    """Of whom, when, counted by what, and whether anything is missing."""
    manifests = [each.manifest for each in counted]
    brokers, dates = sorted({one.broker for one in manifests}), sorted({one.day for one in manifests})
    by = ", ".join(sorted({one.counted_by for one in manifests}))
    span = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    text = f"{span} (UTC), counted by {by}; broker{'s' if len(brokers) > 1 else ''} {', '.join(brokers)}; "
    text += f"made {max(one.made for one in manifests)}."
    gaps = [one for one in manifests if one.complete is False]
    lost, damaged = sum(one.lost for one in manifests), sum(one.damaged_bytes for one in manifests)
    warnings = [f"{one.day} of {one.broker} is incomplete: {one.why_not}." for one in gaps[:_MOST_WARNINGS]]
    if len(gaps) > _MOST_WARNINGS:
        warnings.append(f"{len(gaps) - _MOST_WARNINGS} more days are incomplete (last table).")
    if lost or damaged:
        warnings.append(f"{lost} messages are known to be lost, {damaged} damaged bytes were passed over.")
    marked = "".join(f'<br><strong class="warning">{escape(warning)}</strong>' for warning in warnings)
    return escape(text) + marked


def sum_by(rows: Sequence[Row], key: Callable[[Row], object], value: Callable[[Row], int]) -> Counter[object]:
    """Sums of `value` over rows with the same `key`."""
    sums: Counter[object] = Counter()
    for row in rows:
        sums[key(row)] += value(row)
    return sums


def totals(rows: Sequence[Row]) -> tuple[int, int, int]:
    """Messages, bytes and repeats of all rows together."""
    return sum(row.messages for row in rows), sum(row.bytes for row in rows), sum(row.repeats for row in rows)


def _by_time(rows: Sequence[Row]) -> go.Figure:
    figure = go.Figure()
    by_day = max(row.hour for row in rows) - min(row.hour for row in rows) > _LONGEST_BY_HOUR
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


def _numbers(rows: Sequence[Row], keys: Counter[str]) -> str:
    messages, size, repeats = totals(rows)
    topics = len({row.topic for row in rows})
    numbers = {"messages": messages, "bytes": size, "topics": topics, "repeats": repeats}
    numbers["keys (by topic and day)"] = sum(keys.values())
    names = "".join(f"<th>{name}</th>" for name in numbers)
    return f'<table class="numbers"><tr>{names}</tr><tr>{"".join(map(_cell, numbers.values()))}</tr></table>'


def _table(rows: Sequence[Row], keys: Counter[str]) -> str:
    lines = ["<tr><th>topic</th><th>messages</th><th>bytes</th><th>distinct keys</th><th>repeats</th></tr>"]
    for topic in sorted({row.topic for row in rows}):
        own = [row for row in rows if row.topic == topic]
        messages, size, repeats = totals(own)
        values = [messages, size, keys[topic], repeats]
        lines.append(f"<tr><td>{escape(topic)}</td>{''.join(map(_cell, values))}</tr>")
    return f'<h2>By topic</h2>\n<table id="topics">\n{chr(10).join(lines)}\n</table>'


def _apart(rows: Sequence[Row]) -> str:
    """Retry, dead-letter and system topics: messages for somebody, but none that business sent."""
    if not rows:
        return ""
    lines = ["<tr><th>topic</th><th>kind</th><th>messages</th><th>bytes</th></tr>"]
    for kind, topic in sorted({(row.kind, row.topic) for row in rows}):
        messages, size, _ = totals([row for row in rows if row.topic == topic])
        lines.append(f"<tr><td>{escape(topic)}</td><td>{kind}</td>{_cell(messages)}{_cell(size)}</tr>")
    about = "Not counted above: messages that came again, were given up, or belong to the brokers."
    return f'<h2>Retry, dead-letter and system topics</h2>\n<p>{about}</p>\n<table id="apart">\n{chr(10).join(lines)}\n</table>'


def _sources(counted: Sequence[Day]) -> str:
    """What was read for each day and broker, newest first."""
    lines = ["<tr><th>day</th><th>broker</th><th>bytes of the log</th><th>complete</th><th>made</th><th>store</th></tr>"]
    for one in sorted((each.manifest for each in counted), key=lambda one: (one.day, one.broker), reverse=True):
        complete = {True: "yes", False: f"no: {one.why_not}", None: f"not known: {one.why_not}"}[one.complete]
        cells = [one.day, one.broker, f"{one.log_from:,} to {one.log_to:,}", complete, one.made, one.source]
        lines.append(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}</tr>")
    return f'<h2>Read from</h2>\n<table id="sources">\n{chr(10).join(lines)}\n</table>'


def _cell(value: int) -> str:
    return f"<td>{value:,}</td>"

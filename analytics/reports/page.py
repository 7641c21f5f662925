"""The report as one HTML page that needs nothing else: what happened, what is odd, and what it was read from. Pure: gives text.

plotly draws the plots, and its script is inside the page (4.8 MB), so the page works without a network (docs/decisions).
"""

from collections.abc import Sequence
from html import escape

from analytics.reports import pagetables as tables
from analytics.reports.days import BUSINESS, DEAD_LETTER, RETRY, Row
from analytics.reports.history import Shown, Summary, changes, disks, of_kind, summaries, weeks
from analytics.reports.pageplots import plots
from analytics.reports.pagetables import moment, share, size

_MOST_WARNINGS = 3
_VIEWPORT = '<meta name="viewport" content="width=device-width">'
_CONFIG = {"displayModeBar": False, "responsive": True}
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 72em; padding: 0 1em; color: #222 }
h1 { margin-bottom: .2em } h2 { margin: 2em 0 .2em } h3 { margin: 1.2em 0 .2em; font-size: 1em }
.about { color: #555; margin: 0 0 .6em }
.wide { overflow-x: auto } table { border-collapse: collapse }
td, th { padding: .2em .8em; border-bottom: 1px solid #ddd; text-align: right; white-space: nowrap }
th { color: #555; font-weight: 600; white-space: normal; vertical-align: bottom; max-width: 9em }
td { font-variant-numeric: tabular-nums } td:first-child { white-space: normal; overflow-wrap: anywhere; min-width: 14em }
:is(td, th):first-child, .words-2 :is(td, th):nth-child(-n+2), .words-3 :is(td, th):nth-child(-n+3),
.words-6 :is(td, th):nth-child(-n+6) { text-align: left }
.numbers { display: flex; flex-wrap: wrap; gap: .7em; margin: 1.2em 0 }
.numbers div { border: 1px solid #ddd; border-radius: .4em; padding: .5em .8em; min-width: 7.5em }
.numbers b { display: block; font-size: 1.5em; font-weight: 600 } .numbers small { color: #555 }
.good, .warning { font-weight: 600 } .good { color: #1a7431 } .warning { color: #a40000 }
details { margin-top: .8em } summary { cursor: pointer; color: #1f3a93 }
@media (max-width: 40em) { body { font-size: 12px } td:first-child { min-width: 8em } }
"""


def render(title: str, shown: Shown) -> str:
    """The page for these days (of one or more brokers)."""
    rows = [row for each in shown.days for row in each.rows]
    found = summaries(shown.days)
    business = of_kind(found)
    before = [row for each in shown.before for row in each.rows]
    figures = plots(rows, before, [one.topic for one in business], shown.timezone) if rows else []
    drawn = [
        figure.to_html(full_html=False, include_plotlyjs=(n == 0), div_id=f"plot-{n}", config=_CONFIG)
        for n, figure in enumerate(figures)
    ]
    former = weeks(shown)
    apart = sorted((one for one in found.values() if one.kind not in (BUSINESS, "")), key=lambda one: (-one.messages, one.topic))
    is_part = not shown.before and shown.last > shown.first  # all days of the stores are shown: there are none before
    body = [
        f"<h1>{escape(title)}</h1>", f"<p>{_summary(shown)}</p>", _numbers(found, business, shown),
        "" if is_part else tables.differences(changes(shown, former) if former else [], len(former), shown.first == shown.last),
        tables.lags(shown.lags, shown.timezone), tables.again(found), tables.section("Over time", "", *drawn) if drawn else "",
        tables.topics(business, "topics/ and rollup/ beside this page") if business else "", tables.queues(business),
        tables.delays(business), tables.keys(business), tables.disks(list(disks(shown))), tables.apart(apart),
        tables.sources(shown.days, shown.timezone),
    ]  # fmt: skip
    head = f'<meta charset="utf-8">{_VIEWPORT}<title>{escape(title)}</title><style>{_STYLE}</style>'
    text = "\n".join(filter(None, body))
    return f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body>\n{text}\n</body></html>\n'


def totals(rows: Sequence[Row]) -> tuple[int, int, int]:
    """Messages, bytes and repeats of all rows together."""
    return sum(row.messages for row in rows), sum(row.bytes for row in rows), sum(row.repeats for row in rows)


def _summary(shown: Shown) -> str:
    """Whether anything is missing; which brokers and days are shown, and which times are counted."""
    manifests = [each.manifest for each in shown.days]
    gaps = [one for one in manifests if one.complete is False]
    runs = {(one.broker, one.made): one for one in manifests}.values()  # each day of a run says what all of the run met
    lost, damaged = sum(one.lost for one in runs), sum(one.damaged_bytes for one in runs)
    warnings = [f"{one.day} of {one.broker} is incomplete: {one.why_not}." for one in gaps[:_MOST_WARNINGS]]
    if len(gaps) > _MOST_WARNINGS:
        warnings.append(f"{len(gaps) - _MOST_WARNINGS} more days are incomplete (last table).")
    if lost or damaged:
        warnings.append(f"{lost} messages are known to be lost, {damaged} damaged bytes were passed over.")
    lines = [f'<span class="warning">{escape(warning)}</span>' for warning in warnings]
    if all(one.complete for one in manifests):
        days = "this day" if shown.first == shown.last else "these days"
        what = f"all messages of {days} are counted" if any(one.messages for one in manifests) else f"{days} had no message"
        lines.insert(0, f'<span class="good">Complete: {what}.</span>')
    elif not gaps:
        lines.insert(0, "Nobody can know whether it is complete: messages with times of these days may still come.")
    brokers, by = sorted({one.broker for one in manifests}), ", ".join(sorted({one.counted_by for one in manifests}))
    span = str(shown.first) if shown.first == shown.last else f"{shown.first} to {shown.last}"
    named = ", ".join(brokers[:8]) + (f" and {len(brokers) - 8} more" if len(brokers) > 8 else "")
    text = (
        f"{span}, times of {shown.timezone}, counted by {by}. Broker{'s' if len(brokers) > 1 else ''}: {named}. "
        f"Page made {moment(shown.now, shown.timezone)}."
    )
    return "<br>".join([*lines, escape(text)])


def _numbers(found: dict[str, Summary], business: Sequence[Summary], shown: Shown) -> str:
    messages, stored, repeats = (sum(getattr(one, name) for one in business) for name in ("messages", "bytes", "repeats"))
    boxes = [
        (f"{messages:,}", "messages", f"in {len(business):,} topic{'s' if len(business) > 1 else ''}"),
        (size(stored), "stored", _each(stored, messages)),
    ]
    busiest = found[""].peak if "" in found else None
    if busiest:
        where = " of one broker" if len({each.manifest.broker for each in shown.days}) > 1 else ""
        boxes.append((f"{busiest.peak_messages:,}", f"in the busiest second{where}", moment(busiest.peak_at, shown.timezone)))
    again = [(RETRY, "came again", "retries of consumers"), (DEAD_LETTER, "given up", "dead letters")]
    counts = [(sum(one.messages for one in of_kind(found, kind)), name, about) for kind, name, about in again]
    boxes += [(f"{count:,}", name, f"{about}: {share(count, messages)}") for count, name, about in counts]
    boxes.append((f"{repeats:,}", "repeats", f"sent again: {share(repeats, messages)}"))
    drawn = "".join(
        f"<div><b>{escape(number)}</b>{escape(name)}<br><small>{escape(about)}</small></div>" for number, name, about in boxes
    )
    return f'<div class="numbers">{drawn}</div>'


def _each(stored: int, messages: int) -> str:
    return f"{size(stored / messages)} each" if messages else ""

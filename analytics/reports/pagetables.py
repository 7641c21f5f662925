"""The tables of the report's page. Pure: numbers in, HTML out; whatever comes from a message is escaped."""

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from html import escape
from zoneinfo import ZoneInfo

from analytics.reports.bins import percentile
from analytics.reports.days import DEAD_LETTER, RETRY, Day
from analytics.reports.history import LEAST_CHANGE, Change, Disk, Summary
from analytics.reports.lag import Lag
from analytics.reports.pageplots import TOP_TOPICS
from rmq.model import DLQ_PREFIX, RETRY_PREFIX

_MOST = 10  # lines of a table that shows only the largest
_MOST_LAGS = 20
_MOST_ORIGINS = 3
_MOST_SOURCES = 40
_MOST_LETTERS = 80
_SHARES = (0.5, 0.99, 0.999)


def table(name: str, heads: Sequence[str], lines: Iterable[Sequence[object]], words: int = 1) -> str:
    """An HTML table. The first `words` columns hold words, the others numbers."""
    found = ["<tr>" + "".join(f"<th>{escape(head)}</th>" for head in heads) + "</tr>"]
    found += ["<tr>" + "".join(map(_cell, line)) + "</tr>" for line in lines]
    marks = f' class="words-{words}"' if words > 1 else ""
    return f'<div class="wide"><table id="{name}"{marks}>\n{chr(10).join(found)}\n</table></div>'


def _cell(value: object) -> str:
    """A number gets commas; None becomes "not known"."""
    text = "-" if value is None else f"{value:,}" if isinstance(value, int) else str(value)
    if len(text) > _MOST_LETTERS:
        return f'<td title="{escape(text)}">{escape(text[: _MOST_LETTERS - 1])}…</td>'
    return f"<td>{escape(text)}</td>"


def section(title: str, about: str, *parts: str) -> str:
    return "\n".join([f"<h2>{escape(title)}</h2>", f'<p class="about">{escape(about)}</p>' if about else "", *parts])


def size(count: float) -> str:
    """Bytes for people."""
    units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"]
    while abs(count) >= 1024 and len(units) > 1:
        count, units = count / 1024, units[1:]
    return f"{count:,.0f} {units[0]}" if units[0] == "B" else f"{count:,.1f} {units[0]}"


def duration(milliseconds: int) -> str:
    if milliseconds < 0:
        return "< 0 ms"
    if milliseconds < 1000:
        return f"{milliseconds} ms"
    seconds = milliseconds / 1000
    return f"{seconds:.1f} s" if seconds < 120 else f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"


def share(part: float, whole: float) -> str:
    """In percent."""
    percent = 100 * part / whole if whole else 0.0
    return f"{percent:.2g} %" if percent < 1 else f"{percent:.1f} %"


def moment(at: datetime, timezone: str) -> str:
    return f"{at.astimezone(ZoneInfo(timezone)):%Y-%m-%d %H:%M:%S}"


# --- sections ---------------------------------------------------------------------------------------------------------


def topics(found: Sequence[Summary], folder: str) -> str:
    """The largest topics, one line for the others, and a folded table of all."""
    heads = ["topic", "messages", "share", "stored", "messages in its busiest second", "most bytes in a second",
             "size, half are below", "99 % are below", "distinct keys", "repeats"]  # fmt: skip
    every = sum(one.messages for one in found)
    lines: list[list[object]] = [_topic_line(one, every) for one in found[:TOP_TOPICS]]
    rest = found[TOP_TOPICS:]
    if rest:
        sums = [sum(getattr(one, name) for one in rest) for name in ("messages", "bytes", "keys", "repeats")]
        shown = [f"{len(rest):,} other topics", sums[0], share(sums[0], every), size(sums[1])]
        lines.append([*shown, None, None, None, None, *sums[2:]])
    parts = [table("topics", heads, lines)]
    if rest:
        plain = table(
            "all-topics",
            ["topic", "messages", "stored bytes", "repeats"],
            ([one.topic, one.messages, size(one.bytes), one.repeats] for one in found),
        )
        parts.append(f"<details><summary>All {len(found):,} topics</summary>{plain}</details>")
    most = f"Of {len(found):,} topics the {TOP_TOPICS} with the most messages. " if rest else ""
    about = (
        f"{most}A repeat is a message whose unique id was in its topic before on that day: a producer sent it again. "
        f"These numbers of all topics are in {folder}."
    )
    return section("Topics", about, *parts)


def _topic_line(one: Summary, every: int) -> list[object]:
    half, most = (size(percentile(one.sizes, part)) if one.sizes else None for part in (0.5, 0.99))
    peaks = (one.peak.peak_messages, size(one.peak.peak_bytes)) if one.peak else (None, None)
    return [one.topic, one.messages, share(one.messages, every), size(one.bytes), *peaks, half, most, one.keys, one.repeats]


def delays(found: Sequence[Summary]) -> str:
    """Store minus born time."""
    slow = sorted((one for one in found if one.delays_ms), key=lambda one: -percentile(one.delays_ms, 0.99))[:_MOST]
    heads = ["topic", "half were stored within", "99 %", "99.9 %", "clock ahead"]
    lines = [
        [
            one.topic,
            *(duration(percentile(one.delays_ms, part)) for part in _SHARES),
            share(sum(count for each, count in one.delays_ms.items() if each < 0), sum(one.delays_ms.values())),
        ]
        for one in slow
    ]
    about = (
        "From the time that the producer's clock said until the message was stored, for the topics that took longest. "
        "Clock ahead: so many were stored before they were born, by a producer's clock that is ahead."
    )
    return section("Way from producer to store", about, table("delays", heads, lines)) if lines else ""


def queues(found: Sequence[Summary]) -> str:
    """The busiest queues, and the topics whose queues differ most."""
    every = [(count, one.topic, place) for one in found for place, count in one.queues.items()]
    every.sort(key=lambda each: -each[0])
    busiest = [[topic, broker, str(queue), count] for count, topic, (broker, queue) in every[:_MOST]]
    uneven = sorted((one for one in found if len(one.queues) > 1), key=lambda one: -one.skew * (one.messages >= 100))[:_MOST]
    skewed: list[list[object]] = []
    for one in uneven:
        (broker, queue), most = one.queues.most_common(1)[0]
        skewed.append([one.topic, f"{one.skew:.1f} times the mean", len(one.queues), f"queue {queue} of {broker}", most])
    parts = [table("busiest-queues", ["topic", "broker", "queue", "messages"], busiest, 3)] if busiest else []
    if skewed:
        parts += [
            "<h3>Most uneven topics</h3>",
            table("skew", ["topic", "the busiest queue got", "queues with messages", "busiest queue", "messages in it"], skewed),
        ]
    about = "A consumer takes whole queues: where one queue gets much more than the others, one consumer works while others wait."
    return section("Busiest queues", about, *parts) if parts else ""


def keys(found: Sequence[Summary]) -> str:
    every = sorted(((count, one, key) for one in found for key, count in one.top_keys.items()), key=lambda each: -each[0])
    lines = [[one.topic, key, count, share(count, one.messages)] for count, one, key in every[:_MOST]]
    heads = ["topic", "key", "messages", "of its topic"]
    about = "Messages that carry the same key, most first."
    return section("Most frequent keys", about, table("keys", heads, lines, 2)) if lines else ""


def again(found: dict[str, Summary]) -> str:
    """Retries and dead letters by group, compared with the messages of the topics that they came from."""
    groups = sorted({_group(one) for one in found.values() if one.kind in (RETRY, DEAD_LETTER)})
    lines: list[list[object]] = []
    for group in groups:
        retried, dead = (found.get(prefix + group) for prefix in (RETRY_PREFIX, DLQ_PREFIX))
        origins = {topic for one in (retried, dead) if one for topic in one.origins if topic}
        sent = sum(found[topic].messages for topic in origins if topic in found)
        counts = [one.messages if one else 0 for one in (retried, dead)]
        lines.append([group, _named(retried, dead), *counts, *(share(n, sent) if sent else None for n in counts)])
    lines.sort(key=lambda line: -(line[2] if isinstance(line[2], int) else 0))
    heads = ["group", "messages of", "came again", "given up", "came again, of these", "given up, of these"]
    about = (
        "A consumer that fails gets the message again, through the topic %RETRY%GROUP. After 16 tries, or as many as the "
        "group allows, it is given up: %DLQ%GROUP keeps it."
    )
    return section("Retries and dead letters", about, table("again", heads, lines[: 2 * _MOST], 2)) if lines else ""


def _named(*found: Summary | None) -> str | None:
    """The topics that most of their messages came from."""
    origins = Counter[str]()
    for one in found:
        origins.update({topic: count for topic, count in one.origins.items() if topic} if one else {})
    names = sorted(origins, key=lambda topic: (-origins[topic], topic))
    more = [f"{len(names) - _MOST_ORIGINS:,} more"] if len(names) > _MOST_ORIGINS else []
    return ", ".join([*names[:_MOST_ORIGINS], *more]) or None


def _group(one: Summary) -> str:
    return one.topic.removeprefix(RETRY_PREFIX).removeprefix(DLQ_PREFIX)


def lags(said: Sequence[tuple[datetime, Sequence[Lag]]], timezone: str) -> str:
    every = sorted((lag for _, each in said for lag in each), key=lambda lag: (-lag.lag, lag.group, lag.topic))
    if not said:
        return section("Consumers behind", "Not known: no store has the offsets of its groups (config/consumerOffset.json).")
    behind = [lag for lag in every if lag.lag]
    lines = [[lag.group, lag.topic, lag.broker, lag.lag, f"{lag.worst_lag:,} in queue {lag.worst_queue}"] for lag in behind]
    oldest = min(as_of for as_of, _ in said)
    when = moment(oldest, timezone)
    if not every:
        return section("Consumers behind", f"No group had consumed anything as of {when}.")
    if not behind:
        return section("Consumers behind", f"None: each of {len(every):,} pairs of group and topic was up to date as of {when}.")
    more = f" The {_MOST_LAGS} that are most behind; all are in lag/." if len(behind) > _MOST_LAGS else ""
    about = (
        f"Messages that were stored and not yet consumed as of {when}: {len(behind):,} of {len(every):,} pairs of group and "
        f"topic are behind.{more}"
    )
    heads = ["group", "topic", "broker", "behind", "the most"]
    return section("Consumers behind", about, table("lag", heads, lines[:_MOST_LAGS], 3))


def differences(found: Sequence[Change], former: int, is_day: bool) -> str:
    """`former`: the number of weeks to compare with."""
    same = "the same day" if is_day else "the same days"
    if not former:
        about = f"No former week is in this directory yet: {same} one to four weeks earlier, complete."
        return section("Different from former weeks", about)
    weeks = f"{same} a week earlier" if former == 1 else f"{same} of {former} former weeks"
    if not found:
        about = f"Nothing: no topic has half as many messages again as {weeks} had on average, or a third less."
        return section("Different from former weeks", f"{about} Fewer than {LEAST_CHANGE} messages are no difference.")
    lines = [[one.topic, one.messages, round(one.usual), _change(one)] for one in found[:_MOST]]
    more = f" ({len(found):,} topics; the largest differences are shown)" if len(found) > _MOST else ""
    about = f"Topics with at least half as many messages again as {weeks} had on average, or a third less{more}."
    return section("Different from former weeks", about, table("changes", ["topic", "messages", "usual", "change"], lines))


def _change(one: Change) -> str:
    if not one.usual:
        return "new"
    return "none came" if not one.messages else f"{(one.messages / one.usual - 1) * 100:+.0f} %"


def disks(found: Sequence[Disk]) -> str:
    lines = [
        [
            one.broker,
            size(one.store),
            size(one.free),
            size(one.total),
            f"{size(one.grows)} (last {'day' if one.of_days == 1 else f'{one.of_days} days'})",
            one.full.isoformat() if one.full else "not in ten years",
        ]
        for one in found
    ]
    heads = ["broker", "store", "free", "disk", "grows a day", "90 % full"]
    about = (
        "If nothing is deleted and it goes on like this. At 75 % a broker deletes expired files at any hour, at 85 % the "
        "oldest ones though they are not expired, at 90 % it refuses producers."
    )
    return section("Disk", about, table("disks", heads, lines)) if lines else ""


def apart(found: Sequence[Summary]) -> str:
    """Retry, dead-letter and system topics: messages that no business producer sent."""
    lines = [[one.topic, one.kind, one.messages, size(one.bytes)] for one in found[: 2 * _MOST]]
    more = f" The {2 * _MOST} largest of {len(found):,}." if len(found) > 2 * _MOST else ""
    about = f"Not counted above: messages that came again, were given up, or belong to the brokers.{more}"
    heads = ["topic", "kind", "messages", "stored bytes"]
    return section("Retry, dead-letter and system topics", about, table("apart", heads, lines, 2)) if lines else ""


def sources(counted: Sequence[Day], timezone: str) -> str:
    """What was read for each day and broker, newest first."""
    lines = []
    for one in sorted((each.manifest for each in counted), key=lambda one: (one.day, one.broker), reverse=True):
        complete = {True: "yes", False: f"no: {one.why_not}", None: f"not known: {one.why_not}"}[one.complete]
        made, offsets = moment(datetime.fromisoformat(one.made), timezone), f"{one.log_from:,} to {one.log_to:,}"
        lines.append([one.day, one.broker, complete, offsets, made, one.source])
    heads = ["day", "broker", "complete", "offsets in the log", "made", "store"]
    made = table("sources", heads, lines, 6)
    if len(lines) > _MOST_SOURCES:
        made = f"<details><summary>All {len(lines):,} days and brokers</summary>{made}</details>"
    return section("Read from", "Where these numbers come from.", made)

"""What the tasks of a report count and how it is put together, against a slow twin in plain Python. Without Java."""

import random
from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="needs the extra `spark`")

from analytics.reports.bins import NEGATIVE, bins, percentile, upper_end
from analytics.reports.counting import Task, count
from analytics.reports.hashes import hash_texts
from analytics.reports.merging import merge_all, merge_bucket
from analytics.reports.rollup import Counts, counts_of
from analytics.reports.zones import day_number, find_zone, local_places
from analytics.stores.options import Wanted
from analytics.stores.plan import plan
from tests.analytics.stores import Sent, write_store

NOON = 1_795_262_400_000  # 2026-11-21T12:00Z


def counted(store: Path, days: frozenset[int] | None = None, zone: str = "UTC", at: str | None = None) -> Counts:
    """As Spark does it: several tasks, dealt into buckets."""
    wanted = Wanted(system=True, on_damage="quarantine", split_records=97)
    planned, buckets = plan(store, wanted), 3
    tasks = [Task(number, parts, wanted, "broker", days, find_zone(zone), at, buckets) for number, parts in enumerate(planned)]
    assert len(tasks) > 3
    dealt = [one for task in reversed(tasks) for one in count(task)]  # they end in any order
    merged = [merge_bucket([one for one in dealt if one[0] == bucket]) for bucket in range(buckets)]
    return counts_of(merge_all([tables for each in merged for tables in each]), "broker")


def messages(seed: int) -> list[Sent]:
    """With repeats far apart, keys in common between topics and hours, and two days."""
    chance = random.Random(seed)
    sent = []
    for number in range(800):
        topic = chance.choice(["Orders", "Orders", "Stock", "%RETRY%g", "rmq_sys_X"])
        tags = {"TAGS": chance.choice("abc")} if chance.random() < 0.8 else {}
        keys = {"KEYS": " ".join(f"k{min(chance.randrange(40), chance.randrange(40))}" for _ in range(chance.randrange(1, 3)))}
        unique = {"UNIQ_KEY": f"id-{chance.randrange(900)}" * chance.randrange(1, 3)}
        origin = {"RETRY_TOPIC": chance.choice(["Orders", "Stock"])} if topic.startswith("%") else {}
        time_ms = NOON + number * 90_000 + chance.randrange(60_000)
        sent.append(Sent(topic, b"x" * chance.randrange(900), tags | keys | unique | origin, time_ms))
    return sent


@pytest.mark.parametrize("zone", ["UTC", "Asia/Kolkata"])
def test_counts_equal_those_of_a_slow_twin(tmp_path: Path, zone: str) -> None:
    sent = messages(7)
    offsets = write_store(tmp_path, sent, segment_bytes=1 << 16)
    found = counted(tmp_path, zone=zone)

    expected: dict[tuple[int, int, str, str], Counter[str]] = {}
    keys: dict[object, set[str]] = {}
    seen, by_second = set(), Counter[tuple[int, str, int]]()
    often: dict[tuple[int, str], Counter[str]] = {}
    for one in sent:
        second = one.time_ms // 1000
        (day,), (hour,) = (each.tolist() for each in local_places(_array(second), find_zone(zone)))
        place = (day, hour, one.topic, one.properties.get("TAGS", ""))
        sums = expected.setdefault(place, Counter())
        sums["messages"] += 1
        sums["repeats"] += (day, one.topic, one.properties["UNIQ_KEY"]) in seen
        seen.add((day, one.topic, one.properties["UNIQ_KEY"]))
        own = one.properties["KEYS"].split()
        keys.setdefault(place, set()).update(own)
        often.setdefault((day, one.topic), Counter()).update(own)
        by_second[day, one.topic, second] += 1
    rows = {(day_number(row.day), int(row.hour.timestamp()), row.topic, row.tag): row for row in found.rows}
    assert list(rows) == sorted(expected)
    for place, row in rows.items():
        assert (row.messages, row.repeats, row.distinct_keys) == (
            expected[place]["messages"],
            expected[place]["repeats"],
            len(keys[place]),
        )
    assert sum(row.bytes for row in found.rows) == sum(_sizes(offsets, tmp_path))
    for iso, details in found.details.items():
        for detail in details[1:]:
            line = next(one for one in often if one[1] == detail.topic and _iso(one[0]) == iso)
            assert detail.distinct_keys == len(often[line])
            assert detail.peak_messages == max(n for (day, topic, _), n in by_second.items() if (day, topic) == line)
            assert detail.top_keys[0][1] == max(often[line].values())
            assert all(often[line][key] == n for key, n in detail.top_keys), "few may be missing where tasks are so small"
            counts = [row.messages for row in found.rows if row.topic == detail.topic and row.day.isoformat() == iso]
            for parts in (detail.sizes.values(), detail.delays_ms.values(), (queue.messages for queue in detail.queues)):
                assert sum(parts) == sum(counts)
            assert sum(detail.origins.values()) == (sum(counts) if detail.topic == "%RETRY%g" else 0)


def test_the_days_asked_for_and_no_others(tmp_path: Path) -> None:
    write_store(tmp_path, messages(3), segment_bytes=1 << 16)
    everything, one_day = counted(tmp_path), counted(tmp_path, days=frozenset([20_778]))
    assert [row.day.isoformat() for row in everything.rows[:: len(everything.rows) - 1]] == ["2026-11-21", "2026-11-22"]
    assert one_day.rows == [row for row in everything.rows if row.day.isoformat() == "2026-11-21"]


def test_times_of_a_property(tmp_path: Path) -> None:
    """Unix ms or ISO; what is neither, or of the years 1970 or 9999, counts by the time of storing."""
    texts = ["1795348800000", "2026-11-22T12:00:00Z", "2026-11-22 13:00:00+01:00", "noon", "0", "9" * 40, "9" * 15, "9999-12-31"]
    write_store(tmp_path, [Sent("T", b"", {"at": text}, NOON) for text in texts for _ in range(97)], segment_bytes=1 << 16)
    found = counted(tmp_path, at="at")
    assert [(row.day.isoformat(), row.messages) for row in found.rows] == [("2026-11-21", 485), ("2026-11-22", 291)]


def test_times_that_no_calendar_has(tmp_path: Path) -> None:
    """From a clock gone wrong: every report of all days ended as a bug."""
    times = [0, NOON, 253_402_300_799_999, 253_402_300_800_000, 2**62]
    write_store(tmp_path, [Sent("T", b"", {}, time) for time in times for _ in range(97)], segment_bytes=1 << 16)
    assert [(row.day.isoformat(), row.messages) for row in counted(tmp_path).rows] == [("2026-11-21", 97)]


def test_bins_hold_their_values() -> None:
    values = [-5, 0, 1, 2, 3, 10, 999, 1_000_000, 1 << 40]
    for value, each in zip(values, bins(_array(*values)).tolist(), strict=True):
        assert max(value, NEGATIVE) <= upper_end(each) <= max(value * 1.1, NEGATIVE)
    assert percentile({}, 0.5) == 0
    assert percentile(dict(Counter(bins(_array(*range(1, 101))).tolist())), 0.5) in range(50, 55)


def test_equal_texts_alone_have_equal_hashes() -> None:
    texts = ["", "a", "b", "ab", "a\0", "12345678", "123456789", "x" * 31, "x" * 32, "x" * 33, "ü" * 9]
    array = _texts(["cut off", *texts, *texts, None])[1:]
    hashes = hash_texts(array).tolist()
    assert hashes[: len(texts)] == hashes[len(texts) : -1]
    assert hashes[-1] == hashes[0]
    assert len(set(hashes)) == len(texts)


def _array(*values: int):  # type: ignore[no-untyped-def]
    import numpy as np

    return np.array(values, np.int64)


def _texts(texts: list[str | None]):  # type: ignore[no-untyped-def]
    import pyarrow as pa

    return pa.array(texts, pa.string())


def _iso(day: int) -> str:
    from analytics.reports.zones import day_of

    return day_of(day).isoformat()


def _sizes(offsets: list[int], store: Path) -> list[int]:
    data = b"".join(file.read_bytes() for file in sorted((store / "commitlog").iterdir()))
    return [int.from_bytes(data[offset : offset + 4], "big") for offset in offsets]

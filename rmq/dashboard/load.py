"""Load: rates of brokers and topics, counted each minute and shown for any of the last 30 days."""

import asyncio
import logging
from collections import Counter
from datetime import date, datetime, time, timedelta
from itertools import cycle, islice

from starlette.responses import Response
from starlette.routing import BaseRoute

from rmq.client import Client
from rmq.client.admin import calls
from rmq.client.admin.calls import leading
from rmq.clock import Clock, WallDrift
from rmq.dashboard.bounded import ask_all
from rmq.dashboard.formats import whole
from rmq.dashboard.history import History, Point
from rmq.dashboard.looks import broker_groups
from rmq.dashboard.page import Page, Visit
from rmq.errors import InvalidArgument, RmqError
from rmq.model import DLQ_PREFIX, MAX_DRIFT_MS, RETRY_PREFIX

log = logging.getLogger("rmq.dashboard")
PERIOD_S = 60.0
TOPICS_A_ROUND = 300  # if there are more topics, each minute counts some of them, in turn
_COUNTERS = {"in": "msgPutTotalTodayNow", "out": "msgGetTotalTodayNow"}
WIDTH, HEIGHT, LEFT, BOTTOM = 960, 220, 56, 24
MOST_LINES = 6
_DRIFTED = "no day of the load is forgotten until it is back, or the dashboard is started again"


class LoadPages:
    def __init__(self, client: Client, page: Page, history: History, clock: Clock) -> None:
        self._client = client
        self._history = history
        self._clock = clock
        self._turn = 0
        self._drift = WallDrift(clock, log, _DRIFTED)
        self.routes: list[BaseRoute] = [page.view("/load", self.load)]

    async def keep_counting(self) -> None:
        """Until cancelled."""
        while True:
            try:
                await self.count()
            except RmqError as error:
                log.warning("the load is not counted: %s", error)
            await self._clock.sleep(PERIOD_S)

    async def count(self) -> None:
        brokers = await broker_groups(self._client)
        facts, _ = await ask_all({group.name: calls.runtime_info(self._client, leading(group)) for group in brokers})
        now_ms, forget = self._clock.wall_ms(), abs(self._drift.ms()) <= MAX_DRIFT_MS
        for way, key in _COUNTERS.items():
            counts = [(name, total) for name, table in facts.items() if (total := whole(table.get(key, ""))) is not None]
            await asyncio.to_thread(self._history.count, f"broker {way}", counts, now_ms, forget)
        own = {name for group in brokers for name in (group.cluster, group.name)}
        topics = [name for name in await calls.topic_list(self._client) if name not in own and not _is_system(name)]
        self._history.keep("topic in", set(topics))
        begin = self._turn % max(1, len(topics))
        chosen = list(islice(cycle(topics), begin, begin + min(TOPICS_A_ROUND, len(topics))))
        self._turn = begin + len(chosen)
        stats, _ = await ask_all({topic: calls.topic_stats(self._client, topic) for topic in chosen}, PERIOD_S / 2)
        sums = Counter[tuple[str, str]]()
        for topic, answer in stats.items():
            for row in answer.queues:
                sums[topic, row.queue.broker_name] += row.max_offset
        counted = [(topic, number, broker) for (topic, broker), number in sums.items()]
        await asyncio.to_thread(self._history.count, "topic in", counted, self._clock.wall_ms(), forget)

    async def load(self, visit: Visit) -> Response:
        today = datetime.fromtimestamp(visit.now_ms / 1000).date()
        try:
            day = date.fromisoformat(visit.text("day")) if visit.text("day") else today
            begin_ms, end_ms = _ms(day), _ms(day + timedelta(days=1))
        except (ValueError, OverflowError, OSError):  # the last two: of a day that no clock can show
            raise InvalidArgument(f"{visit.text('day')!r} is no day: write 2026-11-21") from None
        charts = []
        topic = visit.text("topic")
        for kind, title, only in (
            ("broker in", "Messages in", ""),
            ("broker out", "Messages out", ""),
            ("topic in", f"{topic or 'Topics'}: messages in", topic),
        ):
            top = await asyncio.to_thread(self._history.top, kind, begin_ms, end_ms, only)
            lines = {
                name: await asyncio.to_thread(self._history.line, kind, name, begin_ms, end_ms) for name, _ in top[:MOST_LINES]
            }
            charts.append((title, top, chart(lines, begin_ms, end_ms)))
        return visit.show("load.html", day=day.isoformat(), today=today.isoformat(), topic=topic, charts=charts)


def _is_system(topic: str) -> bool:
    return topic.startswith((RETRY_PREFIX, DLQ_PREFIX, "rmq_sys_", "RMQ_SYS_", "SCHEDULE_TOPIC_")) or topic in ("TBW102",)


def _ms(day: date) -> int:
    return round(datetime.combine(day, time()).timestamp() * 1000)


class Chart:
    """`lines`: each name and its points in the picture. `marks`: heights in the picture and the rates that they stand for."""

    def __init__(self, lines: list[tuple[str, str]], marks: list[tuple[float, float]]) -> None:
        self.lines = lines
        self.marks = marks


def chart(lines: dict[str, list[Point]], begin_ms: int, end_ms: int) -> Chart:
    """Time runs from left to right; the largest rate is at the top."""
    most = max((point.per_second for points in lines.values() for point in points), default=0.0) or 1.0

    def at(point: Point) -> str:
        x = LEFT + (WIDTH - LEFT) * (point.at_ms - begin_ms) / (end_ms - begin_ms)
        return f"{x:.1f},{_height(point.per_second, most):.1f}"

    drawn = [(name, " ".join(at(point) for point in points)) for name, points in lines.items()]
    return Chart(drawn, [(_height(most * part, most), most * part) for part in (0, 0.5, 1)])


def _height(rate: float, most: float) -> float:
    return (HEIGHT - BOTTOM) - (HEIGHT - BOTTOM - 14) * rate / most

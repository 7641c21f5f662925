"""The timeline of one message, from the traces that clients wrote."""

from collections.abc import Sequence
from typing import NamedTuple

from starlette.responses import Response
from starlette.routing import BaseRoute

from rmq.client import Client
from rmq.client.admin import timelines
from rmq.client.admin.timelines import Named, Step
from rmq.client.shared.traceformat import TRACE_TOPIC, Pub
from rmq.codes import ResponseCode
from rmq.dashboard.addresses import link
from rmq.dashboard.bounded import ask
from rmq.dashboard.page import Page, Visit
from rmq.errors import Refusal, RmqError

WIDTH = 1000  # width of the timeline, in the units of its bars
_LEAST = 6


class Row(NamedTuple):
    """`after_ms`: time since the first step. `x`, `width`: of the step's bar."""

    step: Step
    after_ms: int
    x: int
    width: int


class TracePages:
    def __init__(self, client: Client, page: Page) -> None:
        self._client = client
        self.routes: list[BaseRoute] = [page.view("/trace", self.trace)]

    async def trace(self, visit: Visit) -> Response:
        """`word`: the message's id, or one of its keys. `topic`: the topic that its clients write traces to."""
        word, topic = visit.text("word"), visit.text("topic", TRACE_TOPIC) or TRACE_TOPIC
        steps: Sequence[Step] = []
        several: Sequence[Named] = []
        why = ""
        try:
            if word:
                found = await ask(timelines.notes_of(self._client, word, topic, patience_s=visit.left_s(0.6)))
                steps = timelines.line_of(found.notes)
                why = "" if found.complete else "A broker does not answer, refuses, or still builds its index: there may be more."
            if word and not steps:
                several = await ask(timelines.ids_of(self._client, word, topic, visit.left_s(0.6)))
            if len(several) == 1:
                return visit.go(link("/trace", word=several[0].message_id, topic=topic))
        except Refusal as refusal:
            missing = f"No broker has the topic {topic}. Brokers make it at their start with traceTopicEnable = true."
            why = missing if refusal.code == ResponseCode.TOPIC_NOT_EXIST else refusal.remark
        except (RmqError, TimeoutError) as error:
            why = str(error) or "Nobody answered in time."
        sent = next((step.trace for step in steps if isinstance(step.trace, Pub)), None)
        return visit.show(
            "trace.html", word=word, topic=topic, usual=TRACE_TOPIC, why=why, rows=rows_of(steps), several=several, sent=sent
        )


def rows_of(steps: Sequence[Step]) -> list[Row]:
    """Each step with its place between the begin of the first step and the end of the last."""
    if not steps:
        return []
    begin = steps[0].at_ms
    span = max(1, max(step.at_ms + max(0, step.cost_ms) for step in steps) - begin)
    rows = []
    for step in steps:
        after_ms = step.at_ms - begin
        width = max(_LEAST, WIDTH * max(0, step.cost_ms) // span)
        x = min(WIDTH * after_ms // span, WIDTH - _LEAST)
        rows.append(Row(step, after_ms, x, min(width, WIDTH - x)))
    return rows

"""What the message trace says about one message: the notes that clients wrote, and the timeline that they make.
[QueryMsgTraceByIdSubCommand, TraceView]
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from rmq.client.admin import lookups
from rmq.client.admin.lookups import FOREVER_MS
from rmq.client.client import Client
from rmq.client.shared.message import ReceivedMessage
from rmq.client.shared.traceformat import (
    TRACE_TOPIC,
    EndTransaction,
    Outcome,
    Pub,
    Recall,
    SubAfter,
    SubBefore,
    Trace,
    decode,
    words,
)
from rmq.errors import BadBytes
from rmq.log.records.record import host_text

MAX_MESSAGES = 64  # messages of the trace topic, at each broker


class Note(NamedTuple):
    """`client_host`: the address of the client that wrote it."""

    trace: Trace
    client_host: str


class Notes(NamedTuple):
    """Not `complete`: a broker is still building its index, or is silent, so there may be more."""

    notes: list[Note]
    complete: bool


class Step(NamedTuple):
    """`kind`: sent, transaction, recalled or consumed. `cost_ms`: -1 if not known, or not over. `state`: how it ended, in words.
    `good`: None if that is not known yet."""

    at_ms: int
    kind: str
    group: str
    client_host: str
    cost_ms: int
    state: str
    good: bool | None
    trace: Trace


class Named(NamedTuple):
    """A message. `topic`: "" if only consumers traced it. `at_ms`: the time of its first note."""

    message_id: str
    topic: str
    at_ms: int


async def notes_of(
    client: Client,
    message_id: str,
    topic: str = TRACE_TOPIC,
    begin_ms: int = 0,
    end_ms: int = FOREVER_MS,
    limit: int = MAX_MESSAGES,
    patience_s: float | None = None,
) -> Notes:
    """The notes about a message, as they were stored; times limit the notes' store time. `patience_s`: as of `lookups.by_key`.
    Raises Refusal, Unreachable, Unknown."""
    hits = await lookups.by_key(client, topic, message_id, begin_ms=begin_ms, end_ms=end_ms, limit=limit, patience_s=patience_s)
    return Notes([note for message in hits.messages for note in _notes(message, message_id)], hits.complete)


async def ids_of(client: Client, key: str, topic: str = TRACE_TOPIC, patience_s: float | None = None) -> list[Named]:
    """Messages with that key, the newest first. `patience_s`: as of `lookups.by_key`. Raises Refusal, Unreachable, Unknown."""
    hits = await lookups.by_key(client, topic, key, patience_s=patience_s)
    found: dict[str, Named] = {}
    for message in hits.messages:
        for trace in _traces(message):
            if key in words(trace)[1:]:
                named = found.get(trace.message_id) or Named(trace.message_id, "", trace.time_ms)
                found[trace.message_id] = named._replace(topic=named.topic or getattr(trace, "topic", ""))
    return sorted(found.values(), key=lambda named: -named.at_ms)


def _traces(message: ReceivedMessage) -> Iterable[Trace]:
    try:
        return decode(message.body.decode(errors="replace"))
    except BadBytes:
        return ()


def _notes(message: ReceivedMessage, message_id: str) -> Iterable[Note]:
    host = host_text(message.stored.born_host).rpartition(":")[0].strip("[]")
    for trace in _traces(message):
        if message_id in trace.message_id.split(","):  # Java's client names all messages of a batch in one note
            yield Note(trace, host)


def line_of(notes: Sequence[Note]) -> list[Step]:
    """The steps of the message, in the order of the clients' clocks."""
    begun = {note.trace.request_id: note for note in notes if isinstance(note.trace, SubBefore)}
    steps = []
    for trace, host in notes:
        if isinstance(trace, SubAfter):
            before = begun.pop(trace.request_id, None)
            steps.append(_consumed(trace, before.trace if before else None, host))
        elif not isinstance(trace, SubBefore):
            steps.append(_step(trace, host))
    steps += [_consumed(None, note.trace, note.client_host) for note in begun.values()]
    return sorted(steps, key=lambda step: step.at_ms)


def _consumed(after: SubAfter | None, before: Trace | None, host: str) -> Step:
    assert before is None or isinstance(before, SubBefore)
    if after is None:
        assert before is not None
        return Step(before.time_ms, "consumed", before.group, host, -1, "at work, or its client ended", None, before)
    began = before.time_ms if before else after.time_ms - after.cost_ms
    group = after.group or (before.group if before else "")
    state = "done" if after.success else after.outcome.name.lower().replace("_", " ")
    if not after.success and after.outcome is Outcome.SUCCESS:  # an old client does not say why
        state = "failed"
    return Step(began, "consumed", group, host, after.cost_ms, state, after.success, after)


def _step(trace: Pub | EndTransaction | Recall, host: str) -> Step:
    if isinstance(trace, Pub):
        state = "stored" if trace.success else "failed, or not stored as safely as wanted"
        return Step(trace.time_ms, "sent", trace.group, host, trace.cost_ms, state, trace.success, trace)
    if isinstance(trace, Recall):
        return Step(
            trace.time_ms, "recalled", trace.group, host, -1, "done" if trace.success else "refused", trace.success, trace
        )
    words = {"COMMIT_MESSAGE": ("committed", True), "ROLLBACK_MESSAGE": ("rolled back", True)}
    state, good = words.get(trace.state, ("not known yet: the broker asks later", None))
    return Step(trace.time_ms, "transaction", trace.group, host, -1, state, good, trace)

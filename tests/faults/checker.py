"""Compares a recorded history of sends with what the queues hold afterwards. Tests try it on made-up bad histories (G3)."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple


class Ack(NamedTuple):
    """A send that was answered SEND_OK, at `at_s` (monotonic)."""

    queue_id: int
    queue_offset: int
    body: bytes
    physical_offset: int = -1
    at_s: float = 0.0


class Stored(NamedTuple):
    """A message found in a queue."""

    queue_offset: int
    body: bytes


def problems(acks: Iterable[Ack], unknown: Iterable[bytes], queues: Mapping[int, Sequence[Stored]]) -> list[str]:
    """Returns what is wrong, in words; empty if nothing is.

    Checked: every acknowledged message is at its offset (C1, C3), offsets are contiguous (D12), nothing was invented and
    an unknown send is there at most once (C2).
    """
    found: list[str] = []
    at: dict[tuple[int, int], bytes] = {}
    times: dict[bytes, int] = defaultdict(int)
    for queue_id, stored in queues.items():
        for place, message in enumerate(stored):
            expected = stored[0].queue_offset + place
            if message.queue_offset != expected:
                found.append(f"queue {queue_id}: offset {message.queue_offset} where {expected} belongs")
            at[queue_id, message.queue_offset] = message.body
            times[message.body] += 1
    acked = set()
    for ack in acks:
        acked.add(ack.body)
        there = at.get((ack.queue_id, ack.queue_offset))
        if there is None:
            found.append(f"lost: queue {ack.queue_id} offset {ack.queue_offset} was acknowledged")
        elif there != ack.body:
            found.append(f"moved: queue {ack.queue_id} offset {ack.queue_offset} holds another message")
    open_ends = set(unknown)
    for body, count in times.items():
        if body not in acked and body not in open_ends:
            found.append(f"invented: {body[:40]!r}")
        if count > 1:
            found.append(f"stored {count} times: {body[:40]!r}")
    return found

"""The options of a stream: those of a batch read, and where it begins and how much each trigger takes. Pure.

The beginning counts only while a stream is new; from then on its checkpoint decides. So the positions that Spark keeps hold what
the options said: `since` puts it there, and `resumed` takes it back.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeVar

from analytics.stores.options import Wanted, count_option, given_options, parse_options
from rmq.errors import InvalidArgument

_K = TypeVar("_K")
_OF_BATCHES = ("endingOffsets", "endingTimestamp", "to")
_BEGINNINGS = ("startingTimestamp", "from")


class Streamed(NamedTuple):
    """`latest`: a new stream begins at the present end. `most`: messages for each trigger, 0 is no limit."""

    wanted: Wanted
    latest: bool
    most: int


def parse_stream_options(options: Mapping[str, str]) -> Streamed:
    """As with Spark's Kafka source, a new stream begins at the end, unless told otherwise. Raises InvalidArgument."""
    given = given_options(options)
    for name in _OF_BATCHES:
        if name in given:
            raise InvalidArgument(f'the option "{name}" is for batch reads; streams end by trigger(availableNow=True) or stop()')
    beginning = given.get("startingOffsets", "").strip().lower()
    latest = beginning == "latest" or (beginning == "" and not any(name in given for name in _BEGINNINGS))
    if beginning in ("latest", "earliest"):
        del given["startingOffsets"]
    wanted = parse_options(given)
    if beginning == "latest" and wanted.from_ms:
        raise InvalidArgument("startingOffsets=latest and a time to begin at were given: choose one of them")
    return Streamed(wanted, latest, count_option(given, "maxOffsetsPerTrigger"))


def since(wanted: Wanted) -> dict[str, Any]:
    """What a position keeps of the options."""
    found: dict[str, Any] = {"from_ms": wanted.from_ms} if wanted.from_ms else {}
    return found | ({"starts": wanted.starts} if wanted.starts else {})


def resumed(wanted: Wanted, kept: Mapping[str, Any]) -> Wanted:
    """`wanted`, as it was when the stream began. `kept`: what `since` gave, read back from JSON."""
    starts = {topic: {int(queue): offset for queue, offset in of.items()} for topic, of in kept.get("starts", {}).items()}
    return wanted._replace(from_ms=kept.get("from_ms", 0), starts=starts)


def shares(lags: Mapping[_K, int], most: int) -> dict[_K, int]:
    """At most `most` messages in all, shared among queues (or logs) by their lags. [as Spark's Kafka source does]"""
    total = sum(lags.values())
    if total <= most:
        return dict(lags)
    found = {queue: lag * most // total for queue, lag in lags.items()}
    left = most - sum(found.values())
    by_rest = sorted(lags, key=lambda queue: (-(lags[queue] * most % total), lags[queue], str(queue)))
    return found | {queue: found[queue] + 1 for queue in by_rest[:left]}

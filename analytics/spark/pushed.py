"""Uses the filters that Spark pushes down to read less. Spark checks every row again, so reading too much is no fault."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, GreaterThanOrEqual, In, LessThan, LessThanOrEqual

from analytics.stores.options import Wanted, unix_ms

_QUEUES, _TIMES = {"queue_id", "partition"}, {"store_timestamp", "timestamp"}


def narrowed(wanted: Wanted, filters: Iterable[Filter]) -> Wanted:
    """`wanted`, without what cannot pass all of `filters`."""
    for each in filters:
        if isinstance(each, EqualTo):
            wanted = _equal(wanted, each.attribute, (each.value,))
        elif isinstance(each, In):
            wanted = _equal(wanted, each.attribute, each.value)
        elif isinstance(each, GreaterThan | GreaterThanOrEqual):
            wanted = _from(wanted, each.attribute, each.value)
        elif isinstance(each, LessThan | LessThanOrEqual):
            wanted = _to(wanted, each.attribute, each.value)
    return wanted


def _equal(wanted: Wanted, attribute: tuple[str, ...], values: tuple[Any, ...]) -> Wanted:
    name, said = attribute[0] if len(attribute) == 1 else "", frozenset(value for value in values if value is not None)
    if name == "topic":  # a filter may name what nobody knows, or a deleted topic; an option may not
        anything = wanted.allow_missing or wanted.topics is None
        return wanted._replace(topics=frozenset(filter(wanted.has_topic, said)), allow_missing=anything)
    if name in _QUEUES:
        return wanted._replace(queues=said if wanted.queues is None else wanted.queues & said)
    if name == "tags":
        return wanted._replace(tags=said if wanted.tags is None else wanted.tags & said)
    if name in _TIMES and len(said) == 1:
        return _to(_from(wanted, attribute, *said), attribute, *said)
    return wanted


def _from(wanted: Wanted, attribute: tuple[str, ...], value: Any) -> Wanted:
    moment = _ms(value)
    if len(attribute) != 1 or attribute[0] not in _TIMES or moment is None:
        return wanted
    return wanted._replace(from_ms=max(wanted.from_ms, moment))


def _to(wanted: Wanted, attribute: tuple[str, ...], value: Any) -> Wanted:
    moment = _ms(value)
    if len(attribute) != 1 or attribute[0] not in _TIMES or moment is None:
        return wanted
    return wanted._replace(to_ms=min(wanted.to_ms, moment + 1))


def _ms(value: Any) -> int | None:
    """The Unix ms of a timestamp, rounded down; None if it is no timestamp."""
    return unix_ms(value) if isinstance(value, datetime) else None

"""Hypothesis strategies for commands, made from their annotations."""

from typing import Any, get_args, get_origin, get_type_hints

from hypothesis import strategies as st

from rmq.model import GroupConfig, Subscription
from rmq.net.commands.clients import GroupSubscription
from rmq.net.commands.progress import QueueEntries

INT64 = st.integers(-(2**63), 2**63 - 1)
SUBSCRIPTIONS = ["", '[{"topic":"T","version":1}]']
POLICIES = ["", '{"exponentialRetryPolicy":{"initial":1,"max":5,"multiplier":2},"type":"EXPONENTIAL"}']
FINITE = st.floats(allow_nan=False, allow_infinity=False)


def of_type(kind: Any, texts: st.SearchStrategy[str]) -> st.SearchStrategy[Any]:
    simple = {str: texts, int: INT64, bool: st.booleans(), float: FINITE, bytes: st.binary(max_size=300)}
    if kind in simple:
        return simple[kind]
    if get_origin(kind) is list:
        return st.lists(of_type(get_args(kind)[0], texts), max_size=3)
    if get_origin(kind) is dict:
        key, value = get_args(kind)
        return st.dictionaries(st.integers(-(10**17), 10**17) if key is int else texts, of_type(value, texts), max_size=3)
    return of_class(kind, texts)


def of_class(cls: type[Any], texts: st.SearchStrategy[str] | None = None) -> st.SearchStrategy[Any]:
    """Any value of a NamedTuple class."""
    texts = texts if texts is not None else st.text(max_size=40)
    hints = get_type_hints(cls)
    if cls is GroupSubscription:  # RocketMQ's answer has one at most
        return st.builds(cls, texts, texts, st.lists(of_class(Subscription, texts), max_size=1))
    if cls is QueueEntries:
        some = st.lists(of_class(Subscription, texts), max_size=1)
        return st.builds(cls, of_type(hints["queue_data"], texts), st.integers(0, 9), st.integers(0, 9), some, texts)
    if cls is GroupConfig:
        return st.builds(
            cls,
            **{
                name: of_type(hints[name], texts) for name in cls._fields if name not in ("retry_policy", "subscription_data_set")
            },
            retry_policy=st.sampled_from(POLICIES),
            subscription_data_set=st.sampled_from(SUBSCRIPTIONS),
        )
    return st.builds(cls, **{name: of_type(hints[name], texts) for name in cls._fields})

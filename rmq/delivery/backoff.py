"""A group's own times between the tries of a message [GroupRetryPolicy, ExponentialRetryPolicy, CustomizedRetryPolicy]. Pure.

    {"type":"EXPONENTIAL","exponentialRetryPolicy":{"initial":5000,"max":7200000,"multiplier":2}}
    {"type":"CUSTOMIZED","customizedRetryPolicy":{"next":[1000,5000,10000]}}

Times are ms. The first two times of a list are not used, as in RocketMQ (they are levels 1 and 2 of its usual list); the last
time is used for all further tries. The client reads policies, too, so this uses the standard library's json.
"""

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from rmq.codes import ResponseCode
from rmq.errors import Refusal

EXPONENTIAL, CUSTOMIZED = TYPES = ("EXPONENTIAL", "CUSTOMIZED")
MAX_MS: Final = 3 * 24 * 3600 * 1000  # [timerMaxDelaySec]
MAX_STEPS: Final = 100
_PASSED_OVER, _MOST_DOUBLINGS = 2, 32
_USUAL: Final = {"initial": 5_000, "max": 7_200_000, "multiplier": 2}


def delay_ms(policy: str, reconsume_times: int) -> int:
    """How long a message waits after `reconsume_times` retries. `policy`: a result of `canonical`."""
    kind, delays = times_of(policy)
    if kind == EXPONENTIAL:
        initial, most, multiplier = delays
        return int(min(most, initial * multiplier ** min(reconsume_times, _MOST_DOUBLINGS)))
    return delays[min(reconsume_times + _PASSED_OVER, len(delays) - 1)]


@lru_cache(maxsize=1024)
def times_of(policy: str) -> tuple[str, tuple[int, ...]]:
    """EXPONENTIAL: the first, the longest, and by what it grows; CUSTOMIZED: the list. `policy`: a result of `canonical`."""
    said = json.loads(policy)
    if said["type"] == EXPONENTIAL:
        found = said["exponentialRetryPolicy"]
        return EXPONENTIAL, (found["initial"], found["max"], found["multiplier"])
    return CUSTOMIZED, tuple(said["customizedRetryPolicy"]["next"])


def canonical(policy: str) -> str:
    """The policy in its stored form; "" for none, and for the default by delay levels. Raises Refusal (INVALID_PARAMETER)."""
    if not policy.strip():
        return ""
    try:
        said = json.loads(policy)
    except (ValueError, RecursionError) as error:
        raise _wrong(f"it is not JSON: {error}") from None
    if type(said) is not dict:
        raise _wrong("it is no JSON object")
    kind = said.get("type", CUSTOMIZED)
    kind = kind.upper() if type(kind) is str else TYPES[kind] if kind in (0, 1) else kind
    if kind == EXPONENTIAL:
        return _dump(EXPONENTIAL, "exponentialRetryPolicy", _exponential(said.get("exponentialRetryPolicy") or {}))
    if kind != CUSTOMIZED:
        raise _wrong(f"type {str(kind)[:40]!r} is none of {', '.join(TYPES)}")
    found = said.get("customizedRetryPolicy")
    return "" if not found else _dump(CUSTOMIZED, "customizedRetryPolicy", {"next": _steps(found)})


def _exponential(said: Any) -> Mapping[str, int]:
    if type(said) is not dict:
        raise _wrong("exponentialRetryPolicy is no JSON object")
    found = {name: said.get(name, usual) for name, usual in _USUAL.items()}
    for name, value in found.items():
        highest = 1000 if name == "multiplier" else MAX_MS
        if type(value) is not int or not 1 <= value <= highest:
            raise _wrong(f"{name} {str(value)[:40]}: a whole number from 1 to {highest}")
    return found


def _steps(said: Any) -> list[int]:
    steps = said.get("next") if type(said) is dict else None
    if type(steps) is not list or not 1 <= len(steps) <= MAX_STEPS:
        raise _wrong(f"customizedRetryPolicy.next: a list of 1 to {MAX_STEPS} times in ms is expected")
    for step in steps:
        if type(step) is not int or not 0 <= step <= MAX_MS:
            raise _wrong(f"customizedRetryPolicy.next: {str(step)[:40]} is no time from 0 to {MAX_MS} ms")
    return steps


def _dump(kind: str, name: str, value: Mapping[str, Any]) -> str:
    return json.dumps({"type": kind, name: value}, sort_keys=True, separators=(",", ":"))


def _wrong(why: str) -> Refusal:
    return Refusal(ResponseCode.INVALID_PARAMETER, f"groupRetryPolicy: {why}")

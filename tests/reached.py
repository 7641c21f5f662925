"""How many entries each container has that is reached from some objects, by the way there: what grows with all that ever was."""

import asyncio
import functools
import types
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from typing import Any

from rmq.testing import attributes

Step = tuple[str, object]
_LEAVES = (str, bytes, int, float, type, types.ModuleType, types.BuiltinFunctionType, asyncio.AbstractEventLoop)
_LISTS = (list, set, frozenset, deque)
_OURS = ("rmq.", "asyncio", "_asyncio", "contextlib")


def sizes(roots: Mapping[str, object]) -> Counter[str]:
    """By way, as `broker.store.queues[]`: keys are left out, so what many objects of one map have is added up. Goes through
    attributes, what functions and tasks hold, and containers; each object counts once, on a shortest way."""
    found, seen, kept = Counter[str](), set[int](), list[object]()
    todo = deque(roots.items())
    while todo:
        way, thing = todo.popleft()
        if id(thing) in seen or isinstance(thing, _LEAVES):
            continue
        seen.add(id(thing))
        kept.append(thing)  # or another object could get its id
        if isinstance(thing, (Mapping, *_LISTS)):
            found[way] += len(thing)
        todo.extend((way + step, one) for step, one in _steps(thing))
    return found


def _steps(thing: Any) -> Iterator[Step]:
    if isinstance(thing, Mapping):
        for key, value in list(thing.items()):
            yield "[key]", key
            yield "[]", value
    elif isinstance(thing, _LISTS):
        yield from (("[]", one) for one in list(thing))
    elif isinstance(thing, tuple):
        yield from (("<>", one) for one in thing)
    elif isinstance(thing, types.FunctionType):
        cells = zip(thing.__code__.co_freevars, thing.__closure__ or (), strict=True)
        yield from ((f"~{name}", cell.cell_contents) for name, cell in cells if cell != types.CellType())
    elif isinstance(thing, types.MethodType):
        yield "", thing.__self__
    elif isinstance(thing, functools.partial):
        yield from (("~", one) for one in (thing.func, thing.args, thing.keywords))
    elif isinstance(thing, types.CoroutineType):
        yield from _held(thing)
    elif isinstance(thing, asyncio.Task):
        yield "()", thing.get_coro()
    elif str(type(thing).__module__).startswith(_OURS):
        yield from ((f".{name}", getattr(thing, name, None)) for name in attributes(thing))


def _held(work: Any) -> Iterator[Step]:
    if work.cr_frame is not None:
        yield from ((f"@{work.__name__}.{name}", value) for name, value in work.cr_frame.f_locals.items())
    yield "", work.cr_await

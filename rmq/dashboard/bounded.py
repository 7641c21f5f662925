"""Asks several nodes at once, for no longer than a user waits for a page; the answer also names the nodes that did not answer."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TypeVar

from rmq.errors import RmqError, Unreachable

K = TypeVar("K")
T = TypeVar("T")
# A page asks nameservers, then brokers, then perhaps those that answered once more: 2 s in all, whichever node is silent.
PAGE_S = 1.9
BROKERS_S = 1.0
LEAST_S = 0.1  # for the last question of a page that has already waited
ACTIONS_S = 5.0  # an action of the user is waited for: its outcome counts
NAMESERVERS_S = 0.4
MEMBERS_S = 0.25
AT_ONCE = 64  # in flight (to one node, where that is known), so that ten thousand groups are not asked after in one burst


async def ask_all(
    questions: Mapping[K, Awaitable[T]], seconds: float = BROKERS_S, of: Callable[[K], str] = lambda _key: ""
) -> tuple[dict[K, T], dict[K, str]]:
    """Answers by key, and for every other key the reason why there is none. Never raises RmqError; returns within `seconds`.
    `of(key)`: whom it asks, so that who is silent does not take the turns of others where each is asked much."""
    gates: dict[str, asyncio.Semaphore] = {}

    async def bounded(key: K, question: Awaitable[T]) -> T:
        async with gates.setdefault(of(key), asyncio.Semaphore(AT_ONCE)):
            return await question

    tasks = {key: asyncio.ensure_future(bounded(key, question)) for key, question in questions.items()}
    if tasks:
        try:
            await asyncio.wait(tasks.values(), timeout=seconds)
        finally:
            late = [task for task in tasks.values() if task.cancel()]
            await asyncio.gather(*late, return_exceptions=True)
            for question in filter(asyncio.iscoroutine, questions.values()):  # some never had their turn
                question.close()
    found: dict[K, T] = {}
    silent: dict[K, str] = {}
    for key, task in tasks.items():
        error = None if task.cancelled() else task.exception()
        if task.cancelled():
            silent[key] = f"no answer within {seconds:g} s"
        elif isinstance(error, RmqError):
            silent[key] = str(error)
        elif error is not None:
            raise error
        else:
            found[key] = task.result()
    return found, silent


def all_said(silent: Mapping[str, str]) -> None:
    """Before something is changed by what they said. Raises Unreachable if one is silent: nothing was done."""
    if silent:
        raise Unreachable("nothing was changed: " + "; ".join(f"{name}: {why}" for name, why in silent.items()))


def quiet(silent: Iterable[str]) -> str:
    """What to append to a sentence about the brokers that answered."""
    names = ", ".join(sorted(silent))
    return f"; {names} did not answer and may have it: Home says why" if names else ""


async def ask(question: Awaitable[T], seconds: float = BROKERS_S) -> T:
    """One answer. Raises RmqError, TimeoutError."""
    async with asyncio.timeout(seconds):
        return await question

"""Asking several nodes at once, no longer than somebody waits for a page; who did not answer is part of the answer."""

import asyncio
from collections.abc import Awaitable, Iterable, Mapping
from typing import TypeVar

from rmq.errors import RmqError

K = TypeVar("K")
T = TypeVar("T")
# A page asks nameservers, then brokers, then perhaps more of those that answered: 2 s in all, whoever is silent.
PAGE_S = 1.9
BROKERS_S = 1.0
LEAST_S = 0.1  # for the last question of a page that has waited already
ACTIONS_S = 5.0  # what somebody has ordered is waited for: its outcome counts
NAMESERVERS_S = 0.4
MEMBERS_S = 0.25
AT_ONCE = 64  # questions on their way, so that a cluster of ten thousand groups is not asked ten thousand things in one burst


async def ask_all(questions: Mapping[K, Awaitable[T]], seconds: float = BROKERS_S) -> tuple[dict[K, T], dict[K, str]]:
    """Answers by key, and for every other key why there is none. Never raises RmqError; returns within `seconds`."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def bounded(question: Awaitable[T]) -> T:
        async with gate:
            return await question

    tasks = {key: asyncio.ensure_future(bounded(question)) for key, question in questions.items()}
    if tasks:
        try:
            await asyncio.wait(tasks.values(), timeout=seconds)
        finally:
            late = [task for task in tasks.values() if task.cancel()]
            await asyncio.gather(*late, return_exceptions=True)
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


def quiet(silent: Iterable[str]) -> str:
    """Behind a sentence about those that answered."""
    names = ", ".join(sorted(silent))
    return f"; {names} did not answer and may have it: Home says why" if names else ""


async def ask(question: Awaitable[T], seconds: float = BROKERS_S) -> T:
    """One answer. Raises RmqError, TimeoutError."""
    async with asyncio.timeout(seconds):
        return await question

"""Several are asked at once, so that one that stands still holds up nobody: nameservers, by clients and by brokers."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from math import inf
from typing import Any, Final, NamedTuple, TypeVar

from rmq.background import cancel
from rmq.clock import Clock

T = TypeVar("T")
OTHERS_MAY_TAKE_S: Final = 0.2  # once one nameserver answered, the others have this long to add what they know
OTHERS_MAY_KNOW_S: Final = 1.0  # and so long where that one knows nothing of the topic: a send that is to make it has 3 s in all


class Owed(NamedTuple):
    """A question that was not answered when its asker went on, and since when (monotonic s) the answer is missing."""

    question: asyncio.Task[Any]
    since_s: float


class Asking:
    """Questions to addresses. One to each goes on though its asker went on: if its time passes without an answer, the connection
    is one that swallows everything, which is for who asks there to see."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._owed: dict[str, Owed] = {}  # by address

    async def told(
        self, addresses: Iterable[str], ask: Callable[[str], Coroutine[Any, Any, T]], patience_s: Callable[[list[T], bool], float]
    ) -> list[T]:
        """Answers, in the order of the addresses. `patience_s`: as the function `told` has it; it hears, too, whether somebody is
        missing who does not owe another answer for some time already."""
        now = self._clock.monotonic()
        late = {address for address, owed in self._owed.items() if now - owed.since_s >= OTHERS_MAY_TAKE_S}
        asked = {address: asyncio.create_task(ask(address), name=f"ask {address}") for address in addresses}
        prompt = [task for address, task in asked.items() if address not in late]
        try:
            return await told(
                self._clock, list(asked.values()), lambda answers: patience_s(answers, not all(task.done() for task in prompt))
            )
        finally:
            await cancel(*(task for address, task in asked.items() if not (task.done() or self._goes_on(address, task, now))))

    def _goes_on(self, address: str, question: "asyncio.Task[T]", since_s: float) -> bool:
        if address not in self._owed:
            self._owed[address] = Owed(question, since_s)
            question.add_done_callback(lambda _: self._owed.pop(address))
        return self._owed[address].question is question

    async def close(self) -> None:
        """Ends questions that nobody waits for."""
        await cancel(*(owed.question for owed in self._owed.values()))


async def told(clock: Clock, asked: "Sequence[asyncio.Task[T]]", patience_s: Callable[[list[T]], float]) -> list[T]:
    """What was answered, in the order of those who were asked. `patience_s` of the answers there are: how long the others are
    waited for now (inf: until one more answers); it never becomes longer again."""
    until_s = inf
    while True:
        answers = [task.result() for task in asked if task.done()]
        now = clock.monotonic()
        until_s = min(until_s, now + patience_s(answers))
        if len(answers) == len(asked) or now >= until_s:
            return answers
        alarm = [] if until_s == inf else [asyncio.ensure_future(clock.sleep(until_s - now))]
        try:
            await asyncio.wait([*(task for task in asked if not task.done()), *alarm], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in alarm:
                one.cancel()

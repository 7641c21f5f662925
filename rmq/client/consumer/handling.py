"""Runs the program's handler over what the inbox has, and says what becomes of each message: finished, given back, or again.

Most handlers return without waiting for anything: such messages are handled in one loop, without a coroutine or a timer of ours
for each. The first one that waits or fails ends that loop, and goes on as any other coroutine does.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Generator, Mapping
from functools import partial
from types import CoroutineType, coroutine
from typing import Any, NamedTuple

from rmq.client.consumer.asked import Handler
from rmq.client.consumer.inbox import IN_A_ROW, Delivery, Inbox
from rmq.client.consumer.patience import Patience, is_being_cancelled
from rmq.client.consumer.plan import Plan
from rmq.client.consumer.rates import Rates
from rmq.client.consumer.retries import Retries, tell
from rmq.client.consumer.watching import Watch
from rmq.client.consumer.window import Window
from rmq.client.shared.message import ReceivedMessage
from rmq.client.shared.session import Session
from rmq.client.shared.tasks import TaskSet

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 30.0  # before a failed message is handed out again


class _Left(NamedTuple):
    """A message that could not be handled at once. `handler` does what is left to do; `began_s`: monotonic."""

    message: ReceivedMessage
    handler: Handler
    began_s: float


class Handling:
    """Of one consumer. `rates`: by topic."""

    def __init__(
        self, session: Session, plan: Plan, inbox: Inbox, rates: Mapping[str, Rates], watch: Watch, retries: Retries
    ) -> None:
        self._clock = session.clock
        self._plan = plan
        self._inbox = inbox
        self._rates = rates
        self._watch = watch
        self._retries = retries
        self._pauses = TaskSet()  # after failures

    async def close(self) -> None:
        """What waits for its next try is not tried here any more."""
        await self._pauses.close()

    async def work(self, handler: Handler, stop: asyncio.Event) -> None:
        """One worker: handles message after message until the inbox is closed or `stop` is set."""
        patience = Patience(self._plan.handler_s)
        try:
            while (window := await self._inbox.next_window(stop)) is not None:
                left = self._handle_ready(window, handler)
                self._inbox.put_back(window)
                if left is not None:
                    delivery = Delivery(window, left.message)
                    try:
                        await self._handle(left.handler, delivery, patience, left.began_s)
                    except GeneratorExit:  # the loop is gone
                        raise
                    except BaseException:  # cancelled, or SystemExit and its like: the next worker gets it
                        window.hold(left.message)
                        self._give_back(delivery)
                        raise
        finally:
            patience.close()

    def _handle_ready(self, window: Window, handler: Handler) -> _Left | None:
        """Messages of one queue, until it has nothing ready, others must get a turn, or a message is not handled at once."""
        monotonic, inbox, watched, done = self._clock.monotonic, self._inbox, self._watch.watches, 0
        first_s = began_s = monotonic()
        left = None
        while done < IN_A_ROW and not inbox.closed and (message := window.take()) is not None:
            rest = handler if watched else _begin(handler, message)
            if rest is not None:
                left = _Left(message, rest, began_s)
                break
            window.finish(message)
            began_s = monotonic()
            done += 1
        inbox.taken += done + (left is not None)
        rates = self._rates[window.queue.topic]
        rates.handled += done
        rates.handled_ms += (began_s - first_s) * 1000
        window.handled_s = began_s
        return left

    async def _handle(self, handler: Handler, delivery: Delivery, patience: Patience, began_s: float) -> None:
        patience.expired = False
        monotonic, rates = self._clock.monotonic, self._rates[delivery.window.queue.topic]
        try:
            with self._watch.handler(delivery.message):
                result = handler(delivery.message)
                if result is not None and inspect.isawaitable(result):
                    with patience.less(monotonic() - began_s):
                        await result
        except (Exception, asyncio.CancelledError) as error:
            if isinstance(error, asyncio.CancelledError) and is_being_cancelled():
                raise
            rates.failed += 1
            if not await self._retries.take(delivery, error, timed_out=patience.expired):
                self._hand_again(delivery, error)
                return
        else:
            rates.handled += 1
            rates.handled_ms += (monotonic() - began_s) * 1000
        self.finish(delivery)

    def finish(self, delivery: Delivery) -> None:
        delivery.window.finish(delivery.message)
        if self._plan.ordered:  # the next one of that queue may come now
            self._inbox.offer(delivery.window)

    def _hand_again(self, delivery: Delivery, error: BaseException) -> None:
        failures = delivery.window.hold(delivery.message, alone=not (self._plan.ordered or self._plan.broadcast))
        pause_s = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2 ** min(failures - 1, 10))
        delivery.message.count_again()
        tell(delivery.message, failures, f"again in {pause_s:.0f} s", error)
        self._pauses.start(self._resume(delivery, pause_s), "hand again")

    async def _resume(self, delivery: Delivery, pause_s: float) -> None:
        await self._clock.sleep(pause_s)
        self._give_back(delivery)

    def _give_back(self, delivery: Delivery) -> None:
        delivery.window.again(delivery.message)
        self._inbox.offer(delivery.window)


def _begin(handler: Handler, message: ReceivedMessage) -> Handler | None:
    """Runs the handler to its end (None), or to where it first waits or fails: then what does the rest."""
    try:
        result = handler(message)
        if result is None:
            return None
        if type(result) is CoroutineType:
            steps = result.__await__()
        elif inspect.isawaitable(result):
            steps = _awaited(result).__await__()
        else:
            return None
        for wait in steps:  # as `await` does, but here is seen whether it waits at all
            return partial(_go_on, steps, wait)
    except BaseException as error:
        return partial(_fail, [error])
    return None


async def _awaited(result: Awaitable[object]) -> None:
    await result


@coroutine
def _go_on(steps: Generator[Any, None, object], wait: Any, _: ReceivedMessage) -> Generator[Any, None, None]:
    """Awaits what has begun and waits for `wait`."""
    while True:
        try:
            yield wait
        except BaseException as error:  # cancelled while it waits; it may wait on
            try:
                wait = steps.throw(error)
            except StopIteration:
                return
        else:
            yield from steps
            return


def _fail(errors: list[BaseException], _: ReceivedMessage) -> None:
    raise errors.pop()  # kept nowhere: it knows the frames that would keep it

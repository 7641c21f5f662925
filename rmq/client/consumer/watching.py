"""Tells observers what becomes of the messages that a consumer hands out."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Final

from rmq.client.consumer.retries import RetryLater
from rmq.client.shared.message import ReceivedMessage
from rmq.client.shared.observers import Handling, Observer
from rmq.client.shared.traceformat import Outcome

_NOBODY = nullcontext()
MAX_OPEN: Final = 10_000  # messages that the program has; beyond that, the oldest are forgotten


class Watch:
    """Watches one consumer. Without an observer it does nothing."""

    def __init__(self, observer: Observer | None, group: str) -> None:
        self._observer = observer
        self._group = group
        self._open: dict[ReceivedMessage, Handling] = {}

    @property
    def watches(self) -> bool:
        """Whether there is an observer."""
        return self._observer is not None

    def handler(self, message: ReceivedMessage) -> AbstractContextManager[None]:
        """While a handler runs."""
        return _NOBODY if self._observer is None else self._handler(self._observer, message)

    @contextmanager
    def _handler(self, observer: Observer, message: ReceivedMessage) -> Iterator[None]:
        handling = observer.handling(self._group, message, True)
        outcome = Outcome.EXCEPTION
        try:
            yield
            outcome = Outcome.SUCCESS
        except RetryLater:
            outcome = Outcome.FAILED
            raise
        except TimeoutError:
            outcome = Outcome.TIME_OUT
            raise
        finally:
            handling.ended(outcome)

    def handed(self, message: ReceivedMessage) -> None:
        """The program has the message now."""
        if self._observer is not None:
            if len(self._open) >= MAX_OPEN:
                del self._open[next(iter(self._open))]
            self._open[message] = self._observer.handling(self._group, message, False)

    def done(self, message: ReceivedMessage, outcome: Outcome = Outcome.SUCCESS) -> None:
        """The program finished the message."""
        if (handling := self._open.pop(message, None)) is not None:
            handling.ended(outcome)

"""The interface for watching what a client does with messages: the message trace and spans use it. Producers and consumers
report what happens; observers decide what to do with it.
"""

from collections.abc import Sequence
from types import TracebackType
from typing import NamedTuple

from rmq.client.shared.message import Message, ReceivedMessage, SendResult
from rmq.client.shared.traceformat import Outcome


class Sending:
    """One call of a producer, as one observer sees it. `messages`: those to send; the observer may have added properties."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self.messages = messages

    def ended(self, results: Sequence[SendResult], error: BaseException | None) -> None:
        """`results`: those of the stored messages. Neither results nor an error means that nobody waited for the answer."""


class Handling:
    """A consumer works on one message, as one observer sees it."""

    def ended(self, outcome: Outcome) -> None:
        """Not called for a message that is handed out again without an outcome."""


class TransactionEnd(NamedTuple):
    """`message`: its half. `state`: RocketMQ's word. `from_check`: because the broker asked."""

    group: str
    message: Message
    broker_name: str
    state: str
    from_check: bool


class Observer:
    """Does nothing by itself. Methods are called on the event loop: they must be quick, and neither wait nor raise."""

    def sending(self, group: str, messages: Sequence[Message], half: bool) -> Sending:
        """Each message has its id. `half`: of a transaction."""
        return Sending(messages)

    def handling(self, group: str, message: ReceivedMessage, pushed: bool) -> Handling:
        """`pushed`: a handler runs in this task until it has ended; otherwise the program got the message, and says when it is
        done with it."""
        return Handling()

    def transaction_ended(self, end: TransactionEnd) -> None:
        """The broker knows the outcome of a transaction, or the producer does not know it yet."""

    def recalled(self, group: str, topic: str, message_id: str, done: bool) -> None:
        """A delayed message was recalled, or the recall failed."""


class Observers(Observer):
    """Several observers as one."""

    def __init__(self, each: Sequence[Observer]) -> None:
        self._each = each

    def sending(self, group: str, messages: Sequence[Message], half: bool) -> Sending:
        begun: list[Sending] = []
        for observer in self._each:
            begun.append(observer.sending(group, messages, half))
            messages = begun[-1].messages
        return _Sendings(messages, begun)

    def handling(self, group: str, message: ReceivedMessage, pushed: bool) -> Handling:
        return _Handlings([observer.handling(group, message, pushed) for observer in self._each])

    def transaction_ended(self, end: TransactionEnd) -> None:
        for observer in self._each:
            observer.transaction_ended(end)

    def recalled(self, group: str, topic: str, message_id: str, done: bool) -> None:
        for observer in self._each:
            observer.recalled(group, topic, message_id, done)


class _Sendings(Sending):
    def __init__(self, messages: Sequence[Message], begun: Sequence[Sending]) -> None:
        super().__init__(messages)
        self._begun = begun

    def ended(self, results: Sequence[SendResult], error: BaseException | None) -> None:
        for each in reversed(self._begun):
            each.ended(results, error)


class _Handlings(Handling):
    def __init__(self, begun: Sequence[Handling]) -> None:
        self._begun = begun

    def ended(self, outcome: Outcome) -> None:
        for each in reversed(self._begun):
            each.ended(outcome)


class Watched:
    """`with Watched(...) as sent`: sends `sent.messages` and notes `sent.results`."""

    def __init__(self, observer: Observer, group: str, messages: Sequence[Message], half: bool = False) -> None:
        self._sending = observer.sending(group, messages, half)
        self.messages = self._sending.messages
        self.results: list[SendResult] = []

    def __enter__(self) -> "Watched":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._sending.ended(self.results, error)

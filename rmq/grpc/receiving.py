"""Handing out messages and taking their acknowledgements, for gRPC clients [ReceiveMessageActivity, AckMessageActivity,
ReceiptHandleProcessor].

A push consumer says no time in which it will be done (`auto_renew`): the door keeps its messages hidden until they are
acknowledged, as long as its stream is open, and for three hours at most.
"""

import asyncio
import logging
import random
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from struct import Struct, error as StructError
from typing import NamedTuple, TypeVar

from rmq.client import Client
from rmq.client.consumer.lites import popped_lites
from rmq.client.consumer.plan import wanted_of
from rmq.client.consumer.simple import ANSWER_MARGIN_S, ANY, PoppedMessage, popped_in, renewed
from rmq.client.shared.routes import find
from rmq.client.shared.tasks import TaskSet
from rmq.delivery import filters
from rmq.delivery.filters import Exact
from rmq.delivery.popping import MAX_INVISIBLE_MS, MAX_MESSAGES, Handle, order_counts, parse_handle, stored_in
from rmq.errors import BadBytes, InvalidArgument, Refusal, RmqError, Unknown
from rmq.grpc.lites import Lites
from rmq.grpc.statuses import Code, Wrong
from rmq.names import lite_queue
from rmq.net.commands import Answer, Request
from rmq.net.commands.lites import LitePopAnswer, PopLite
from rmq.net.commands.pop import Ack, ChangeInvisibleTime, InvisibleTimeAnswer, Pop, PopAnswer
from rmq.net.commands.retries import SendBack

A = TypeVar("A", PopAnswer, LitePopAnswer)
_log = logging.getLogger("rmq.grpc")
RENEWED_S = 60.0  # a message is hidden so long each time [defaultInvisibleTimeMills]
_AHEAD_S = 15.0  # and hidden again so long before that is over
_AGAIN_S = 1.0  # if that fails, it is tried again so much later
_INSISTS_S, _PAUSE_S = 10.0, 0.2  # after a pop in order that had no answer: until one has, and between two
_ELECTION_S = 4.0  # so long a group may have no leader before its receivers are told
_USE_S = 2.5  # so long the door tries to use a receipt for itself
_ANOTHER_S = 10.0  # when nobody asked for so long, it is another election
_LEAST_S = 0.1  # even where a client's patience is over
_LONGEST_S = 3 * 3600.0  # [renewMaxTimeMillis]
_LEAST_MS, _MOST_MS = 10_000, MAX_INVISIBLE_MS  # what a client may ask for
MAX_KEPT = 100_000  # messages hidden again and again
_EVERY_NUMBER = Struct(">7q")  # of a receipt: what the brokers can be told
_AT_LAST = 1  # where a new group begins [ConsumeInitMode.MAX]
_DEAD = -1  # [delayLevel of CONSUMER_SEND_MSG_BACK]


class Asked(NamedTuple):
    """`broker_name` "": any. `hidden_ms` None: until it is acknowledged. `lite`: of the lite topics that the client wants.
    `attempts`: how often a message may be handed out."""

    client_id: str
    group: str
    topic: str
    broker_name: str
    most: int
    hidden_ms: int | None
    wait_s: float
    expression: str
    sql: bool
    ordered: bool
    attempt_id: str
    lite: bool
    attempts: int


class Receipt(NamedTuple):
    """What a client gives back: where in the broker's log its message is, and the receipt of the pop."""

    physical_offset: int
    held: Handle

    def text(self) -> str:
        return f"{self.physical_offset} {self.held.text()}"


class Given(NamedTuple):
    """`attempt`: how often it was handed out, with this time."""

    message: PoppedMessage
    receipt: Receipt
    attempt: int


Key = tuple[str, str]  # group, and a receipt as a client knows it


class Kept:
    """A message that is hidden again and again. `held`: the receipt that holds now; who uses or changes it has the `lock`.
    `renewing`: what hides it; it sleeps most of a minute, so it ends with what it is for."""

    __slots__ = ("held", "lock", "renewing")

    def __init__(self, held: Handle) -> None:
        self.held = held
        self.lock = asyncio.Lock()
        self.renewing: asyncio.Task[None] | None = None


class Receiving:
    """`is_open(client_id)`: whether a client's stream is open."""

    def __init__(self, client: Client, lites: Lites, is_open: Callable[[str], bool]) -> None:
        self._session = client.session
        self._lites = lites
        self._is_open = is_open
        self._tasks = TaskSet()
        self._kept: dict[Key, Kept] = {}
        self._leaderless: dict[str, tuple[float, float]] = {}  # broker name -> since when nobody leads there, and when we saw it

    @property
    def kept(self) -> int:
        """Messages that are hidden again and again."""
        return len(self._kept)

    async def close(self) -> None:
        await self._tasks.close()

    # --- handing out

    async def receive(self, asked: Asked) -> list[Given]:
        """Messages, none if none came in time. If who asked goes away meanwhile, they are given back. Raises Wrong, RmqError."""
        if asked.most < 1:
            raise Wrong(Code.BAD_REQUEST, f"batch size {asked.most}: ask for 1 message or more")
        if asked.hidden_ms is not None and not _LEAST_MS <= asked.hidden_ms <= _MOST_MS:
            raise Wrong(Code.ILLEGAL_INVISIBLE_TIME, f"invisible for {asked.hidden_ms} ms: give {_LEAST_MS} to {_MOST_MS}")
        exact = self._exact(asked)
        broker_name = asked.broker_name or await self._any_broker(asked.topic)
        await find(self._session.routes, broker_name, asked.topic)
        popping = self._tasks.start(self._pop(asked, broker_name, exact), f"pop for {asked.client_id}")
        try:
            found = await asyncio.shield(popping)
        except asyncio.CancelledError:
            self._tasks.start(self._give_back_popped(asked, popping), f"give back of {asked.client_id}")
            raise
        if isinstance(found, RmqError):
            raise found
        if asked.hidden_ms is None:
            for given in found:
                self._keep(asked, given)
        return found

    def _exact(self, asked: Asked) -> Exact:
        wanted = wanted_of([asked.topic], asked.expression) if asked.sql else wanted_of({asked.topic: asked.expression}, None)
        return wanted[asked.topic][1]

    async def _any_broker(self, topic: str) -> str:
        names = await self._session.routes.readable(topic)
        if not names:
            raise Wrong(Code.FORBIDDEN, f"topic {topic} may not be read")
        return random.choice(names)

    async def _pop(self, asked: Asked, broker_name: str, exact: Exact) -> "list[Given] | RmqError":
        try:
            return await self._popped(asked, broker_name, exact)
        except RmqError as error:
            return error

    async def _popped(self, asked: Asked, broker_name: str, exact: Exact) -> list[Given]:
        """Those that were tried too often become dead letters meanwhile [PopMessageResultFilterImpl]. Raises RmqError."""
        found = await self._matching(asked, broker_name, exact)
        for given in found:
            if given.attempt > asked.attempts:
                self._tasks.start(self._give_up(asked, given), f"dead letter of {asked.group}")
        return [given for given in found if given.attempt <= asked.attempts]

    async def _give_up(self, asked: Asked, given: Given) -> None:
        message = given.message
        try:
            await self._bury(asked.group, asked.topic, given.receipt, message.message_id, message.lies_in)
        except RmqError as error:
            _log.info("%s is to be a dead letter of %s, and comes again first: %s", message, asked.group, error)

    async def _matching(self, asked: Asked, broker_name: str, exact: Exact) -> list[Given]:
        hidden_ms, wait_ms = asked.hidden_ms or int(RENEWED_S * 1000), int(asked.wait_s * 1000)
        timeout_s = self._session.settings.request_timeout_s + asked.wait_s + ANSWER_MARGIN_S
        now_ms, attempt_id = self._session.clock.wall_ms(), asked.attempt_id or secrets.token_hex(8)
        client_id, group, topic, most = asked.client_id, asked.group, asked.topic, min(asked.most, MAX_MESSAGES)
        try:
            if asked.lite:
                lite = PopLite(client_id, group, topic, most, hidden_ms, wait_ms, now_ms, attempt_id, declared=True)

                async def look(poll_ms: int, timeout_s: float) -> LitePopAnswer:
                    return await self._lites.pop(broker_name, lite._replace(poll_time=poll_ms), timeout_s)

                insisting = partial(self._insisting, look)
                return _given_lites(await self._patiently(broker_name, insisting, wait_ms, timeout_s), topic, broker_name)
            kind = filters.SQL92 if asked.sql else filters.TAG
            request = Pop(
                group, topic, ANY, most, hidden_ms, wait_ms, now_ms, _AT_LAST, kind, asked.expression, asked.ordered, attempt_id
            )
            ask = partial(self._ask_pop, broker_name, request)
            ask = partial(self._insisting, ask) if asked.ordered else ask
            answer = await self._patiently(broker_name, ask, wait_ms, timeout_s)
            tries = order_counts(answer.order_count_info)
        except InvalidArgument:
            raise
        except ValueError as error:
            raise BadBytes(f"the answer of {broker_name} to a pop does not tell how often they were tried: {error}") from error
        found: list[Given] = []
        for message in popped_in(answer, group, topic, broker_name):
            if filters.matches(exact, message.properties):
                held = message.receipt
                before = tries.get((held.retry, held.queue_id, held.queue_offset), message.reconsume_times)
                found.append(_given(message, before))
            else:  # the broker compares hashes of tags only (C14)
                try:
                    await self._ack(group, message.lies_in, message.receipt)
                except RmqError as error:  # it is left out again then; the others are wanted now
                    _log.info("%s, which the filter leaves out, comes again: %s", message, error)
        return found

    async def _ask_pop(self, broker_name: str, request: Pop, poll_ms: int, timeout_s: float) -> PopAnswer:
        answer = await self._session.leaders.request(broker_name, request._replace(poll_time=poll_ms), timeout_s)
        assert isinstance(answer, PopAnswer)
        return answer

    async def _patiently(self, broker_name: str, ask: Callable[[int, float], Awaitable[A]], wait_ms: int, timeout_s: float) -> A:
        """`ask(how long it may be held, timeout_s)`, and again while the broker's group elects its leader, also where the last
        one died with the question: what was in its answer comes again. A group that has none for longer is waited for no more:
        other brokers may have something. Raises RmqError."""
        clock = self._session.clock
        until_s = clock.monotonic() + wait_ms / 1000
        while True:
            try:
                answer = await ask(wait_ms, timeout_s)
            except RmqError as error:
                if not (error.may_pass and self._session.routes.knows(broker_name)):
                    raise
                now = clock.monotonic()
                since_s, seen_s = self._leaderless.get(broker_name, (now, now))
                since_s = since_s if now - seen_s < _ANOTHER_S else now  # somebody may have led meanwhile
                self._leaderless[broker_name] = since_s, now
                if now >= min(until_s, since_s + _ELECTION_S):
                    raise
            else:
                self._leaderless.pop(broker_name, None)
                return answer
            await clock.sleep(_PAUSE_S)
            wait_ms = max(0, int((until_s - clock.monotonic()) * 1000))

    async def _insisting(self, ask: Callable[[int, float], Awaitable[A]], wait_ms: int, timeout_s: float) -> A:
        """Of a pop in order, `ask(how long it may be held, timeout_s)`. One without an answer, as of a leader that dies, may have
        closed queues for what was in it: the same attempt gets that again at once, anybody else when its time is over. Raises
        RmqError."""
        clock = self._session.clock
        try:
            return await ask(wait_ms, timeout_s)
        except Unknown:
            until_s = clock.monotonic() + _INSISTS_S
        while True:
            try:
                return await ask(0, self._session.settings.request_timeout_s)
            except RmqError as error:
                if not error.may_pass or clock.monotonic() > until_s:
                    raise
            await clock.sleep(_PAUSE_S)

    async def _give_back_popped(self, asked: Asked, popping: "asyncio.Task[list[Given] | RmqError]") -> None:
        found = await popping
        if isinstance(found, list):
            await self._give_back(asked, found)

    def give_back(self, asked: Asked, found: Sequence[Given]) -> None:
        """Who asked for them went away and may not have them: they come again at once."""
        self._tasks.start(self._give_back(asked, found), f"give back of {asked.client_id}")

    def let_go(self, group: str, receipt: Receipt) -> None:
        """It is renewed no more, and comes again when its time is over."""
        self._forget((group, receipt.text()))

    def _forget(self, key: Key) -> None:
        if (kept := self._kept.pop(key, None)) is not None and kept.renewing is not None:
            kept.renewing.cancel()

    async def _give_back(self, asked: Asked, found: Sequence[Given]) -> None:
        for given in found:
            self.let_go(asked.group, given.receipt)
            try:
                await self._change(asked.group, given.message.lies_in, given.receipt.held, 1)
            except RmqError as error:
                _log.info("%s comes again when its time is over: %s", given.message, error)

    # --- renewing

    def _keep(self, asked: Asked, given: Given) -> None:
        if len(self._kept) < MAX_KEPT:
            key = asked.group, given.receipt.text()
            kept = self._kept[key] = Kept(given.receipt.held)
            renewing = self._renew(asked, given.message.lies_in, key, kept)
            kept.renewing = self._tasks.start(renewing, f"renew for {asked.client_id}")

    async def _renew(self, asked: Asked, lies_in: str, key: Key, kept: Kept) -> None:
        clock = self._session.clock
        end, over = clock.monotonic() + _LONGEST_S, clock.monotonic() + RENEWED_S
        pause_s = RENEWED_S - _AHEAD_S
        trouble: RmqError | None = None
        try:
            while clock.monotonic() < min(end, over):
                await clock.sleep(pause_s)
                async with kept.lock:
                    if not self._is_open(asked.client_id):
                        break
                    try:
                        kept.held = await self._change(asked.group, lies_in, kept.held, int(RENEWED_S * 1000))
                        over, pause_s, trouble = clock.monotonic() + RENEWED_S, RENEWED_S - _AHEAD_S, None
                    except RmqError as error:
                        pause_s, trouble = _AGAIN_S, error
                        if not error.may_pass:
                            break
            if trouble is not None:
                _log.info("a message of %s is no longer kept for %s: %s", asked.topic, asked.client_id, trouble)
            await clock.sleep(over - clock.monotonic())  # it may still be acknowledged in time, by the receipt that holds now
        finally:
            if self._kept.get(key) is kept:
                del self._kept[key]

    @asynccontextmanager
    async def _holding(self, group: str, topic: str, text: str) -> AsyncIterator[Receipt]:
        """What a client's receipt stands for. When that was used it is renewed no more; if it could not be, the client may try it
        again. Raises Wrong, RmqError."""
        receipt = parse_receipt(text)
        await find(self._session.routes, receipt.held.broker_name, topic)
        kept = self._kept.get((group, text))
        if kept is None:
            yield receipt
            return
        async with kept.lock:
            yield receipt._replace(held=kept.held)
            self._forget((group, text))

    # --- what becomes of them

    async def ack(self, group: str, topic: str, receipt: str, lite: str, until_s: float) -> None:
        """`lite`: the lite topic, if it came from one. `until_s`: its client waits so long (monotonic s). Raises Wrong,
        RmqError."""
        async with self._holding(group, topic, receipt) as (_, held):
            await self._ack(group, _lies_in(held, group, topic, lite), held, until_s)

    async def change(
        self, group: str, topic: str, receipt: str, hidden_ms: int, lite: str, until_s: float, suspend: bool = False
    ) -> str:
        """It comes again then. Returns the new receipt. `lite` and the rest as of `ack`. Raises Wrong, RmqError."""
        if not 0 <= hidden_ms <= _MOST_MS:
            raise Wrong(Code.ILLEGAL_INVISIBLE_TIME, f"invisible for {hidden_ms} ms: give 0 to {_MOST_MS}")
        async with self._holding(group, topic, receipt) as found:
            lies_in = _lies_in(found.held, group, topic, lite)
            held = await self._change(group, lies_in, found.held, max(1, hidden_ms), suspend, until_s)
            return found._replace(held=held).text()

    async def bury(self, group: str, topic: str, receipt: str, message_id: str, lite: str, until_s: float) -> None:
        """It goes to the group's dead letters, and comes no more. `lite` and the rest as of `ack`. Raises Wrong, RmqError."""
        async with self._holding(group, topic, receipt) as found:
            await self._bury(group, topic, found, message_id, _lies_in(found.held, group, topic, lite), until_s)

    async def _bury(
        self, group: str, topic: str, receipt: Receipt, message_id: str, lies_in: str, until_s: float | None = None
    ) -> None:
        physical_offset, held = receipt
        await self._ask(held, SendBack(physical_offset, group, _DEAD, message_id, topic), until_s)
        try:
            await self._ack(group, lies_in, held, until_s)
        except RmqError as error:  # the client would repeat both, and there would be two dead letters
            where = f"the message at {physical_offset} of {held.broker_name}"
            _log.warning("%s is a dead letter of %s, and comes again when its time is over: %s", where, group, error)

    async def _ack(self, group: str, lies_in: str, held: Handle, until_s: float | None = None) -> None:
        await self._ask(held, Ack(group, lies_in, held.queue_id, held.text(), held.queue_offset), until_s, harmless=True)

    async def _change(
        self, group: str, lies_in: str, held: Handle, hidden_ms: int, suspend: bool = False, until_s: float | None = None
    ) -> Handle:
        request = ChangeInvisibleTime(group, lies_in, held.queue_id, held.text(), held.queue_offset, hidden_ms, suspend)
        answer = await self._ask(held, request, until_s)
        assert isinstance(answer, InvisibleTimeAnswer)
        return renewed(held, held.queue_offset, answer)

    async def _ask(self, held: Handle, request: Request, until_s: float | None, *, harmless: bool = False) -> Answer:
        """The broker that gave this receipt, through a change of leaders. `until_s` None: nobody waits for it. `harmless`: asking
        twice is."""
        left_s = _USE_S if until_s is None else max(until_s - self._session.clock.monotonic(), _LEAST_S)
        return await self._session.leaders.persist(held.broker_name, request, left_s, harmless=harmless)


def parse_receipt(text: str) -> Receipt:
    """Raises Wrong."""
    physical, _, held = text.partition(" ")
    try:
        receipt = Receipt(int(physical), parse_handle(held))
        _EVERY_NUMBER.pack(receipt.physical_offset, *(number for number in receipt.held if isinstance(number, int)))
    except (ValueError, StructError, Refusal):
        raise Wrong(Code.INVALID_RECEIPT_HANDLE, f"{text[:80]!r} is no receipt handle of this cluster") from None
    return receipt


def _given(message: PoppedMessage, before: int) -> Given:
    """`before`: how often it was handed out already."""
    return Given(message, Receipt(message.stored.physical_offset, message.receipt), before + 1)


def _given_lites(answer: LitePopAnswer, topic: str, broker_name: str) -> list[Given]:
    """The answer tells for each message in turn how often it was handed out, or not. Raises ValueError, BadBytes."""
    times = [int(entry.rpartition(" ")[2]) for entry in answer.order_count_info.split(";") if entry]
    messages = popped_lites(answer, topic, broker_name)
    times += [0] * (len(messages) - len(times))
    return [_given(message, before) for message, before in zip(messages, times, strict=False)]


def _lies_in(held: Handle, group: str, topic: str, lite: str) -> str:
    """The topic, retry topic or light queue of a message. Raises Wrong."""
    try:
        return lite_queue(topic, lite) if lite else stored_in(held.retry, group, topic)
    except Refusal as refusal:
        raise Wrong(Code.ILLEGAL_LITE_TOPIC, refusal.remark) from None

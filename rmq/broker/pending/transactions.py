"""A leader's own work on transactions: it asks producers that stay silent, and keeps Apache RocketMQ's tools informed.

A half that is asked after is appended again first, with the count of its checks; the question goes out when that is
committed, and names the new place [TransactionalMessageServiceImpl.check]. So a failover in between forgets no check, and
whatever the producer answers finds its half by any of its places.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

from rmq.broker.feature import Job
from rmq.broker.pending import halves
from rmq.broker.pending.internalproducer import InternalProducer
from rmq.broker.shared.state import undoing
from rmq.clock import Clock
from rmq.codes import ResponseCode
from rmq.delivery.transactions import PARKED, PARKED_TOPIC, HalfTable
from rmq.errors import BadBytes, InvalidArgument, Refusal, RmqError, StoreError
from rmq.log.records import record
from rmq.log.records.record import Record
from rmq.model import HALF_TOPIC, OP_TOPIC
from rmq.net.commands.transactions import CheckTransactionState
from rmq.routing.lives import Life

log = logging.getLogger("rmq.transactions")

OP_S = 3.0  # [transactionOpBatchInterval]
OFFSETS_IN_OP = 400  # in one op record; about 4096 bytes [transactionOpMsgMaxSize]
AT_ONCE = 20  # halves that are read, and appended, together: some milliseconds of the loop's time


class Producers(Protocol):
    """Connected producers, by their group."""

    def is_behind(self, group: str) -> bool:
        """The group has producers, and none has read its earlier questions."""

    def ask_producer(self, group: str, question: CheckTransactionState) -> None:
        """Asks one of the group's producers; nobody, if none is connected."""


class CheckSettings(NamedTuple):
    """`immunity_ms`: how long a half is left alone; `every_s`: then it is asked after so often; `most`: times, then it is put
    aside. `broker_name`: as the question names this broker."""

    immunity_ms: int
    every_s: float
    most: int
    broker_name: str


class CheckService:
    """Asks producers for the outcome of halves. `make_parked_topic()` makes the topic of halves that are put aside."""

    def __init__(
        self,
        table: HalfTable,
        internal_producer: InternalProducer,
        settings: CheckSettings,
        producers: Producers,
        make_parked_topic: Callable[[], Awaitable[None]],
        clock: Clock,
    ) -> None:
        self._table = table
        self._internal_producer = internal_producer
        self.settings = settings
        self._producers = producers
        self._make_parked_topic = make_parked_topic
        self._clock = clock
        self._unreadable: set[int] = set()  # told once
        self._asked_in_place: Counter[int] = Counter()  # how often, of halves that cannot be appended with a count
        self.asked = self.asked_again = 0  # questions: the first one for each half, and all later ones

    @property
    def jobs(self) -> tuple[Job, ...]:
        return (
            Job(lambda: self.settings.every_s, "transaction checks", self.check),
            Job(OP_S, "transaction op records", self.write_ops, at_stop=True),
        )

    async def check(self) -> None:
        """One round. Raises Refusal when nothing can be stored now: the next round goes on."""
        for ended in [first for first in self._asked_in_place if first not in self._table.open.rows]:
            del self._asked_in_place[ended]
        for part in _parts(self._table.to_ask(self._clock.wall_ms(), self.settings.immunity_ms)):
            await self._each(part, self._check)

    async def carry_forward(self, below: int) -> None:
        for part in _parts(self._table.below(below)):
            await self._each(part, self._carry)

    async def write_ops(self) -> None:
        """Apache RocketMQ, when it opens this store, must not ask after what has ended (story 37). Raises Refusal."""
        queue_offsets = sorted(self._table.owed.rows)
        for at in range(0, len(queue_offsets), OFFSETS_IN_OP):
            draft = halves.op_draft(queue_offsets[at : at + OFFSETS_IN_OP], self._clock.wall_ms(), self._internal_producer.host)
            await self._internal_producer.send(OP_TOPIC, 0, draft, state=True)

    # --- one half -----------------------------------------------------------------------------------------------------

    async def _each(self, firsts: Sequence[int], work: Callable[[int, Record], Awaitable[None]]) -> None:
        """Appends them in one burst. An error with one half does not stop the others (C12)."""
        found = await self._read(firsts)
        done = await asyncio.gather(*(work(first, stored) for first, stored in found), return_exceptions=True)
        for (first, _), outcome in zip(found, done, strict=True):
            if isinstance(outcome, BadBytes):
                await self._give_up(first, outcome)
            elif isinstance(outcome, Refusal) and outcome.code != ResponseCode.MESSAGE_ILLEGAL:
                raise outcome
            elif isinstance(outcome, RmqError):
                self._tell(first, outcome)
            elif outcome is not None:
                raise outcome

    async def _read(self, firsts: Iterable[int]) -> list[tuple[int, Record]]:
        rows = self._table.open.rows
        places = [(first, rows[first].offset) for first in firsts if first in rows]
        try:
            return list(
                zip([first for first, _ in places], await self._internal_producer.read([at for _, at in places]), strict=True)
            )
        except StoreError:
            return [pair for first, at in places for pair in await self._read_alone(first, at)]

    async def _read_alone(self, first: int, offset: int) -> list[tuple[int, Record]]:
        try:
            return [(first, (await self._internal_producer.read([offset]))[0])]
        except StoreError as error:
            self._tell(first, error)
            return []

    def _tell(self, first: int, error: RmqError) -> None:
        if first not in self._unreadable:
            self._unreadable.add(first)
            log.error("the half message at %d can be neither asked after nor carried: %s", first, error)

    async def _check(self, first: int, stored: Record) -> None:
        half = self._table.at_rest(first)
        if half is None or not await self._is_wanted(first, stored):  # it came to its end while it was read
            return
        if self._producers.is_behind(half.group):  # the next round
            return
        checks = half.checks + self._asked_in_place[first]
        if checks >= self.settings.most:
            await self._park(first, stored)
            return
        try:
            draft = halves.again(stored, first, checks + 1)
        except InvalidArgument:  # RocketMQ left no room for our proof: asked after where it is, as long as its file may stay
            again = stored
            self._asked_in_place[first] += 1
        else:
            again = await self._append(first, draft)
        self.asked += not checks
        self.asked_again += bool(checks)
        if self._table.at_rest(first) is not None:
            self._producers.ask_producer(half.group, self._question(again))

    async def _carry(self, first: int, stored: Record) -> None:
        half = self._table.at_rest(first)
        if half is not None and await self._is_wanted(first, stored):
            try:
                draft = halves.again(stored, first, half.checks)
            except InvalidArgument:  # as in `_check`
                await self._park(first, stored)
            else:
                await self._append(first, draft)

    async def _is_wanted(self, first: int, stored: Record) -> bool:
        """False: its topic was deleted after it, so it ends here; or that is on its way, and the next round sees it. Raises
        BadBytes, Refusal."""
        topic, _ = halves.real_place(stored)
        life = self._internal_producer.life(topic, first)
        if life is Life.OVER:
            await self._roll_back(first, f"topic {topic} was deleted")
        return life in (Life.GOES_ON, Life.NEVER)

    async def _append(self, first: int, draft: bytes) -> Record:
        """As it lies in the log then."""
        self._table.move(first)
        with undoing(lambda: self._table.not_moved(first)):
            unit = await self._internal_producer.send(HALF_TOPIC, 0, draft, state=True)
        return record.decode(unit.records)

    async def _park(self, first: int, stored: Record) -> None:
        halves.real_place(stored)
        await self._make_parked_topic()
        half = self._table.at_rest(first)
        if half is None:
            return
        log.warning("the transaction at %d was asked after %d times: put aside in %s", first, half.checks, PARKED_TOPIC)
        self._table.end(first, PARKED)
        with undoing(lambda: self._table.not_ended(first)):
            for topic, draft in halves.parked_half(stored, first, half, self._clock.wall_ms(), self._internal_producer.host):
                await self._internal_producer.send(topic, 0, draft, state=True)

    async def _give_up(self, first: int, error: BadBytes) -> None:
        """Another record stands where the half stood: a repair found it lost (`store repair` said so)."""
        log.error("the half message at %d is lost", first)
        await self._roll_back(first, str(error))

    async def _roll_back(self, first: int, why: str) -> None:
        half = self._table.at_rest(first)
        if half is not None:
            log.warning("the transaction at %d counts as rolled back: %s", first, why)
            draft = halves.op_draft([half.queue_offset], self._clock.wall_ms(), self._internal_producer.host, first)
            await self._internal_producer.send(OP_TOPIC, 0, draft, state=True)

    def _question(self, again: Record) -> CheckTransactionState:
        unique_id = record.kept_properties(again.properties).get("UNIQ_KEY", "")
        topic, _ = halves.real_place(again)  # RocketMQ names the half topic, to which its producers need no right
        return CheckTransactionState(
            topic, again.queue_offset, again.physical_offset, unique_id, unique_id,
            record.message_id(again.store_host, again.physical_offset), self.settings.broker_name, halves.asked_as(again),
        )  # fmt: skip


def _parts(firsts: Sequence[int]) -> Iterator[Sequence[int]]:
    return (firsts[at : at + AT_ONCE] for at in range(0, len(firsts), AT_ONCE))

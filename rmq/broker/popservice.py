"""POP, joined: who hands messages out, takes acknowledgements and brings back what was not acknowledged."""

import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple

from rmq.broker.apply import Tables
from rmq.broker.coldreads import ColdReads
from rmq.broker.handlers.ack import AckHandler
from rmq.broker.handlers.assign import AssignHandler
from rmq.broker.handlers.pop import Groups, PopHandler
from rmq.broker.handlers.topics import TopicHandlers
from rmq.broker.held.ordered import OrderedTaker
from rmq.broker.held.outlet import Outlet
from rmq.broker.held.popwaits import PopWaits
from rmq.broker.held.receipts import Names, ReceiptWriter
from rmq.broker.held.revive import ReviveService
from rmq.broker.held.services import Job
from rmq.broker.held.taking import QueueReader, Taker
from rmq.broker.longpoll import LongPolls
from rmq.broker.state import Line
from rmq.broker.stats import BrokerStats
from rmq.clock import Clock
from rmq.delivery.members import ConsumerRegistry
from rmq.log.commitlog import CommitLog, Unit
from rmq.log.queues import ConsumeQueues
from rmq.model import MessageQueue
from rmq.net.popcommands import Pop, PopAnswer
from rmq.net.server import Call, Handler

SWEEP_S = 1.0


class Stored(NamedTuple):
    """Where messages are read. `young(offset)`: whether a record there counts as in memory."""

    log: CommitLog
    queues: ConsumeQueues
    cold: ColdReads
    young: Callable[[int], bool]


class Steps(NamedTuple):
    """What POP does with the rest of the broker: write state lines and receipts, make topics and groups, ask where a topic's
    queues are."""

    commit: Callable[[list[Line]], Awaitable[None]]
    propose: Callable[[Unit], None]
    topics: TopicHandlers
    routes: Callable[[str], Awaitable[list[MessageQueue] | None]]


class PopService:
    """See `services.Service`."""

    def __init__(
        self,
        tables: Tables,
        stored: Stored,
        steps: Steps,
        us: Names,
        outlet: Outlet,
        people: tuple[ConsumerRegistry, LongPolls, BrokerStats],
        clock: Clock,
    ) -> None:
        """`people`: who is connected, who waits, and what they got."""
        registry, polls, self._stats = people
        log, queues, cold, young = stored
        writer = ReceiptWriter(steps.propose, queues, us, clock, random.Random())
        self._clock = clock
        self._waits = waits = PopWaits(polls)
        reader = QueueReader(log, queues, cold, tables.offsets, steps.commit, young)
        taker = Taker(reader, tables.receipts, writer, waits.freed)
        ordered = OrderedTaker(reader, tables.orders, tables.offsets, steps.commit, waits.freed)
        groups = Groups(steps.topics.check_group, steps.topics.ensure_group)
        receipts = (writer.broker_name, writer.next_queue)
        pops = PopHandler(tables.topics, groups, (taker, ordered), waits, receipts, clock, random.Random())
        acks = AckHandler(tables.receipts, tables.topics, queues, writer, ordered, clock)
        assign = AssignHandler(
            writer.broker_name, tables.topics, tables.modes, registry, steps.routes, steps.commit, groups.check
        )
        self._revive = ReviveService(
            tables.receipts, tables.topics, queues, outlet, writer,
            (steps.topics.create, reader.leave, tables.due.first_ms), clock,
        )
        self._pop = pops.pop
        self._handlers: dict[type[Any], Handler] = {**pops.by_request(), **acks.by_request(), **assign.by_request()}
        self._handlers[Pop] = self._counted

    @property
    def jobs(self) -> Sequence[Job]:
        return (*self._revive.jobs, Job(SWEEP_S, "pops that wait", self._sweep))

    def by_request(self) -> Mapping[type[Any], Handler]:
        return self._handlers

    async def carry(self, below: int) -> None:
        await self._revive.carry(below)

    async def _counted(self, request: Pop, call: Call) -> PopAnswer:
        answer = await self._pop(request, call)
        if answer.status:
            self._stats.missed.total += 1
        else:
            self._stats.found.total += 1
            self._stats.transferred.total += answer.msg_offset_info.count(";") + answer.msg_offset_info.count(",") + 1
        return answer

    async def _sweep(self) -> None:
        self._waits.sweep(self._clock.monotonic())

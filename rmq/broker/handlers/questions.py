"""Questions of tools to connected members of a group; the member answers them [AdminBrokerProcessor.callConsumer]."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from rmq.broker.shared.catalog import Catalog
from rmq.broker.shared.ports import CheckTopic
from rmq.codes import ResponseCode
from rmq.delivery.groups import ConsumerRegistry
from rmq.delivery.popping import pop_retry_topics
from rmq.errors import BadBytes, Refusal, RmqError, Unknown
from rmq.log.records import record
from rmq.log.records.innerbatch import is_inner_batch, singles
from rmq.model import EPOCH_TOPIC, RETRY_PREFIX, STATE_TOPIC
from rmq.net.commands.questions import (
    ClientReport,
    ConsumeDirectly,
    GetHeldOffsets,
    GetMemberOffsets,
    GetRunningInfo,
    MemberOffsets,
)
from rmq.net.commands.resets import QueueOffset
from rmq.net.remoting.reports import read_handled, read_held_offsets
from rmq.net.transport.server import Call, Connection, Handler
from rmq.requests import Action

log = logging.getLogger("rmq.broker")
REPORT_S: Final = 10.0  # how long a client may take [Broker2Client.callClient]
OFFSETS_S: Final = 5.0  # [Broker2Client.getConsumeStatus]
MAX_ASKED: Final = 1_000  # members asked at once
MAX_READ_BYTES: Final = 512 * 1024  # of a member's report that we read: each of its queues has 100 to 200 there
T = TypeVar("T")


class QuestionHandlers:
    """`members(group, client id)`: open connections of that client, the best one last. `record_at`: as of `Reader`.
    `check_topic`: as of `Guard`."""

    def __init__(
        self,
        broker_name: str,
        registry: ConsumerRegistry,
        catalog: Catalog,
        members: Callable[[str, str], list[Connection]],
        record_at: Callable[[int], bytes | None],
        check_topic: CheckTopic,
    ) -> None:
        self._broker_name = broker_name
        self._registry = registry
        self._catalog = catalog
        self._members = members
        self._record_at = record_at
        self._check_topic = check_topic
        self._reading = asyncio.Lock()

    def by_request(self) -> Mapping[type[Any], Handler]:
        return {GetRunningInfo: self.running, ConsumeDirectly: self.consume, GetMemberOffsets: self.offsets}

    async def running(self, request: GetRunningInfo, _call: Call) -> ClientReport:
        return await self._report(request.consumer_group, request.client_id, request)

    async def consume(self, request: ConsumeDirectly, call: Call) -> ClientReport:
        """The member gets a message of that topic, or one that came back to its group. It gets those of an inner batch one after
        the other, as its other members do (RocketMQ hands over the record, whose body is no message), up to the first that fails.
        """
        offset = record.offset_in(request.msg_id)
        found = await asyncio.to_thread(self._record_at, offset)
        if found is None or any(record.has_topic(found, 0, topic) for topic in (STATE_TOPIC, EPOCH_TOPIC)):
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {offset}")
        group, topic = request.consumer_group, request.topic
        allowed = [topic, RETRY_PREFIX + group, *pop_retry_topics(group, topic)]
        if topic and not any(record.has_topic(found, 0, each) for each in allowed):
            raise Refusal(ResponseCode.INVALID_PARAMETER, f"{request.msg_id} is no message of topic {topic}")
        stored = record.decode(found)
        self._check_topic(call, stored.topic, Action.SUB, group)
        topic_config, group_config = self._catalog.topic(topic), self._catalog.group(group)
        question = request._replace(
            broker_name=self._broker_name,
            topic_sys_flag=topic_config.sys_flag if topic_config else 0,
            group_sys_flag=group_config.group_sys_flag if group_config else 0,
            message=found,
        )
        if not is_inner_batch(stored):
            return await self._report(group, request.client_id, question)
        for one in singles(stored):
            report = await self._report(group, request.client_id, question._replace(message=record.encode(one)))
            if not await self._is_good(report) or call.connection.closed:
                break
        return report

    async def _report(self, group: str, client_id: str, question: GetRunningInfo | ConsumeDirectly) -> ClientReport:
        connections = self._members(group, client_id)
        if not connections:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"The Consumer <{group}> <{client_id}> not online")
        try:
            answer = await connections[-1].request(question, REPORT_S)
        except Unknown as error:
            raise Refusal(ResponseCode.CONSUME_MSG_TIMEOUT, f"consumer <{group}> <{client_id}> Timeout: {error}") from error
        except Refusal:
            raise
        except RmqError as error:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"invoke consumer <{group}> <{client_id}> Exception: {error}") from error
        assert isinstance(answer, ClientReport)
        return answer

    async def offsets(self, request: GetMemberOffsets, _call: Call) -> MemberOffsets:
        """[Broker2Client.getConsumeStatus]"""
        group = request.group
        wanted = [each for each in self._registry.members(group) if request.client_addr in ("", each)]
        if not wanted:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"no consumer of group {group} is connected: nobody holds queues")
        if len(wanted) > MAX_ASKED:
            about = f"{group} has {len(wanted)} members, at most {MAX_ASKED} are asked at once: name one of them"
            raise Refusal(ResponseCode.SYSTEM_ERROR, about)
        answers = await asyncio.gather(*(self._held(request, client_id) for client_id in wanted))
        return MemberOffsets({client_id: held for client_id, held in zip(wanted, answers, strict=True) if held is not None})

    async def _held(self, request: GetMemberOffsets, client_id: str) -> list[QueueOffset] | None:
        connections = self._members(request.group, client_id)
        if not connections:
            return None
        try:
            answer = await connections[-1].request(GetHeldOffsets(*request), OFFSETS_S)
            assert isinstance(answer, ClientReport)
            return [QueueOffset(*one) for one in (await self._read(answer, read_held_offsets)).items()]
        except (RmqError, BadBytes) as error:
            log.warning("%s of %s does not say how far it is: %s", client_id, request.group, error)
            return None

    async def _is_good(self, report: ClientReport) -> bool:
        try:
            return (await self._read(report, read_handled)).consume_result in ("CR_SUCCESS", "CR_COMMIT")
        except BadBytes:
            return False

    async def _read(self, report: ClientReport, read: Callable[[bytes], T]) -> T:
        """In a thread, one after the other: whatever a member sends may be slow to read. Raises BadBytes."""
        if len(report.report) > MAX_READ_BYTES:
            raise BadBytes(f"its report has {len(report.report)} bytes, at most {MAX_READ_BYTES} are read")
        async with self._reading:
            return await asyncio.to_thread(read, report.report)

"""RocketMQ's gRPC service, version 2, before a cluster: clients of RocketMQ 5 that speak nothing else come in here
[GrpcMessagingApplication]. It is a client of the cluster itself, keeps nothing, and there may be as many as one likes."""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Sized
from contextlib import aclosing
from typing import Any

from rmq.client import Client
from rmq.client.shared.routes import find
from rmq.delivery.groups import lite_rules
from rmq.errors import BadBytes, RmqError
from rmq.grpc import transactions
from rmq.grpc.lites import TELL_S, Lites
from rmq.grpc.looks import Looks
from rmq.grpc.messages import consumer_group, read, topic_of, written
from rmq.grpc.receiving import Asked, Given, Receiving
from rmq.grpc.schema import v2
from rmq.grpc.statuses import STORED, Code, Wrong, overall, status, status_of
from rmq.grpc.telemetry import POLL_S, Streams
from rmq.model import PERM_READ, PERM_WRITE
from rmq.net.commands.timers import Recall, RecallAnswer, read_handle
from rmq.net.commands.transactions import EndTransaction

_log = logging.getLogger("rmq.grpc")
_GROUP = "PROXY_SEND"  # of what is no transaction: gRPC's producers have no group
_SEND_S = 3.0
_MARGIN_S = 0.5  # of a client's patience, for the way
_COMMIT, _ROLLBACK = 8, 12
MOST_ENTRIES = 1024  # of one request: messages, or receipts to acknowledge
_PERMS = {
    PERM_READ: v2.Permission.READ,
    PERM_WRITE: v2.Permission.WRITE,
    PERM_READ | PERM_WRITE: v2.Permission.READ_WRITE,
}
Context = Any  # grpc.aio.ServicerContext


class Door:
    """Its methods are those of the service, each from a request to its answer."""

    def __init__(self, client: Client) -> None:
        self._session = client.session
        self._looks = Looks(client)
        self._lites = Lites(client)
        self._streams = Streams(client, self._looks, self._lites)
        self._receiving = Receiving(client, self._lites, self._streams.is_open)
        self._producer = client.producer(_GROUP)

    @property
    def streams(self) -> int:
        """How many are open."""
        return self._streams.count

    @property
    def kept(self) -> int:
        """How many messages are hidden again and again."""
        return self._receiving.kept

    def end_streams(self) -> None:
        self._streams.end()

    def end_stream(self, client_id: str) -> None:
        """If it has one."""
        self._streams.end_one(client_id)

    async def close(self) -> None:
        await self._receiving.close()
        await asyncio.gather(self._streams.close(), self._lites.close(), self._producer.close())

    # --- where

    async def query_route(self, request: Any, _: Context) -> Any:
        """All queues. Their brokers are reached where the client reached this door: through it."""
        topic = topic_of(request.topic)
        route, types = await self._session.routes.get(topic), await self._looks.types(topic)
        answer = v2.QueryRouteResponse(status=status())
        for data in sorted(route.queues):
            for queue_id in range(max(data.read_queue_nums, data.write_queue_nums)):
                perm = data.perm & (
                    (PERM_READ if queue_id < data.read_queue_nums else 0)
                    | (PERM_WRITE if queue_id < data.write_queue_nums else 0)
                )
                queue = self._queue(request, data.broker_name, queue_id, _PERMS.get(perm, v2.Permission.NONE))
                queue.accept_message_types.extend(types)
                answer.message_queues.append(queue)
        return answer

    async def query_assignment(self, request: Any, _: Context) -> Any:
        """Each broker as a whole: whoever asks first has its next messages."""
        topic = topic_of(request.topic)
        route = await self._session.routes.get(topic)
        answer = v2.QueryAssignmentResponse(status=status())
        for data in sorted(route.queues):
            if data.perm & PERM_READ:
                queue = self._queue(request, data.broker_name, -1, _PERMS.get(data.perm & 6, v2.Permission.NONE))
                answer.assignments.append(v2.Assignment(message_queue=queue))
        if not answer.assignments:  # clients say why nothing comes
            raise Wrong(Code.FORBIDDEN, f"topic {topic} may not be read")
        return answer

    def _queue(self, request: Any, broker_name: str, queue_id: int, permission: int) -> Any:
        broker = v2.Broker(name=broker_name, id=0, endpoints=request.endpoints)
        return v2.MessageQueue(topic=request.topic, id=queue_id, permission=permission, broker=broker)

    async def heartbeat(self, _: Any, __: Context) -> Any:
        return v2.HeartbeatResponse(status=status())

    async def notify_client_termination(self, _: Any, __: Context) -> Any:
        """Its stream says it, too."""
        return v2.NotifyClientTerminationResponse(status=status())

    async def telemetry(self, said: AsyncIterator[Any], context: Context) -> AsyncGenerator[Any, None]:
        async with aclosing(self._streams.serve(client_id_of(context), said)) as commands:
            async for command in commands:
                yield command

    # --- sending

    async def send_message(self, request: Any, context: Context) -> Any:
        """One after the other."""
        _check_count(request.messages, "message")
        answer = v2.SendMessageResponse()
        for given in request.messages:
            try:
                entry = await self._send(given, _seconds(context, _SEND_S))
            except (Wrong, RmqError) as error:
                entry = v2.SendResultEntry(status=status_of(error), message_id=given.system_properties.message_id)
            answer.entries.append(entry)
        answer.status.CopyFrom(overall([entry.status for entry in answer.entries]))
        return answer

    async def _send(self, given: Any, timeout_s: float) -> Any:
        wanted = read(given)
        message, more, group, half = wanted
        await self._looks.check_kind(message.topic, wanted.kind)
        producer = self._producer
        if half:
            producer = await self._streams.producer(message.topic) or producer
            more = more | {"TRAN_MSG": "true", "PGROUP": transactions.group_of(message.topic)}
        sent = await producer.send_with(message, more, key=group, queue=None, timeout=timeout_s, half=half)
        entry = v2.SendResultEntry(
            status=status(STORED[sent.status], sent.status.name),
            message_id=sent.message_id,
            offset=sent.queue_offset,
            recall_handle=sent.recall_handle,
        )
        if half:
            waiting = transactions.Half(sent.queue.broker_name, sent.queue_offset, sent.physical_offset, sent.message_id)
            entry.transaction_id = waiting.text()
        return entry

    async def end_transaction(self, request: Any, context: Context) -> Any:
        topic, half = topic_of(request.topic), transactions.parse(request.transaction_id)
        decisions = {v2.TransactionResolution.COMMIT: _COMMIT, v2.TransactionResolution.ROLLBACK: _ROLLBACK}
        decision = decisions.get(request.resolution)
        if decision is not None:  # who does not know yet is asked again
            end = EndTransaction(
                transactions.group_of(topic),
                half.queue_offset,
                half.physical_offset,
                decision,
                half.message_id,
                request.source == v2.TransactionSource.SOURCE_SERVER_CHECK,
                half.message_id,
                topic,
            )
            await find(self._session.routes, half.broker_name, topic)
            await self._session.leaders.persist(half.broker_name, end, _seconds(context, _SEND_S), harmless=True)
        return v2.EndTransactionResponse(status=status())

    async def recall_message(self, request: Any, context: Context) -> Any:
        """Where the message waits: other brokers may be away, and can only say that it is not there."""
        topic, handle = topic_of(request.topic), read_handle(request.recall_handle)
        if handle is None:
            raise Wrong(Code.BAD_REQUEST, f"{request.recall_handle[:80]!r} is no recall handle")
        await find(self._session.routes, handle.broker_name, topic)
        recall = Recall(topic, request.recall_handle, _GROUP)
        found = await self._session.leaders.persist(handle.broker_name, recall, _seconds(context, _SEND_S))
        assert isinstance(found, RecallAnswer)
        return v2.RecallMessageResponse(status=status(), message_id=found.msg_id)

    # --- receiving

    async def receive_message(self, request: Any, context: Context) -> AsyncGenerator[Any, None]:
        def said(found: Any) -> Any:
            return v2.ReceiveMessageResponse(status=found)

        asked = await self._asked(request, context)
        given = await self._receiving.receive(asked)
        if not given:
            yield said(status(Code.MESSAGE_NOT_FOUND, "no message came in time"))
            return
        complete = False
        try:
            yield said(status())
            for each in given:
                if (part := self._handed(asked.group, each)) is not None:
                    yield part
            done = v2.ReceiveMessageResponse()
            done.delivery_timestamp.FromMilliseconds(self._session.clock.wall_ms())
            yield done
            complete = True
        finally:
            if not complete:  # nobody knows what of it came
                self._receiving.give_back(asked, given)

    def _handed(self, group: str, given: Given) -> Any:
        """The part of an answer with this message, None if it cannot be told: whatever is odd about one, it keeps nobody from the
        others."""
        message, receipt, attempt = given
        try:
            return v2.ReceiveMessageResponse(message=written(message, receipt.text(), receipt.held.invisible_ms, attempt))
        except BadBytes as error:
            _log.error("%s is not handed out, it comes again: %s", message, error)
        except Exception:
            _log.exception("%s is not handed out, it comes again; this is a bug, please report it", message)
        self._receiving.let_go(group, receipt)
        return None

    async def _asked(self, request: Any, context: Context) -> Asked:
        group, queue = consumer_group(request.group), request.message_queue
        topic = topic_of(queue.topic)
        wait_s = request.long_polling_timeout.ToMilliseconds() / 1000 if request.HasField("long_polling_timeout") else POLL_S
        known = await self._looks.group(group, topic)
        lite = self._streams.is_lite(client_id_of(context))
        if lite is None:  # what its group is for: an ordinary pop would have what others want, and what was done
            lite = (rules := lite_rules(known)) is not None and rules.topic == topic
        return Asked(
            client_id=client_id_of(context),
            group=group,
            topic=topic,
            broker_name=queue.broker.name,
            most=request.batch_size,
            hidden_ms=None if request.auto_renew else request.invisible_duration.ToMilliseconds(),
            wait_s=max(0.0, min(wait_s, _seconds(context, POLL_S))),
            expression=request.filter_expression.expression or "*",
            sql=request.filter_expression.type == v2.FilterType.SQL,
            ordered=known.consume_message_orderly,
            attempt_id=request.attempt_id,
            lite=lite,
            attempts=max(known.retry_max_times, 0) + 1,
        )

    async def sync_lite_subscription(self, request: Any, context: Context) -> Any:
        timeout_s = _seconds(context, TELL_S)  # a client that hears nothing forgets that it wanted them
        await self._lites.change(client_id_of(context), request, self._streams.is_open, timeout_s)
        return v2.SyncLiteSubscriptionResponse(status=status())

    async def ack_message(self, request: Any, context: Context) -> Any:
        _check_count(request.entries, "receipt handle")
        group, topic, until_s = topic_of(request.group), topic_of(request.topic), self._until_s(context)

        async def one(entry: Any) -> Any:
            try:
                await self._receiving.ack(group, topic, entry.receipt_handle, entry.lite_topic, until_s)
                found = status()
            except (Wrong, RmqError) as error:
                found = status_of(error)
            return v2.AckMessageResultEntry(message_id=entry.message_id, receipt_handle=entry.receipt_handle, status=found)

        entries = await asyncio.gather(*map(one, request.entries))
        return v2.AckMessageResponse(status=overall([entry.status for entry in entries]), entries=entries)

    async def change_invisible_duration(self, request: Any, context: Context) -> Any:
        receipt = await self._receiving.change(
            topic_of(request.group),
            topic_of(request.topic),
            request.receipt_handle,
            request.invisible_duration.ToMilliseconds(),
            request.lite_topic,
            self._until_s(context),
            request.suspend,
        )
        return v2.ChangeInvisibleDurationResponse(status=status(), receipt_handle=receipt)

    async def forward_message_to_dead_letter_queue(self, request: Any, context: Context) -> Any:
        group, topic, until_s = topic_of(request.group), topic_of(request.topic), self._until_s(context)
        await self._receiving.bury(group, topic, request.receipt_handle, request.message_id, request.lite_topic, until_s)
        return v2.ForwardMessageToDeadLetterQueueResponse(status=status())

    def _until_s(self, context: Context) -> float:
        """So long the use of a receipt is tried (monotonic s)."""
        return self._session.clock.monotonic() + _seconds(context, _SEND_S)


def client_id_of(context: Context) -> str:
    return str(dict(context.invocation_metadata() or ()).get("x-mq-client-id", "")) or str(context.peer())


def _check_count(entries: Sized, what: str) -> None:
    """Raises Wrong."""
    if not entries:
        raise Wrong(Code.BAD_REQUEST, f"no {what}")
    if len(entries) > MOST_ENTRIES:
        raise Wrong(Code.BAD_REQUEST, f"{len(entries)} entries: give {MOST_ENTRIES} at most, each a {what}")


def _seconds(context: Context, most: float) -> float:
    """The client's patience, less what an answer takes on its way: behind that it hears of no error but its own."""
    left = context.time_remaining()
    return most if left is None else min(most, max(left - _MARGIN_S, left / 2))

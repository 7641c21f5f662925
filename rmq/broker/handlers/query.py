"""Lookups of single messages: by key, unique key or tag, and by the offset in a message id.

Answers have committed messages only (R18), all of them or with the word "incomplete" (C16). All reads run in threads.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

from rmq.broker.shared.indexer import Indexer
from rmq.broker.shared.ports import CheckTopic, Reader
from rmq.codes import ResponseCode
from rmq.errors import Refusal
from rmq.log.files.damage import WHAT_HELPS
from rmq.log.index import query
from rmq.log.index.index import Index
from rmq.log.records import record
from rmq.log.records.properties import MAX_PROPERTIES_BYTES
from rmq.model import EPOCH_TOPIC, STATE_TOPIC
from rmq.names import MAX_STORED_TOPIC_LENGTH
from rmq.net.commands import MessageAnswer, QueryMessage, QueryMessageAnswer, ViewMessage
from rmq.net.transport.server import LATER, Call, Handler, Later
from rmq.requests import Action

MAX_FOUND = 64  # [maxMsgsNumBatch]
MAX_FOUND_UNIQUE = 32  # [defaultQueryMaxNum]
BY_TAG = "T"  # [MessageConst.INDEX_TAG_TYPE]
_NOT_FOUND = "can not find message, maybe time range not correct"


class QueryHandlers:
    """`index` None: this broker keeps no index. `check_topic`: as of `Guard`."""

    def __init__(self, reader: Reader, index: Index | None, indexer: Indexer | None, check_topic: CheckTopic) -> None:
        self._reader = reader
        self._check_topic = check_topic
        self._index = index
        self._indexer = indexer

    def by_request(self) -> Mapping[type[Any], Handler]:
        return {QueryMessage: self.by_key, ViewMessage: self.by_offset}

    async def by_key(self, request: QueryMessage, call: Call) -> Later:
        index, indexer, committed = self._index, self._indexer, self._reader.committed()
        if index is None or indexer is None:
            raise Refusal(
                ResponseCode.SERVICE_NOT_AVAILABLE,
                "this broker keeps no index of keys: set message_index (messageIndexEnable) and restart it",
            )
        if len(request.topic) > MAX_STORED_TOPIC_LENGTH or len(request.key) > MAX_PROPERTIES_BYTES:
            about = f"no message has a topic of {len(request.topic)} characters and a key of {len(request.key)}"
            most = f"at most {MAX_STORED_TOPIC_LENGTH} and {MAX_PROPERTIES_BYTES} are allowed"
            raise Refusal(ResponseCode.INVALID_PARAMETER, f"{about}: {most}")
        limit = MAX_FOUND_UNIQUE if request.unique_key_query else max(0, min(request.max_num, MAX_FOUND))
        wanted = query.KeyQuery(
            request.topic, request.key, request.index_type == BY_TAG, limit, request.begin_timestamp, request.end_timestamp
        )
        reached = await indexer.reach(committed)
        found = await asyncio.to_thread(query.by_key, self._reader.log, index, wanted, committed)
        complete = reached and found.complete
        trouble = "" if complete else f"incomplete: bytes of a message, or of the index, cannot be read: {WHAT_HELPS}"
        if not reached:
            trouble = f"incomplete: the index reaches {index.position} of {committed} bytes; ask again later"
        if found.records:
            last = index.last
            answer = QueryMessageAnswer(last.end_ms, last.end_offset, b"".join(found.records), complete=complete)
            call.answer(answer, trouble)
        elif trouble:
            raise Refusal(ResponseCode.SYSTEM_BUSY, trouble)
        else:
            call.answer(QueryMessageAnswer(status=int(ResponseCode.QUERY_NOT_FOUND)), _NOT_FOUND)
        return LATER

    async def by_offset(self, request: ViewMessage, call: Call) -> MessageAnswer:
        found = await asyncio.to_thread(self._reader.record_at, request.offset)
        if found is None or any(record.has_topic(found, 0, topic) for topic in (STATE_TOPIC, EPOCH_TOPIC)):
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {request.offset}")
        self._check_topic(call, record.decode(found).topic, Action.SUB_OR_GET, "")
        return MessageAnswer(found)

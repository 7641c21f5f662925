"""Deletes old files because an administrator asks, not at the usual hour."""

from collections.abc import Awaitable, Callable

from rmq.net.commands import CleanExpiredQueues, DeleteExpiredLog
from rmq.net.transport.server import Call


class CleaningHandlers:
    """`delete_expired` and `clean_queues` return when it is done, and raise StoreError."""

    def __init__(self, delete_expired: Callable[[], Awaitable[int]], clean_queues: Callable[[], Awaitable[None]]) -> None:
        self._delete_expired = delete_expired
        self._clean_queues = clean_queues

    async def delete_expired_log(self, _request: DeleteExpiredLog, _call: Call) -> None:
        await self._delete_expired()

    async def clean_expired_queues(self, _request: CleanExpiredQueues, _call: Call) -> None:
        await self._clean_queues()

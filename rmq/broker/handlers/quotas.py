"""Quotas: setting, deleting and showing them."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from rmq.access import quotas as q
from rmq.broker.shared.state import Line, undoing
from rmq.codes import ResponseCode
from rmq.errors import Refusal
from rmq.net.commands.quotas import DeleteQuota, ListQuotas, QuotaRow, QuotaRows, SetQuota
from rmq.net.transport.server import Call, Handler


class QuotaHandlers:
    """`commit(lines)` returns once they are committed and applied."""

    def __init__(self, quotas: q.QuotaTable, commit: Callable[[list[Line]], Awaitable[None]]) -> None:
        self._quotas = quotas
        self._commit = commit

    def by_request(self) -> Mapping[type[Any], Handler]:
        return {SetQuota: self.set, DeleteQuota: self.delete, ListQuotas: self.all}

    async def set(self, request: SetQuota, _call: Call) -> None:
        subject, *limits = request.quota
        subject = q.checked_subject(subject)
        quota = q.checked(subject, q.Quota(*limits))
        if not self._quotas.has_room(subject, q.MAX_QUOTAS):
            raise Refusal(ResponseCode.INVALID_PARAMETER, f"there are {q.MAX_QUOTAS} quotas, which is the most; use User:*")
        await self._write(subject, quota)

    async def delete(self, request: DeleteQuota, _call: Call) -> None:
        """Also one that is on its way: who did not hear of it in time may not want it any more."""
        subject = q.checked_subject(request.subject)
        if self._quotas.is_changing(subject) or subject in self._quotas.committed():
            await self._write(subject, None)

    async def _write(self, subject: str, quota: q.Quota | None) -> None:
        self._quotas.stage(subject, quota)
        with undoing(lambda: self._quotas.unstage(subject)):
            await self._commit([("quota", subject, quota and list(quota))])

    def all(self, request: ListQuotas, _call: Call) -> QuotaRows:
        found = self._quotas.committed()
        return QuotaRows([QuotaRow(subject, *found[subject]) for subject in sorted(found) if request.filter in subject])

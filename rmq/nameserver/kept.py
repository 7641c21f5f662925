"""What a nameserver keeps on disk: entries by administrators, and settings that they changed while it ran.

Nameservers do not know each other: a tool writes to each of them, and again to one that was away.
"""

import asyncio
from collections.abc import Mapping
from pathlib import Path

import orjson

from rmq.clock import Clock
from rmq.codes import ResponseCode
from rmq.config.files import write_durably
from rmq.config.live import LiveSettings
from rmq.errors import InvalidArgument, Refusal, StoreError
from rmq.net.commands import DeleteSetting, Request
from rmq.net.commands.configuration import ConfigChanged, ConfigText, GetNameserverConfig, UpdateNameserverConfig
from rmq.net.commands.registration import GetSetting, ListSettings, PutSetting, SettingTable, SettingValue
from rmq.net.transport.server import LATER, Call, Handler, Later
from rmq.routing.kept import KeptTable
from rmq.routing.table import RouteTable


class KeptHandlers:
    """`folder`: belongs to this nameserver alone. Raises StoreError for a file that a nameserver did not write."""

    def __init__(self, live: LiveSettings, folder: Path, routes: RouteTable, clock: Clock) -> None:
        self.live = live
        self._file = folder / "kvConfig.json"
        self._routes = routes
        self._clock = clock
        self._turn = asyncio.Lock()
        self.table = _load(self._file)

    def by_request(self) -> Mapping[type[Request], Handler]:
        return {
            PutSetting: self.put,
            GetSetting: self.get,
            DeleteSetting: self.delete,
            ListSettings: self.list,
            GetNameserverConfig: lambda _request, _call: ConfigText(self.live.text()),
            UpdateNameserverConfig: self.update,
        }

    async def put(self, request: PutSetting, _call: Call) -> None:
        async with self._turn:
            before = self.table.get(request.namespace, request.key)
            self.table.put(*request)
            await self._save((request.namespace, request.key), before)

    async def delete(self, request: DeleteSetting, _call: Call) -> None:
        """A missing entry is no error: mqadmin deletes one at the end of each deletion of a topic."""
        async with self._turn:
            before = self.table.get(*request)
            if self.table.delete(*request):
                await self._save(request, before)

    async def _save(self, place: tuple[str, str], before: str | None) -> None:
        data = orjson.dumps(self.table.json(), option=orjson.OPT_INDENT_2)
        try:
            await asyncio.to_thread(write_durably, self._file, data)
        except OSError as error:
            if before is None:
                self.table.delete(*place)
            else:
                self.table.put(*place, before)
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"it cannot be kept, so nothing is changed: {error}") from error

    def get(self, request: GetSetting, _call: Call) -> SettingValue:
        value = self.table.get(*request)
        if value is None:
            about = f"No config item, Namespace: {request.namespace} Key: {request.key}"
            raise Refusal(ResponseCode.QUERY_NOT_FOUND, about)
        return SettingValue(value)

    def list(self, request: ListSettings, _call: Call) -> SettingTable:
        rows = self.table.all_of(request.namespace)
        if not rows:
            raise Refusal(ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {request.namespace}")
        return SettingTable(rows)

    async def update(self, request: UpdateNameserverConfig, call: Call) -> Later:
        """Raises Refusal."""
        async with self._turn:
            change = self.live.plan(request.text)
            try:
                await asyncio.to_thread(self.live.save, change)
            except OSError as error:
                raise Refusal(ResponseCode.SYSTEM_ERROR, f"it cannot be kept, so nothing is changed: {error}") from error
            self.live.apply(change, self._clock.wall_ms())
            self._routes.expiry_s = change.settings.broker_expiry_ms / 1000
        call.answer(ConfigChanged(change.about), change.about)
        return LATER


def _load(file: Path) -> KeptTable:
    table = KeptTable()
    if file.is_file():
        try:
            table.load(orjson.loads(file.read_bytes()))
        except (OSError, ValueError, KeyError, TypeError, AttributeError, Refusal, InvalidArgument) as error:
            raise StoreError(f"{file} is not what a nameserver wrote ({error}): restore it, or move it away") from error
    return table

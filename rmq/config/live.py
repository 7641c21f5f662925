"""Settings that change while a node runs: read and changed by RocketMQ's keys, and kept over restarts in a file of their own.

Access control is not done here. Paths, addresses, secrets and the rules of access cannot be changed this way (F9).
"""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from rmq.codes import ResponseCode
from rmq.config import keys
from rmq.config.access import SECRETS, AccessSettings
from rmq.config.files import Entry, conf_entries, entries_of, write_durably
from rmq.config.loading import disk_doubts, suggestion
from rmq.config.settings import LIVE_FILES, NAMES, NAMESERVER_LIVE, NodeSettings, name_of, parse, rocketmq_key
from rmq.errors import InvalidArgument, Refusal, sayable
from rmq.model import DataVersion

_MAX_VALUE: Final = 1024  # characters
_CLOSED: Final = ("_dir", "_host", "_port", "_addresses", "_sources", "_file", "_key", "_cert", "_ca", "peers")
_RULES: Final = frozenset(row.name for row in dataclasses.fields(AccessSettings))  # TLS, users, policies, secrets


class Change(NamedTuple):
    """`rows`: the text of each key. `about`: what the administrator should know, "" if nothing."""

    settings: NodeSettings
    rows: Mapping[str, str]
    about: str


class LiveSettings:
    """The live settings of a broker or a nameserver (`file`: one of `LIVE_FILES`). `settings`: those in force."""

    def __init__(self, settings: NodeSettings, file: str) -> None:
        self.settings = settings
        self._names, self._is_nameserver = LIVE_FILES[file], LIVE_FILES[file] is NAMESERVER_LIVE
        self._path = settings.store_dir / file
        self._rows = {row.key: str(row.raw) for row in entries_of(self._path)} if self._path.is_file() else {}
        self._version = DataVersion()

    @property
    def version(self) -> str:
        """RocketMQ's DataVersion as JSON: the number of changes since the start, and the time of the last one."""
        return json.dumps(self._version.json(), separators=(",", ":"))

    def text(self) -> str:
        """`key=value` lines by RocketMQ's keys, including kept ones without effect, and live settings without one; no secrets."""
        told = {rocketmq_key(name) or (name if name in self._names else ""): name for name in NAMES if name not in SECRETS}
        rows = {key: _spelled(name, getattr(self.settings, name)) for key, name in told.items()}
        rows |= {"brokerIP1": self.settings.store_host, "brokerRole": self.settings.broker_role or "ASYNC_MASTER"}
        if self._is_nameserver:
            rows["listenPort"] = str(self.settings.namesrv_port)
        rows = {key: value for key, value in rows.items() if key} | self._rows
        return "".join(f"{key}={value}\n" for key, value in sorted(rows.items()))

    def named(self, text: str) -> dict[str, str]:
        """The values in force of the keys in `key=value` lines; keys without one, and secrets, are left out. Raises Refusal."""
        try:
            keys_named = [row.key for row in conf_entries(Path("the request"), text)]
        except InvalidArgument as error:
            raise Refusal(ResponseCode.INVALID_PARAMETER, str(error)) from None
        names = {key: name for key in keys_named if (name := name_of(key)) and name not in SECRETS}
        values = {key: _spelled(name, getattr(self.settings, name)) for key, name in names.items()}
        return values | {key: self._rows[key] for key in keys_named if key not in names and key in self._rows}

    def plan(self, text: str) -> Change:
        """Raises Refusal, which names the key; then nothing is changed."""
        values: dict[str, Any] = {}
        rows: dict[str, str] = {}
        idle: list[str] = []
        try:
            for row in conf_entries(Path("the request"), text):
                self._take(row, values, rows, idle)
            settings = dataclasses.replace(self.settings, **values)
        except InvalidArgument as error:
            raise Refusal(ResponseCode.INVALID_PARAMETER, str(error)) from None
        about = [f"kept, and without effect here: {', '.join(idle)}"] if idle else []
        about += [doubt for doubt in disk_doubts(settings) if doubt not in {*disk_doubts(self.settings)}]
        return Change(settings, {**self._rows, **rows}, "; ".join(about))

    def _take(self, row: Entry, values: dict[str, Any], rows: dict[str, str], idle: list[str]) -> None:
        key, raw, name = row.key, str(row.raw), name_of(row.key)
        if len(raw) > _MAX_VALUE or not raw.isprintable():
            raise Refusal(ResponseCode.INVALID_PARAMETER, f"{key}: at most {_MAX_VALUE} printable characters")
        if key in keys.BLACK_LIST or (name and (name in _RULES or name.endswith(_CLOSED))):
            raise Refusal(ResponseCode.NO_PERMISSION, f"Can not update config in black list: {key}")
        if name in self._names:
            values[name] = parse(name, raw)
            rows[rocketmq_key(name) or name] = raw
        elif name:
            about = (
                f"{key} does not change while the node runs: change its file and restart it (`rmq config check` tells the file)"
            )
            raise Refusal(ResponseCode.INVALID_PARAMETER, about)
        elif key in keys.NO_EFFECT:
            rows[key] = raw
            idle.append(key)
        elif key in keys.KNOWN:
            raise Refusal(ResponseCode.INVALID_PARAMETER, f"{key} is not served, so it is not kept")
        else:
            raise Refusal(ResponseCode.INVALID_PARAMETER, f"unknown key {key}{suggestion(key)}")

    def save(self, change: Change) -> None:
        """Saves the changes; durable on return. Call it in a thread. Raises OSError."""
        head = "# Set while the node ran (updateBrokerConfig, updateNamesrvConfig): wins over its file, variables and flags.\n"
        write_durably(self._path, (head + "".join(f"{key}={value}\n" for key, value in sorted(change.rows.items()))).encode())

    def apply(self, change: Change, now_ms: int) -> None:
        self.settings, self._rows = change.settings, dict(change.rows)
        self._version = self._version.risen(now_ms)


_THEIRS: Final = {  # values of ours that RocketMQ's tools know under another name
    "flush": {"async": "ASYNC_FLUSH", "sync": "SYNC_FLUSH"},
    "metrics": {"off": "DISABLE", "prom": "PROM"},
}


def _spelled(name: str, value: object) -> str:
    """The value as RocketMQ writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ";".join(f"{each:02}" if isinstance(each, int) else str(each) for each in value)
    return _THEIRS.get(name, {}).get(str(value), sayable(str(value)))

"""Loads the settings of a process from all sources, and knows where each effective value came from.

Sources, weakest first: defaults, the file (TOML, or RocketMQ's `key=value`), the environment (RMQ_*, RocketMQ's NAMESRV_ADDR and
ROCKETMQ_ZONE), flags, what was set while the node ran.
"""

import difflib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rmq.config import access, keys
from rmq.config.files import Entry as Entry, entries_of
from rmq.config.security import is_loopback, open_door
from rmq.config.settings import (
    BY_ROCKETMQ,
    DEFAULT_NAMESRV,
    LIVE_FILES,
    NAMES,
    STORE_DIR,
    NodeSettings,
    name_of,
    parse,
    rocketmq_key,
)
from rmq.errors import InvalidArgument

OTHER_VARIABLES = frozenset(
    {"RMQ_CONFIG", "RMQ_TIMEOUT", "RMQ_TLS", "RMQ_USER", "RMQ_PASSWORD_FILE", "RMQ_PASSWORD"}
)  # no settings of a node


@dataclass(frozen=True, slots=True)
class Loaded:
    """Effective settings. `origins`: name of the setting -> where its value came from. `warnings`: whole sentences."""

    settings: NodeSettings
    origins: Mapping[str, str]
    warnings: tuple[str, ...]


def load(file: Path | None = None, env: Mapping[str, str] | None = None, flags: Iterable[Entry] = ()) -> Loaded:
    """Reads all sources; a later one wins.

    Raises InvalidArgument for a file that cannot be read, a wrong value (naming file, line, key and what is allowed), or
    a key of RocketMQ that promises what this release does not do.
    """
    warnings: list[str] = []
    rows = list(entries_of(file)) if file else []
    rows += _from_env(env or {}, warnings)
    rows += flags
    ours = {row.key: row for row in _translate(rows, warnings)}
    for row in _live_rows(ours):
        if row.key in ours:
            warnings.append(f"{row.origin}: {row.key} was set while the node ran, which wins over {ours[row.key].origin}")
        ours[row.key] = row
    _check_secrets(ours, file)
    values = _values(ours)
    origins = {name: ours[name].origin if name in ours else "default" for name in NAMES}
    settings = _make(values, origins)
    keys.judge_paths([row for row in rows if row.key in keys.PATHS], settings.store_dir)
    warnings += [*_doubts(settings), *disk_doubts(settings), *_look_at_doors(settings)]
    return Loaded(settings, origins, tuple(dict.fromkeys(warnings)))


def _live_rows(ours: Mapping[str, Entry]) -> Iterator[Entry]:
    """The settings that administrators changed while the node ran: as the newest decision, they win over all others."""
    root = _parse_entry(ours["store_dir"]) if "store_dir" in ours else STORE_DIR
    for file, names in LIVE_FILES.items():
        if (root / file).is_file():
            rows = _translate(entries_of(root / file), [])
            yield from (row for row in rows if row.key in names)


def _check_secrets(ours: Mapping[str, Entry], file: Path | None) -> None:
    """Raises InvalidArgument if others could read the secrets (S12)."""
    for name in access.SECRETS:
        row = ours.get(name)
        if row is None or str(row.raw).startswith("file:"):
            continue
        if row.origin.startswith("--"):
            flag = row.origin.partition("=")[0]
            raise InvalidArgument(f"{flag}: everybody can read flags; write file:PATH, or use the environment")
        if file is not None and row.origin.startswith(f"{file}:") and file.stat().st_mode & 0o077:
            about = f"a secret stands here and others may read the file; chmod 600 {file}, or write file:PATH"
            raise InvalidArgument(f"{row.origin}: {about}")


def _values(ours: dict[str, Entry]) -> dict[str, Any]:
    values = {name: _parse_entry(row) for name, row in ours.items()}
    role = values.get("role", "all")
    if role == "nameserver" and "listen_port" in ours:  # RocketMQ's namesrv.conf says listenPort as well
        ours["namesrv_port"] = ours.pop("listen_port")
        values["namesrv_port"] = values.pop("listen_port")
    if role == "broker" and not values.get("namesrv_addresses"):
        values["namesrv_addresses"] = (DEFAULT_NAMESRV,)
    return values


def _parse_entry(row: Entry) -> Any:
    try:
        return parse(row.key, row.raw)
    except InvalidArgument as error:
        key = rocketmq_key(row.key)
        also = f" (RocketMQ: {key})" if key else ""
        raise InvalidArgument(f"{row.origin}: {error}{also}") from None


def _make(values: dict[str, Any], origins: Mapping[str, str]) -> NodeSettings:
    try:
        return NodeSettings(**values)
    except InvalidArgument as error:
        name = str(error).partition(":")[0]
        raise InvalidArgument(f"{origins.get(name, 'settings')}: {error}") from None


def _doubts(settings: NodeSettings) -> Iterator[str]:
    host, listens = settings.store_host, settings.listen_host
    if settings.with_broker and is_loopback(listens) and not is_loopback(host):
        yield f"clients are told {host}, but the node listens on {listens} only; set listen_host (bindAddress, --listen) too"


def disk_doubts(settings: NodeSettings) -> Iterator[str]:
    """The order in which a disk that fills up is meant to act: delete what is expired, delete by force, refuse sends."""
    refused = settings.refuse_sends_percent
    acts = [("max_used_percent", "expired files are deleted at any hour")]
    if settings.clean_forcibly:
        acts.append(("clean_forcibly_percent", "the oldest files are deleted by force"))
    for name, act in acts:
        if (percent := getattr(settings, name)) >= refused and settings.with_broker:
            key = rocketmq_key(name) or name
            yield f"{key}={percent}: at {refused} % (diskSpaceWarningLevelRatio) sends are refused, before {act}; make it less"


def _look_at_doors(settings: NodeSettings) -> Iterator[str]:
    """Warnings. Raises InvalidArgument if the node would serve everybody beyond loopback and `insecure` is not set."""
    wrong = open_door(settings.listen_host, settings.knows_who_comes)
    if wrong and not settings.insecure:
        raise InvalidArgument(
            f"listen_host: {wrong}. Set authentication = true (users) or tls_client_auth = require with tls_mode = enforcing "
            "(docs/security), or insecure = true (--insecure) where only your own machines reach it"
        )
    if wrong:
        yield f"insecure: {wrong}. Admit your own machines only (docs/security)"


def _translate(rows: Iterable[Entry], warnings: list[str]) -> Iterator[Entry]:
    """Translates keys to names of settings. Every other key is refused, warned about, or ignored if harmless."""
    for row in rows:
        if name := name_of(row.key):
            yield row._replace(key=name)
        elif row.key not in keys.PATHS and (warning := _judged(row)):
            warnings.append(f"{row.origin}: {warning}")


def _judged(row: Entry) -> str:
    try:
        warning = keys.judge(row.key, str(row.raw))
    except InvalidArgument as error:
        raise InvalidArgument(f"{row.origin}: {error}") from None
    return f"unknown key {row.key}{suggestion(row.key)}" if warning is None else warning


def suggestion(key: str, names: Iterable[str] = ()) -> str:
    """A suggestion of the key that may be meant, to append to the key."""
    candidates = {name.lower(): name for name in (names or [*NAMES, *BY_ROCKETMQ, *keys.KNOWN])}
    close = difflib.get_close_matches(key.lower(), candidates, n=1, cutoff=0.7)
    return f"; did you mean {candidates[close[0]]}?" if close else ", ignored"


def _from_env(env: Mapping[str, str], warnings: list[str]) -> Iterator[Entry]:
    if env.get("NAMESRV_ADDR"):
        yield Entry("namesrv_addresses", env["NAMESRV_ADDR"], "NAMESRV_ADDR")
    if env.get("ROCKETMQ_ZONE"):
        yield Entry("zone", env["ROCKETMQ_ZONE"], "ROCKETMQ_ZONE")
    known = {f"RMQ_{name.upper()}": name for name in NAMES}
    for variable in sorted(env):
        if variable in known:
            yield Entry(known[variable], env[variable], variable)
        elif variable.startswith("RMQ_") and variable not in OTHER_VARIABLES:
            warnings.append(f"{variable}: unknown variable{suggestion(variable, known)}")

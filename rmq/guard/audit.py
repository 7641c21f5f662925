"""A log line for each administrative act: who, from where, what, the state before and after, done or refused.

No secret gets into it (S12), however deep it is in a request.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from rmq.errors import Refusal, RmqError
from rmq.names import address_text
from rmq.net.commands import CODES, Answer
from rmq.net.transport.connection import Connection
from rmq.net.transport.requestlog import request_id
from rmq.net.transport.server import LATER, Call, Handler, Later
from rmq.requests import REQUESTS, Action

log = logging.getLogger("rmq.audit")

MAX_TEXT: Final = 1_000  # characters of one value
_SECRET = ("password", "secret", "signature", "token")
_SECRET_KEYS = (*_SECRET, "credential", "authenticationuser", "init_user")  # of settings, in small letters
_ACTIONS = (Action.CREATE, Action.UPDATE, Action.DELETE)
ADMINISTRATIVE: Final = frozenset(kind for kind, code in CODES.items() if REQUESTS[code].action in _ACTIONS)

States = Mapping[type[Any], Callable[[Any], object]]
"""By request: the state of the thing that it changes. May raise Refusal for a request that names no such thing."""


def audited(handlers: Mapping[type[Any], Handler], states: States) -> dict[type[Any], Handler]:
    """The same handlers; those of administrative acts write a line."""
    return {
        kind: _audited(handler, states.get(kind, _unknown)) if kind in ADMINISTRATIVE else handler
        for kind, handler in handlers.items()
    }


def refused(request: object, user: str, connection: Connection, call_id: int, why: str, left_out: Mapping[str, object]) -> None:
    """Writes the line for an administrative request whose sender may not make it. `left_out`: how many such lines were not
    written before it."""
    _tell(request, user, connection, "refused", {"id": request_id(connection.client, call_id), "why": why, **left_out})


def done(request: object, call: Call, before: object, after: object) -> None:
    """Writes the line for a request that only some senders make as administrators."""
    _write(request, call, "done", before=before, after=after)


def _unknown(_request: object) -> None:
    return None


def _seen(state: Callable[[Any], object], request: Any) -> object:
    try:
        return state(request)
    except Refusal:  # its handler refuses it, too, and says why
        return None


class _AuditedCall(Call):
    """Writes its line when it is answered, whoever does that. `before`: the state when it came."""

    state: Callable[[Any], object]
    request: object
    before: object
    told: bool

    def answer(self, answer: Answer, remark: str = "") -> None:
        self.tell("done", before=self.before, after=_seen(self.state, self.request))
        super().answer(answer, remark)

    def give_up(self, refusal: Refusal) -> None:
        self.tell("refused", why=str(refusal))
        super().give_up(refusal)

    def tell(self, outcome: str, **more: object) -> None:
        self.told = True
        _write(self.request, self, outcome, **more)


def _audited(handler: Handler, state: Callable[[Any], object]) -> Handler:
    def serve(request: Any, call: Call) -> Answer | Later | Awaitable[Answer | Later]:
        audited = _AuditedCall(*call)
        audited.state, audited.request, audited.before, audited.told = state, request, _seen(state, request), False
        try:
            result = handler(request, audited)
        except RmqError as error:
            audited.tell("refused", why=str(error))
            raise
        if result is None or result is LATER or isinstance(result, tuple):
            returned(audited, result)
            return result
        return finish(audited, result)

    async def finish(call: _AuditedCall, pending: Awaitable[Answer | Later]) -> Answer | Later:
        try:
            result = await pending
        except RmqError as error:
            call.tell("refused", why=str(error))
            raise
        returned(call, result)
        return result

    def returned(call: _AuditedCall, result: Answer | Later) -> None:
        if result is not LATER:
            call.tell("done", before=call.before, after=_seen(state, call.request))
        elif not call.told:  # its answer comes later, and then another line
            _write(call.request, call, "asked", before=call.before)

    return serve


def _write(request: object, call: Call, outcome: str, **more: object) -> None:
    standing = call.connection.standing
    who = standing.login if call.context is None else getattr(call.context, "who", None)
    _tell(request, "" if who is None else who.user, call.connection, outcome, {"id": call.request_id, **more})


def _tell(request: object, user: str, connection: Connection, outcome: str, more: Mapping[str, object]) -> None:
    said = {
        "what": type(request).__name__,
        "outcome": outcome,
        "user": user,
        "client": connection.client_id[:MAX_TEXT],
        "source": address_text(*connection.client),
        "request": _as_json(request),
        **{name: _as_json(value) for name, value in more.items() if value is not None},
    }
    log.info("%s %s", said["what"], outcome, extra=said)


def _settings(text: str) -> str:
    """Lines `key=value`, without the values of secrets; a `\\` at its end continues a line."""
    shown, hides = list[str](), False
    for line in text[:MAX_TEXT].splitlines():
        key, mark, _ = line.partition("=")
        goes_on = hides
        hides = hides or any(word in key.lower() for word in _SECRET_KEYS)
        shown.append("***" if goes_on else f"{key}{mark}***" if hides else line)
        hides = hides and line.rstrip().endswith("\\")
    return "\n".join(shown)


def _as_json(value: Any) -> Any:
    """The value without secrets, and of limited length."""
    if hasattr(value, "_asdict"):
        return {
            name: "***" if any(word in name for word in _SECRET) else _settings(each) if name == "text" else _as_json(each)
            for name, each in value._asdict().items()
        }
    if isinstance(value, Mapping):
        return {str(name)[:MAX_TEXT]: _as_json(each) for name, each in list(value.items())[:MAX_TEXT]}
    if isinstance(value, list | tuple | set | frozenset):
        return [_as_json(each) for each in list(value)[:MAX_TEXT]]
    if isinstance(value, bool | int | float) or value is None:
        return value
    return f"{len(value)} bytes" if isinstance(value, bytes) else str(value)[:MAX_TEXT]

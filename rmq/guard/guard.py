"""The guard of a port: every request passes it before its handler runs (S1, S2).

A connection remembers what was permitted until a user or a policy changes.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

from rmq.access.directory import Directory, Identity
from rmq.access.policies import Need, permits
from rmq.access.users import SUPER, User
from rmq.clock import Clock
from rmq.codes import RequestCode, ResponseCode
from rmq.errors import LOG_IN_AGAIN, Refusal
from rmq.guard import audit
from rmq.guard.logins import Logins
from rmq.guard.needs import CODE_OF, HOT, are_short, needs_of, needs_of_topic, tells_of_keys
from rmq.guard.rules import Rules, no
from rmq.model import STATE_TOPIC
from rmq.net.codec.frames import Received
from rmq.net.commands import Heartbeat, Request
from rmq.net.transport.connection import Call, Connection
from rmq.net.transport.requestlog import Lines
from rmq.net.transport.server import Handler
from rmq.requests import REQUESTS, Action

log = logging.getLogger("rmq.access")

_MOST_REMEMBERED = 10_000  # decisions of one connection
_STRANGER_S: Final = 600.0
_MOST_STRANGERS: Final = 1_000
_OF_RULES: Final = {
    *range(RequestCode.AUTH_CREATE_USER, RequestCode.AUTH_LIST_ACL + 1),
    RequestCode.SET_QUOTA,
    RequestCode.DELETE_QUOTA,
}


class Guard:
    """`screen` is called for each burst that a connection read. `random`: as of `Logins`."""

    def __init__(self, directory: Directory, rules: Rules, clock: Clock, random: Callable[[int], bytes]) -> None:
        self.directory = directory  # replaced once the store is open
        self.logins = Logins(lambda: self.directory, rules, clock, random)
        self._rules = rules
        self._clock = clock
        self._strangers: dict[tuple[str, str], float] = {}  # until when (monotonic s) they are not logged again
        self._refused_lines = {True: Lines(clock), False: Lines(clock)}  # of users, and of strangers, who shall not hide those

    # --- may they -----------------------------------------------------------------------------------------------------

    def screen(self, connection: Connection, received: list[Received]) -> list[Received]:
        """The burst, with a refusal in place of each request that its sender may not make."""
        version = self.directory.version
        permitted = connection.standing.permitted
        if connection.standing.at != version or len(permitted) > _MOST_REMEMBERED:
            connection.standing.at = version
            permitted.clear()
        for at, (thing, call_id, oneway, context, size) in enumerate(received):
            kind = type(thing)
            if kind not in CODE_OF:
                continue  # an answer to a request of ours, or already a refusal
            who = connection.standing.login if context is None else getattr(context, "who", None)
            hot = HOT.get(kind)
            key = None if hot is None else (who, kind, hot(thing))
            if key is not None and key in permitted:
                continue
            try:
                if who is None and self._rules.optional:
                    self._note_stranger(connection, kind)
                else:
                    self._check_signed(who, connection)
                    self.check(who, thing, connection.client[0])  # type: ignore[arg-type]
            except Refusal as refusal:
                self._tell_refused(thing, who, connection, call_id, refusal)
                received[at] = (Refusal(refusal.code, refusal.remark), call_id, oneway, context, size)
            else:
                if key is not None:
                    if are_short(key[2]):
                        permitted.add(key)
                elif kind is Heartbeat:
                    connection.standing.beats = self._as_of_now(who)
        return received

    def _tell_refused(
        self, request: object, who: Identity | None, connection: Connection, call_id: int, refusal: Refusal
    ) -> None:
        """For administrators; who repeats himself does not fill the log."""
        lines = self._refused_lines[who is not None]
        if type(request) in audit.ADMINISTRATIVE and lines.admit():
            name = "" if who is None else who.user
            audit.refused(request, name, connection, call_id, refusal.remark, lines.left_out())

    def _note_stranger(self, connection: Connection, kind: type[Any]) -> None:
        """Logs who does not log in yet, for operators; each sender only now and then."""
        if connection.standing.unproven or REQUESTS[CODE_OF[kind]].action in (Action.ANY, Action.CLIENT):
            return
        connection.standing.unproven = True
        now, stranger = self._clock.monotonic(), (connection.client[0], connection.client_id)
        if now >= self._strangers.get(stranger, now):
            if len(self._strangers) >= _MOST_STRANGERS:
                self._strangers.clear()
            self._strangers[stranger] = now + _STRANGER_S
            log.warning("%s at %s does not log in (login_optional)", connection.client_id or "a client", connection.client[0])

    def _check_signed(self, who: Identity | None, connection: Connection) -> None:
        """Whoever can read a signed request could send it again. Raises Refusal (NO_PERMISSION) if the rules require TLS."""
        signed = who is not None and not who.stored
        if signed and self._rules.signed_in_tls and not (connection.encrypted or connection.is_forwarded):
            raise no("signed requests are taken inside TLS only (signed_in_tls_only): connect with TLS (-Dtls.enable=true)")

    def check(self, who: Identity | None, request: Request, source: str) -> None:
        """Raises Refusal (NO_PERMISSION)."""
        if tells_of_keys(request) and not (who is not None and who.node):
            raise no(f"{STATE_TOPIC} holds the keys of passwords: nobody reads it")
        code = CODE_OF[type(request)]
        action = REQUESTS[code].action
        if action in (Action.ANY, Action.CLIENT) or code in self._rules.no_login:
            return
        if not self.directory.ready and action is not Action.NODE:
            return  # only nodes are served yet; other requests go to the leader, which checks them
        if who is None:
            raise no("this broker serves users only: log in (rmq: RMQ_USER and RMQ_PASSWORD_FILE; RocketMQ: an AclClientRPCHook)")
        if who.node:
            return
        users = self._users(who)
        if not users:
            raise no(f"user {who.user} has another password now, or is no longer there: {LOG_IN_AGAIN}")
        users = [user for user in users if user.may_enter]
        if not users:
            raise no(f"user {who.user} is disabled; an administrator can enable it (updateUser -s enable)")
        if any(user.type == SUPER for user in users) and action is not Action.NODE:
            return
        if action is Action.NODE:
            raise no("only nodes of this cluster may ask this (innerClientAuthenticationCredentials)")
        if not self._rules.policies:
            if code in _OF_RULES:
                raise no(
                    f"user {who.user} is not a super user: only those may look at users, policies and quotas, or change them"
                )
            return
        if code not in self._rules.no_policy and action is not Action.KNOWN:
            for need in needs_of(request, self._rules.cluster):
                self._check_need(who, need, source)

    def check_topic(self, call: Call, topic: str, action: Action, group: str) -> None:
        """For a request that names a message by its place. `topic`: of that message; `group`: for which it is read, "" for none.
        Raises Refusal (NO_PERMISSION): the sender may not do that there."""
        who = who_asks(call)
        if who is None:
            return  # nobody has to log in for this request
        for need in needs_of_topic(topic, action, group, self._rules.cluster):
            self._check_need(who, need, call.connection.client[0])

    def may_publish(self, connection: Connection, topic: str) -> bool:
        """Whether the user who said the heartbeats of this connection may send to the topic."""
        who = connection.standing.login or connection.standing.beats
        if who is None:
            return self._rules.optional
        if not who.node and not any(user.may_enter for user in self._users(who)):
            return False
        return self.may(who, Need("Topic", topic, Action.PUB.value), connection.client[0])

    def for_nodes(self, handler: Handler) -> Handler:
        """The same handler, for nodes only: it is asked while the users are not known."""

        def serve(request: Any, call: Call) -> Any:
            who = who_asks(call)
            if not self._rules.optional and (who is None or not who.node):
                about = "this node does not know its users yet: try again later, or look at its health port"
                raise Refusal(ResponseCode.SYSTEM_BUSY, about)
            return handler(request, call)

        return serve

    def _check_need(self, who: Identity, need: Need, source: str) -> None:
        if self.may(who, need, source):
            return
        if not self.directory.is_current:
            raise Refusal(ResponseCode.SYSTEM_BUSY, "this node has not heard of all policies yet: try again later")
        if not self.may(who, need, source):  # it has heard of all by now
            what = " or ".join(need.actions)
            raise no(f"User:{who.user} has no permission to access {need.kind}:{need.name} from {source}, {what} is needed")

    def may(self, who: Identity, need: Need, source: str) -> bool:
        """Whether the policies allow it, or are not in use."""
        users = self._users(who)
        if who.node or not self._rules.policies or any(user.type == SUPER for user in users):
            return True
        # Who may do one of several things sees it, also where another one is denied.
        needs = [need._replace(actions=(each,)) for each in need.actions] if need.actions == Action.SEE.value else [need]
        return bool(users) and any(permits(acl, each, source) for acl in self.directory.acls(who.user) for each in needs)

    def _users(self, who: Identity) -> list[User]:
        """Who has logged in is no user of that name who came later, or has another password by now."""
        return [user for user in self.directory.users(who.user) if who.stored in (b"", user.keys.stored)]

    def _as_of_now(self, who: Identity | None) -> Identity | None:
        """Who has signed, as long as the password is that of now."""
        users = self.directory.users(who.user) if who is not None and not who.node and not who.stored else []
        return who._replace(stored=users[0].keys.stored) if who is not None and users else who

    # --- lists --------------------------------------------------------------------------------------------------------

    def listing(self, handler: Handler, cut: Callable[[Any, Callable[[str, str], bool]], Any]) -> Handler:
        """The same handler; `cut(answer, sees)` leaves out what the sender may not see, by `sees(kind, name)`."""

        async def cut_down(request: Any, call: Call) -> Any:
            answer = handler(request, call)
            if isinstance(answer, Awaitable):
                answer = await answer
            who = who_asks(call)
            if who is None:
                return answer
            source = call.connection.client[0]
            return cut(answer, lambda kind, name: self.may(who, Need(kind, name, Action.SEE.value), source))

        return cut_down


def who_asks(call: Call) -> Identity | None:
    """Who sent the request; None if they have not proven it."""
    found: Identity | None = call.connection.standing.login if call.context is None else getattr(call.context, "who", None)
    return found

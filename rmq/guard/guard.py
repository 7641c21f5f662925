"""The guard of a port: every request passes it before its handler runs (S1, S2).

Native clients log in once per connection (SCRAM-SHA-256); RocketMQ's clients sign each request. A connection remembers what was
permitted until a user or a policy changes.
"""

import base64
import hmac
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from rmq import scram
from rmq.access.directory import Directory, Identity, Secrets
from rmq.access.policies import Need, permits
from rmq.access.sealing import ACCESS_KEY, SIGNATURE, is_signed
from rmq.access.throttle import Throttle, source_of
from rmq.access.users import SUPER, User
from rmq.clock import Clock
from rmq.codes import RequestCode, ResponseCode
from rmq.errors import LOG_IN_AGAIN, BadBytes, Refusal
from rmq.guard import audit
from rmq.guard.needs import CODE_OF, HOT, needs_of, needs_of_topic, tells_of_keys
from rmq.model import STATE_TOPIC
from rmq.net.codec.frames import Received
from rmq.net.commands import BeginLogin, FinishLogin, Heartbeat, LoginAnswer, Request
from rmq.net.remoting.headers import Ext, Header
from rmq.net.remoting.signed import Source
from rmq.net.transport.connection import Call, Connection
from rmq.net.transport.requestlog import Lines
from rmq.net.transport.server import Handler
from rmq.requests import REQUESTS, Action
from rmq.scram import Credentials

log = logging.getLogger("rmq.access")

_MOST_REMEMBERED = 10_000  # decisions of one connection
_STRANGER_S: Final = 600.0
_MOST_STRANGERS: Final = 1_000
_UNIQUE_KEY_QUERY, _OLD = "_UNIQUE_KEY_QUERY", 399
_OF_RULES: Final = {
    *range(RequestCode.AUTH_CREATE_USER, RequestCode.AUTH_LIST_ACL + 1),
    RequestCode.SET_QUOTA,
    RequestCode.DELETE_QUOTA,
}


@dataclass(frozen=True, slots=True)
class Rules:
    """`nodes`: the secrets of the cluster's nodes; the first is in use. `no_login`, `no_policy`: white lists of request codes.
    `policies`: if false, users who log in may do everything that needs no super user. `optional`: senders without a login may do
    everything. `signed_in_tls`: signatures count inside TLS only. `takes_tls`: this node's ports take TLS."""

    cluster: str
    nodes: tuple[Credentials, ...] = ()
    policies: bool = True
    no_login: frozenset[int] = frozenset()
    no_policy: frozenset[int] = frozenset()
    optional: bool = False
    signed_in_tls: bool = False
    takes_tls: bool = False


class Guard:
    """`screen` is called for each burst that a connection read, `identify` for each frame of RocketMQ's clients. `random(n)`: n
    bytes that nobody can guess."""

    def __init__(self, directory: Directory, rules: Rules, clock: Clock, random: Callable[[int], bytes]) -> None:
        self.directory = directory  # replaced once the store is open
        self._rules = rules
        self._clock = clock
        self._random = random
        self._throttle = Throttle()
        self._strangers: dict[tuple[str, str], float] = {}  # until when (monotonic s) they are not logged again
        self._failed_lines = Lines(clock)
        self._refused_lines = {True: Lines(clock), False: Lines(clock)}  # of users, and of strangers, who shall not hide those
        self._secrets = Secrets([each.secret for each in rules.nodes])
        self._salt = random(16)
        self._pepper = rules.nodes[0].secret.encode() if rules.nodes else random(32)
        self._node_keys: dict[str, scram.Keys] = {}

    @property
    def handlers(self) -> Mapping[type[Any], Handler]:
        return {BeginLogin: self.begin, FinishLogin: self.finish}

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
            raise _no("signed requests are taken inside TLS only (signed_in_tls_only): connect with TLS (-Dtls.enable=true)")

    def check(self, who: Identity | None, request: Request, source: str) -> None:
        """Raises Refusal (NO_PERMISSION)."""
        if tells_of_keys(request) and not (who is not None and who.node):
            raise _no(f"{STATE_TOPIC} holds the keys of passwords: nobody reads it")
        code = CODE_OF[type(request)]
        action = REQUESTS[code].action
        if action in (Action.ANY, Action.CLIENT) or code in self._rules.no_login:
            return
        if not self.directory.ready and action is not Action.NODE:
            return  # only nodes are served yet; other requests go to the leader, which checks them
        if who is None:
            raise _no(
                "this broker serves users only: log in (rmq: RMQ_USER and RMQ_PASSWORD_FILE; RocketMQ: an AclClientRPCHook)"
            )
        if who.node:
            return
        users = self._users(who)
        if not users:
            raise _no(f"user {who.user} has another password now, or is no longer there: {LOG_IN_AGAIN}")
        users = [user for user in users if user.may_enter]
        if not users:
            raise _no(f"user {who.user} is disabled; an administrator can enable it (updateUser -s enable)")
        if any(user.type == SUPER for user in users) and action is not Action.NODE:
            return
        if action is Action.NODE:
            raise _no("only nodes of this cluster may ask this (innerClientAuthenticationCredentials)")
        if not self._rules.policies:
            if code in _OF_RULES:
                raise _no(
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
        if not self.may(who, need, source):
            what = " or ".join(need.actions)
            raise _no(f"User:{who.user} has no permission to access {need.kind}:{need.name} from {source}, {what} is needed")

    def may(self, who: Identity, need: Need, source: str) -> bool:
        """Whether the policies allow it, or are not in use."""
        users = self._users(who)
        if who.node or not self._rules.policies or any(user.type == SUPER for user in users):
            return True
        return bool(users) and any(permits(acl, need, source) for acl in self.directory.acls(who.user))

    def _users(self, who: Identity) -> list[User]:
        """Who has logged in is no user of that name who came later, or has another password by now."""
        return [user for user in self.directory.users(who.user) if who.stored in (b"", user.keys.stored)]

    def _as_of_now(self, who: Identity | None) -> Identity | None:
        """Who has signed, as long as the password is that of now."""
        users = self.directory.users(who.user) if who is not None and not who.node and not who.stored else []
        return who._replace(stored=users[0].keys.stored) if who is not None and users else who

    # --- who are they -------------------------------------------------------------------------------------------------

    def identify(self, header: Header, body: bytes, source: Source) -> Identity | None:
        """Who signed the request; None if nobody did. Raises Refusal (NO_PERMISSION) if the signature is wrong. Who guesses wrong
        on other connections from there does not disturb one that has proven its user."""
        ext = header.ext
        name = ext.get(ACCESS_KEY)
        if name is None:
            return None
        if header.version <= _OLD and header.code == RequestCode.QUERY_MESSAGE:  # clients sign before they add it
            ext = {field: value for field, value in ext.items() if field != _UNIQUE_KEY_QUERY}
        guess = (source_of(source.host), name)
        wait_s = self._throttle.wait_s(guess, self._clock.monotonic())
        if wait_s and source.proven != name:
            raise _again(wait_s)
        who = self._signer(name, ext, body)
        if who is None and not self.directory.ready:
            return None
        if who is None:
            self._check_current(name, known=bool(self.directory.users(name)))
            source.proven = ""
            self._failed(guess)
            raise _no(f"the signature is not that of user {name}: wrong secret, unknown user, or a changed request")
        self._proved(source, name)
        return who

    def _proved(self, source: Source, name: str) -> None:
        source.proven = name
        if self._throttle.watches:
            self._throttle.succeeded((source_of(source.host), name), self._clock.monotonic())

    def recognise(self, name: str, signed: bytes, signature: bytes, source: Source) -> Identity | None:
        """A fast `identify` for users on connections that have proven it; None if `identify` has to look."""
        if source.proven != name:
            return None
        for user in self.directory.users(name):
            found = self._secrets.signer(user)
            if found is not None and hmac.compare_digest(found[0].signature(signed), signature):
                return found[1]
        return None

    def _signer(self, name: str, ext: Ext, body: bytes) -> Identity | None:
        if SIGNATURE not in ext:
            return None
        if any(each.name == name and is_signed(each.secret, ext, body) for each in self._rules.nodes):
            return Identity(name, node=True)
        for user in self.directory.users(name):
            secret = self._secrets.of(user)
            if secret is not None and is_signed(secret, ext, body):
                return Identity(name)
        return None

    def begin(self, request: BeginLogin, call: Call) -> LoginAnswer:
        """The server's first message. An unknown user gets one, too, so that nobody learns which users exist."""
        connection = call.connection
        try:
            greeting = scram.read_first(request.message)
        except BadBytes as error:
            raise Refusal(ResponseCode.INVALID_PARAMETER, str(error)) from None
        nonce = base64.b64encode(self._random(18)).decode()
        bound = connection.end_point
        if greeting.binds and not bound:
            raise Refusal(ResponseCode.INVALID_PARAMETER, f"{scram.BINDING}: this connection is not inside TLS here")
        keys = self._keys_of(greeting.user)
        connection.standing.logging_in = server = scram.Server(greeting, keys, nonce, bound, self._rules.takes_tls)
        return LoginAnswer(server.first)

    def finish(self, request: FinishLogin, call: Call) -> LoginAnswer:
        """The server's last message: from here on the connection belongs to that user."""
        connection = call.connection
        server, connection.standing.logging_in = connection.standing.logging_in, None
        if not isinstance(server, scram.Server):
            raise Refusal(ResponseCode.INVALID_PARAMETER, "a login begins with BEGIN_LOGIN")
        guess = (source_of(connection.client[0]), server.user)
        wait_s = self._throttle.wait_s(guess, self._clock.monotonic())
        if wait_s:
            raise _again(wait_s)
        message = server.check(request.message)
        if message is None:
            self._check_current(server.user, known=bool(server.stored))
            self._failed(guess)
            raise _no(f"user {server.user} cannot log in: wrong password or unknown user")
        self._throttle.succeeded(guess, self._clock.monotonic())
        node = any(each.name == server.user for each in self._rules.nodes)
        connection.standing.login = Identity(server.user, node, server.stored)
        connection.standing.permitted.clear()
        return LoginAnswer(message)

    def _keys_of(self, name: str) -> scram.Keys:
        for each in self._rules.nodes:
            if each.name == name:
                if name not in self._node_keys:
                    self._node_keys[name] = scram.keys_of(each.secret, self._salt)
                return self._node_keys[name]
        if not self.directory.ready:
            raise Refusal(ResponseCode.SYSTEM_BUSY, "this node is starting: try again later")
        found: list[User] = self.directory.users(name)
        if found:
            return found[0].keys
        salt = hmac.digest(self._pepper, name.encode(), "sha256")[:16]  # the same at all nodes, as that of a real user
        return scram.Keys(salt, scram.ITERATIONS, b"", b"")

    def _check_current(self, name: str, known: bool) -> None:
        """Raises Refusal (SYSTEM_BUSY) if this node may not have heard of the user when it looked. `known`: it had."""
        if not known and (self.directory.users(name) or not self.directory.is_current):
            raise Refusal(ResponseCode.SYSTEM_BUSY, "this node has not heard of all users yet: try again later")

    def _failed(self, guess: tuple[str, str]) -> None:
        exists = bool(self.directory.users(guess[1])) or any(each.name == guess[1] for each in self._rules.nodes)
        self._throttle.failed(guess, self._clock.monotonic(), exists)
        if self._failed_lines.admit():
            log.warning("a login failed", extra={"user": guess[1][:64], "source": guess[0], **self._failed_lines.left_out()})

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


def _no(about: str) -> Refusal:
    return Refusal(ResponseCode.NO_PERMISSION, about)


def _again(wait_s: float) -> Refusal:
    return _no(f"too many failed logins of this user from there: try again in {wait_s:.1f} s")

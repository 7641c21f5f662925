"""Who a peer is: native clients log in once per connection (SCRAM-SHA-256), or a proxy does with what its client signed;
RocketMQ's clients sign each request (S1)."""

import base64
import hmac
import logging
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from rmq import scram
from rmq.access.directory import Directory, Identity, Secrets
from rmq.access.sealing import ACCESS_KEY, SIGNATURE, is_signed
from rmq.access.users import User
from rmq.clock import Clock
from rmq.codes import RequestCode, ResponseCode
from rmq.errors import BadBytes, Refusal
from rmq.guard.rules import Rules, no
from rmq.net.commands import BeginLogin, FinishLogin, LoginAnswer, SignedLogin
from rmq.net.remoting.headers import Ext, Header
from rmq.net.remoting.signed import Source
from rmq.net.transport.connection import Call
from rmq.net.transport.requestlog import Lines
from rmq.net.transport.server import Handler
from rmq.throttle import Throttle, source_of

log = logging.getLogger("rmq.access")

_TIME: Final = re.compile(r"\d{4}-?\d\d-?\d\dT[\d:.]{6,18}(Z|[+-]\d\d:?\d\d)")  # no signed request looks like it
_MOST_CHARACTERS: Final = 255  # of a name: those that failed are kept for a while
_UNIQUE_KEY_QUERY, _OLD = "_UNIQUE_KEY_QUERY", 399


class Logins:
    """`identify` is called for each frame of RocketMQ's clients. `directory()`: of now. `random(n)`: n bytes nobody can guess."""

    def __init__(self, directory: Callable[[], Directory], rules: Rules, clock: Clock, random: Callable[[int], bytes]) -> None:
        self._directory = directory
        self._rules = rules
        self._clock = clock
        self._random = random
        self._throttle = Throttle()
        self._failed_lines = Lines(clock)
        self._secrets = Secrets([each.secret for each in rules.nodes])
        self._salt = random(16)
        self._pepper = rules.nodes[0].secret.encode() if rules.nodes else random(32)
        self._node_keys: dict[str, scram.Keys] = {}

    @property
    def handlers(self) -> Mapping[type[Any], Handler]:
        return {BeginLogin: self.begin, FinishLogin: self.finish, SignedLogin: self.signed}

    def _users(self, name: str) -> list[User]:
        return self._directory().users(name)

    def identify(self, header: Header, body: bytes, source: Source) -> Identity | None:
        """Who signed the request; None if nobody did. Raises Refusal (NO_PERMISSION) if the signature is wrong. Who guesses wrong
        on other connections from there does not disturb one that has proven its user."""
        ext = header.ext
        name = ext.get(ACCESS_KEY)
        if name is None:
            return None
        self._check_length(name)
        if header.version <= _OLD and header.code == RequestCode.QUERY_MESSAGE:  # clients sign before they add it
            ext = {field: value for field, value in ext.items() if field != _UNIQUE_KEY_QUERY}
        guess = (source_of(source.host), name)
        wait_s = self._throttle.wait_s(guess, self._clock.monotonic())
        if wait_s and source.proven != name:
            raise _again(wait_s)
        who = self._signer(name, ext, body)
        if who is None and not self._directory().ready:
            return None
        if who is None:
            self._check_current(guess, self._keys_of(name).stored)
            source.proven = ""
            self._failed(guess)
            raise no(f"the signature is not that of user {name}: wrong secret, unknown user, or a changed request")
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
        for user in self._users(name):
            found = self._secrets.signer(user)
            if found is not None and hmac.compare_digest(found[0].signature(signed), signature):
                return found[1]
        return None

    def _signer(self, name: str, ext: Ext, body: bytes) -> Identity | None:
        if SIGNATURE not in ext:
            return None
        if any(each.name == name and is_signed(each.secret, ext, body) for each in self._rules.nodes):
            return Identity(name, node=True)
        for user in self._users(name):
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
        self._check_length(greeting.user)
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
            self._check_current(guess, server.stored)
            self._failed(guess)
            raise no(f"user {server.user} cannot log in: wrong password or unknown user")
        self._throttle.succeeded(guess, self._clock.monotonic())
        node = any(each.name == server.user for each in self._rules.nodes)
        connection.standing.login = Identity(server.user, node, server.stored)
        connection.standing.permitted.clear()
        return LoginAnswer(message)

    def signed(self, request: SignedLogin, call: Call) -> None:
        """The connection belongs to whoever signed that time. A wrong signature for the user who has it already changes nothing:
        it is one of many that a proxy hears, and slows down those who guess."""
        connection, standing = call.connection, call.connection.standing
        self._check_length(request.user)
        if not _TIME.fullmatch(request.time):
            raise Refusal(ResponseCode.INVALID_PARAMETER, "no time was signed: give it as 20261231T235959Z, or by RFC 3339")
        if self._rules.signed_in_tls and not connection.encrypted:
            raise no("signatures are taken inside TLS only (signed_in_tls_only): dial with TLS (RMQ_TLS_CA)")
        if not self._directory().ready:
            raise _starting()
        name, guess = request.user, (source_of(connection.client[0]), request.user)
        has_it = standing.login is not None and standing.login.user == name
        if not has_it and (wait_s := self._throttle.wait_s(guess, self._clock.monotonic())):
            raise _again(wait_s)
        said = base64.b64encode(request.signature)
        for user in self._users(name):
            found = self._secrets.signer(user)
            if found is not None and hmac.compare_digest(found[0].signature(request.time.encode()), said):
                who = Identity(name, stored=user.keys.stored)
                if standing.login != who:
                    standing.login = who
                    standing.permitted.clear()
                self._throttle.succeeded(guess, self._clock.monotonic())
                return
        self._check_current(guess, self._keys_of(name).stored)
        if not has_it:
            self._failed(guess)
        raise no(f"the signature is not that of user {name}: wrong secret or unknown user")

    def _check_length(self, name: str) -> None:
        """Raises Refusal (NO_PERMISSION) for a name that nobody has."""
        if len(name) > _MOST_CHARACTERS and all(each.name != name for each in self._rules.nodes):
            raise no(f"no user has a name of {len(name)} characters")

    def _keys_of(self, name: str) -> scram.Keys:
        for each in self._rules.nodes:
            if each.name == name:
                if name not in self._node_keys:
                    self._node_keys[name] = scram.keys_of(each.secret, self._salt)
                return self._node_keys[name]
        if not self._directory().ready:
            raise _starting()
        found: list[User] = self._users(name)
        if found:
            return found[0].keys
        salt = hmac.digest(self._pepper, name.encode(), "sha256")[:16]  # the same at all nodes, as that of a real user
        return scram.Keys(salt, scram.ITERATIONS, b"", b"")

    def _check_current(self, guess: tuple[str, str], looked_at: bytes) -> None:
        """Raises Refusal (SYSTEM_BUSY) if this node may not have heard of the user, or of another password, when it looked.
        `looked_at`: the stored keys; b"" if there was no such user."""
        is_current = self._directory().is_current  # it may hear of all by being asked
        if is_current and self._keys_of(guess[1]).stored == looked_at:
            return
        if looked_at and not is_current:
            self._failed(guess)  # nobody guesses faster at a member that is cut off
        raise Refusal(ResponseCode.SYSTEM_BUSY, "this node has not heard of all users yet: try again later")

    def _failed(self, guess: tuple[str, str]) -> None:
        exists = bool(self._users(guess[1])) or any(each.name == guess[1] for each in self._rules.nodes)
        self._throttle.failed(guess, self._clock.monotonic(), exists)
        if self._failed_lines.admit():
            log.warning("a login failed", extra={"user": guess[1][:64], "source": guess[0], **self._failed_lines.left_out()})


def _starting() -> Refusal:
    return Refusal(ResponseCode.SYSTEM_BUSY, "this node is starting: try again later")


def _again(wait_s: float) -> Refusal:
    return no(f"too many failed logins of this user from there: try again in {wait_s:.1f} s")

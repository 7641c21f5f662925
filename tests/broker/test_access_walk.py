"""The table of rights, walked at every port of a broker and a nameserver, in both protocols."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest

from rmq.codes import ResponseCode
from rmq.errors import Refusal
from rmq.net.commands import CODES, Send, UpdateUser, UserInfo
from rmq.net.commands.access import PolicyEntry
from rmq.net.commands.replies import SendReply
from rmq.net.remoting.fields import write as write_fields
from rmq.requests import REQUESTS, Action, Resource
from rmq.testing import LocalBroker
from tests.access.examples import GROUP, TOPIC, example
from tests.broker.support import Peer
from tests.broker.test_access import SENT, SETTINGS, Signer, login, make_user, nameserver_permits
from tests.net.java_peer import BODIES

SWITCHED_OFF = "recall"  # for everybody, which is no matter of rights
FREE = (Action.ANY, Action.CLIENT)
DENIED = [PolicyEntry(name, ["All"], [], "Deny") for name in ("Topic:t*", f"Group:{GROUP}", "Cluster:*")]
POLICIES = {
    "nothing": [],
    "everything": [PolicyEntry("*", ["All"])],
    "elsewhere": [PolicyEntry("*", ["All"], ["10.0.0.0/8", "192.168.1.1"])],
    "denied": [PolicyEntry("*", ["All"]), *DENIED],
    "off": [PolicyEntry("*", ["All"])],
    "topics": [PolicyEntry("Topic:*", ["All"])],  # half of what many requests need
    "victim": [PolicyEntry("*", ["All"])],  # whose password is guessed
}
USERS = ["", *POLICIES, "root", "wrong"]
Ask = Callable[[type[Any]], Coroutine[Any, Any, bool]]


def expected(kind: type[Any], user: str) -> bool:
    """Whether that user is served."""
    action, resource, _ = REQUESTS[CODES[kind]]
    if action in FREE:
        return True
    if user in ("", "wrong", "off") or action is Action.NODE:
        return False
    if user == "topics" and resource is Resource.TOPIC:
        return True
    return action is Action.KNOWN or user in ("everything", "victim", "root") or (resource is Resource.NONE)


@pytest.fixture
async def local() -> AsyncIterator[LocalBroker]:
    async with LocalBroker(**SETTINGS) as broker:
        root = await login(broker, "root", "root-secret")
        for name, entries in POLICIES.items():
            await make_user(root, name, *entries)
        await root.ask(UpdateUser("off", UserInfo(user_status="disable")))
        await root.close()
        await broker.clock.advance_until(lambda: nameserver_permits(broker, "off"))
        await broker.clock.advance(1)
        yield broker


async def native(address: str, local: LocalBroker, user: str) -> tuple[Ask, Callable[[], Any]]:
    peer: Peer
    if user == "wrong":
        with pytest.raises(Refusal, match="wrong password"):
            await login(local, "victim", "wrong", address)
        peer = await login(local, "", "", address)
    else:
        peer = await login(local, user, f"{user}-secret", address)

    async def ask(kind: type[Any]) -> bool:
        try:
            await peer.channel.request(example(kind), 5.0)
        except Refusal as refusal:
            return refusal.code != ResponseCode.NO_PERMISSION or SWITCHED_OFF in refusal.remark
        return True

    return ask, peer.close


async def remoting(address: str, _local: LocalBroker, user: str) -> tuple[Ask, Callable[[], Any]]:
    name, secret = ("victim", "wrong") if user == "wrong" else (user, f"{user}-secret")
    signer = Signer(address, name, secret)

    async def ask(kind: type[Any]) -> bool:
        request = example(kind)
        body = BODIES[kind](request) if kind in BODIES else b""
        ext, body = ({**SENT, "b": TOPIC}, b"body") if kind in (Send, SendReply) else (write_fields(request), body)
        await asyncio.to_thread(signer.write, int(CODES[kind]), ext, body)
        code, remark, _ = await asyncio.to_thread(signer.read)
        return code != ResponseCode.NO_PERMISSION or SWITCHED_OFF in remark

    async def close() -> None:
        signer.close()

    return ask, close


@pytest.mark.parametrize("protocol", [native, remoting])
@pytest.mark.parametrize("port", ["broker", "nameserver"])
async def test_every_request_at_every_port(local: LocalBroker, protocol: Any, port: str) -> None:
    """S1, S2: without login, with a wrong secret, of a disabled user, without the right, with it, from elsewhere, and denied by a
    more specific rule."""
    address = local.address if port == "broker" else local.nameserver
    kinds = [kind for kind, code in CODES.items() if protocol is native or code not in range(60_000, 70_000)]
    if protocol is remoting and port == "nameserver":
        kinds = [kind for kind in kinds if kind not in (Send, SendReply)]  # which it cannot even read
    wrong = []
    for user in USERS:
        ask, close = await protocol(address, local, user)
        for kind in kinds:
            if REQUESTS[CODES[kind]].action not in FREE and await ask(kind) != expected(kind, user):
                wrong.append((kind.__name__, user))
        await close()
    assert not wrong

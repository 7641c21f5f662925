"""The same random users, policies and gRPC requests at our proxy (`--signed`) and at that of Apache RocketMQ 5.5.0 with users,
each before a broker of its own make: who is served, who is unknown, and who may not.

    python -m tests.interop.twinusers --seeds 1:40

Needs Maven and a JDK. As `tests.interop.twindoors`, each kind of difference is shown once. What differs on purpose is not
compared (docs/security.md): rights to what names a message by its place, rights to begin a stream.
"""

import asyncio
import base64
import json
import sys
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple

from rmq.grpc.schema import v2
from rmq.testing import LocalBroker
from tests.access.record_policies import Asker
from tests.broker.test_access import NODE, ROOT, SETTINGS, nameserver_permits
from tests.door.caller import Caller, doors, ms, publishing, signed, subscribing
from tests.interop.twins import first_of_each, main, rocketmq
from tests.interop.versions import proxy

ASKED: Final = 12  # of each seed
_BY_RIGHTS: Final = {"SendMessage", "ReceiveMessage", "AckMessage"}
_AUTH: Final = "org.apache.rocketmq.auth"
BROKER: Final = {
    "authenticationEnabled": True,
    "authenticationProvider": f"{_AUTH}.authentication.provider.DefaultAuthenticationProvider",
    "authenticationMetadataProvider": f"{_AUTH}.authentication.provider.LocalAuthenticationMetadataProvider",
    "authorizationEnabled": True,
    "authorizationProvider": f"{_AUTH}.authorization.provider.DefaultAuthorizationProvider",
    "authorizationMetadataProvider": f"{_AUTH}.authorization.provider.LocalAuthorizationMetadataProvider",
    "initAuthenticationUser": json.dumps({"username": ROOT.name, "password": ROOT.secret}),
    "innerClientAuthenticationCredentials": json.dumps({"accessKey": NODE.name, "secretKey": NODE.secret}),
}
_LOOKS: Final = "org.apache.rocketmq.proxy.auth.Proxy"
PROXY: Final = {
    **BROKER,
    "authenticationMetadataProvider": f"{_LOOKS}AuthenticationMetadataProvider",
    "authorizationMetadataProvider": f"{_LOOKS}AuthorizationMetadataProvider",
    "enableAclRpcHookForClusterMode": True,  # it signs what it asks itself
}
_METADATA: Final = [("x-mq-language", "JAVA"), ("x-mq-client-version", "5.0.7")]  # RocketMQ's proxy asks for them
_TIMES: Final = "20200101T000000Z", "20261128T120000Z", "2026-11-28T13:00:00.123+01:00"
Headers = list[tuple[str, str]]


class Side(NamedTuple):
    """The port of a proxy, its broker, and what its proxy takes for a receipt and for a transaction."""

    port: int
    broker: str
    receipt: str
    transaction: str


class History:
    """Two topics, two groups, and two users: one who may do what chance gave him, and one who is disabled."""

    def __init__(self, seed: int, sides: tuple[Side, Side]) -> None:
        self._chance, self._sides, self._seed = Random(seed), sides, seed
        self._topics, self._groups = [f"T{seed}", f"U{seed}"], [f"g{seed}", f"h{seed}"]
        self.user, self._off = f"u{seed}", f"off{seed}"
        self.entries = [self._entry() for _ in range(self._chance.randrange(1, 6))]
        self.different: dict[str, str] = {}  # by kind: the request and both answers

    def make(self, side: Side) -> None:
        """As an administrator does."""
        root = Asker(side.broker, ROOT.name, ROOT.secret)
        queues = {"defaultTopic": "TBW102", "readQueueNums": "1", "writeQueueNums": "1", "perm": "6"}
        for topic in self._topics:
            _made(root.ask(17, {"topic": topic, **queues, "topicFilterType": "SINGLE_TAG", "order": "false"}))
        for group in self._groups:
            _made(root.ask(200, {}, json.dumps({"groupName": group}).encode()))
        policies = [{"policyType": "Custom", "entries": self.entries}]
        for user, status in ((self._off, "disable"), (self.user, "enable")):
            info = {"username": user, "password": "secret", "userType": "Normal", "userStatus": status}
            _made(root.ask(3001, {"username": user}, json.dumps(info).encode()))
            subject = f"User:{user}"
            _made(root.ask(3006, {"subject": subject}, json.dumps({"subject": subject, "policies": policies}).encode()))
            if status == "disable":  # who is made is enabled
                _made(root.ask(3002, {"username": user}, json.dumps({"username": user, "userStatus": status}).encode()))

    def _entry(self) -> dict[str, Any]:
        one = self._chance.choice
        topic, group = one(self._topics), one(self._groups)
        names = [
            f"Topic:{topic}",
            f"Topic:{topic}",
            f"Group:{group}",
            f"Group:{group}",
            f"Topic:{topic[0]}*",
            "Topic:*",
            "Group:*",
            "*",
        ]
        found = {"resource": one(names), "actions": one([["Pub"], ["Sub"], ["Pub", "Sub"], ["All"], ["Get"]])}
        found["decision"] = one(["Allow", "Allow", "Allow", "Deny"])
        sources = one([[], [], ["127.0.0.1"], ["127.0.0.0/8"], ["10.0.0.0/8"]])
        return found | ({"sourceIps": sources} if sources else {})

    async def run(self) -> None:
        for number in range(ASKED):
            signs, headers = self._headers() if number else ("rightly", signed(self.user, "secret"))
            name = self._chance.choice([*_ASKED])
            topic, group = self._chance.choice(self._topics), self._chance.choice([*self._groups, "none"])
            answers = []
            for side in self._sides:
                async with Caller(side.port, f"c{self._seed}-{number}") as caller:
                    caller.metadata += [*_METADATA, *headers]
                    answers.append(await _ASKED[name](caller, side, topic, group))
            self._compare(f"{name} of who signs {signs}", f"{topic} {group} with {self.entries}", *answers)

    def _headers(self) -> tuple[str, Headers]:
        one = self._chance.choice
        time = one(_TIMES)
        good = signed(self.user, "secret", time)
        said = good[1][1]
        kinds: dict[str, Headers] = {
            f"rightly at {time}": good,
            "as root": signed(ROOT.name, ROOT.secret, time),
            "wrongly": signed(self.user, "wrong", time),
            "as nobody": signed(f"nobody{self._seed}", "secret", time),
            "as one who is off": signed(self._off, "secret", time),
            "nothing": [],
            "without a time": good[1:],
            "with a time alone": good[:1],
            "another time": [("x-mq-date-time", "20261128T120001Z"), good[1]],
            "with a region": [good[0], ("authorization", said.replace(f"={self.user},", f"={self.user}/region/RocketMQ,"))],
            "in capitals": [good[0], ("authorization", said.rpartition("=")[0] + "=" + said.rpartition("=")[2].upper())],
            "by another scheme": [good[0], ("authorization", "Basic dTpz")],
            "with half a signature": [good[0], ("authorization", said[:-7])],
            "without a name": [good[0], ("authorization", said.replace(f"={self.user},", "=,"))],
        }
        kind = one([f"rightly at {time}"] * 12 + [*kinds])
        return kind, kinds[kind]

    def _compare(self, what: str, asked: object, theirs: Any, ours: Any) -> None:
        verdicts = [_verdict(status, what.partition(" ")[0] in _BY_RIGHTS) for status in (theirs, ours)]
        if len({*verdicts}) == 2:
            text = f"seed {self._seed}: {what}: {asked}\n  RocketMQ {theirs}\n  ours     {ours}"
            self.different.setdefault(f"{what}: {verdicts}", text)


def _made(answer: tuple[int, str]) -> None:
    assert answer[0] == 0, answer


def _verdict(status: Any, by_rights: bool) -> str:
    """RocketMQ says UNAUTHORIZED of who may not, too. Who is disabled is unknown there, and may not here."""
    if "is disabled" in status.message:
        return "disabled"
    if status.code == v2.Code.FORBIDDEN or "has no permission" in status.message:
        return "may not" if by_rights else "served"
    return "unknown" if status.code == v2.Code.UNAUTHORIZED else "served"


# --- what is asked: each gives the status of the answer

Asks = Callable[[Caller, Side, str, str], Awaitable[Any]]


def _once(name: str, fields: Callable[[Side, str, str], dict[str, Any]]) -> Asks:
    async def ask(caller: Caller, *asked: Any) -> Any:
        return (await caller.ask(name, **fields(*asked))).status

    return ask


def _streams(settings: Callable[[str, str], Any]) -> Asks:
    async def ask(caller: Caller, _: Side, topic: str, group: str) -> Any:
        async with caller.telemetry(settings(topic, group)) as (_, answer):
            return answer.status

    return ask


async def _receive(caller: Caller, _: Side, topic: str, group: str) -> Any:
    parts = [part async for part in caller.receiving(group, topic, long_polling_timeout=ms(5000))]
    return parts[0].status


def _message(topic: str) -> Any:
    properties = v2.SystemProperties(message_id="0" * 32, message_type=v2.MessageType.NORMAL, born_host="host")
    return v2.Message(topic=v2.Resource(name=topic), body=b"x", system_properties=properties)


def _of(topic: str, group: str = "") -> dict[str, Any]:
    named = {"topic": v2.Resource(name=topic)}
    return named | {"group": v2.Resource(name=group)} if group else named


_ASKED: Final[dict[str, Asks]] = {
    "SendMessage": _once("SendMessage", lambda _, topic, __: {"messages": [_message(topic)]}),
    "ReceiveMessage": _receive,
    "Telemetry of a producer": _streams(lambda topic, _: publishing(topic)),
    "Telemetry of a consumer": _streams(lambda topic, group: subscribing(group, topic)),
    "AckMessage": _once(
        "AckMessage", lambda side, *of: {**_of(*of), "entries": [v2.AckMessageEntry(message_id="0", receipt_handle=side.receipt)]}
    ),
    "ChangeInvisibleDuration": _once(
        "ChangeInvisibleDuration",
        lambda side, *of: {**_of(*of), "receipt_handle": side.receipt, "invisible_duration": ms(20_000)},
    ),
    "ForwardMessageToDeadLetterQueue": _once(
        "ForwardMessageToDeadLetterQueue", lambda side, *of: {**_of(*of), "receipt_handle": side.receipt, "message_id": "0"}
    ),
    "EndTransaction": _once(
        "EndTransaction",
        lambda side, topic, _: {
            **_of(topic),
            "message_id": "0",
            "transaction_id": side.transaction,
            "resolution": v2.TransactionResolution.COMMIT,
        },
    ),
    "RecallMessage": _once("RecallMessage", lambda side, topic, _: {**_of(topic), "recall_handle": _handle(topic)}),
}


def _handle(topic: str) -> str:
    return base64.urlsafe_b64encode(f"v1 {topic} broker-a 1800000000000 id".encode()).decode()


async def twins(folder: Path, seeds: Iterable[int]) -> dict[str, str]:
    """What is different: by kind, the first request that was."""
    async with AsyncExitStack() as running:
        nameserver, address = await running.enter_async_context(rocketmq(folder, authConfigPath=folder / "auth", **BROKER))
        grpc, _ = await running.enter_async_context(proxy(nameserver, **PROXY))
        local = await running.enter_async_context(LocalBroker(**SETTINGS))
        port = await running.enter_async_context(doors(local))
        theirs = Side(grpc, address, "0 1700000000000 60000 0 0 broker-a 0 0 0", "0")
        sides = theirs, Side(port, local.address, "0 0 1700000000000 60000 0 0 broker-a 0 0", "0 0 broker-a 0")
        histories = [History(seed, sides) for seed in seeds]
        for history in histories:
            for side in sides:
                await asyncio.to_thread(history.make, side)
            await local.clock.advance_until(lambda history=history: nameserver_permits(local, history.user))
        working: list[Awaitable[None]] = [history.run() for history in histories]
        await asyncio.gather(*working)
    return first_of_each(history.different for history in histories)


if __name__ == "__main__":
    sys.exit(main(__doc__ or "", "1:40", twins))

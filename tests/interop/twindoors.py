"""The same random gRPC requests to our proxy and to that of Apache RocketMQ 5.5.0, each before a broker of its own make, and
where they answer something else, or hand out another message.

    python -m tests.interop.twindoors --seeds 1:10

Needs Maven and a JDK. As `tests.interop.twins`, each kind of difference is shown once. Of refusals only that they are some is
compared. A receive waits 5 s for its first message at RocketMQ, so the seeds run side by side.
"""

import asyncio
import gzip
import sys
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple

from rmq.grpc.schema import v2
from rmq.model import GroupConfig
from rmq.net.commands import UpdateGroup, UpdateTopic
from rmq.testing import LocalBroker
from tests.broker.javaclient import JavaClient
from tests.door.caller import Caller, door, ms, publishing, subscribing
from tests.interop.twins import first_of_each, main, rocketmq
from tests.interop.versions import proxy

SENT: Final = 60  # of each seed
WAIT_MS: Final = 5000  # the least that RocketMQ's proxy waits
KINDS: Final = {"N": v2.MessageType.NORMAL, "F": v2.MessageType.FIFO, "P": v2.MessageType.PRIORITY}
POLICIES: Final = (
    "",
    '{"type":"CUSTOMIZED","customizedRetryPolicy":{"next":[1000,2000,7000]}}',
    '{"type":"EXPONENTIAL","exponentialRetryPolicy":{"initial":2000,"max":60000,"multiplier":3}}',
)
_OWN: Final = {"__SHARDINGKEY", "TRACE_CONTEXT"}  # RocketMQ's proxy tells them twice
_METADATA: Final = [("x-mq-language", "JAVA"), ("x-mq-client-version", "5.0.7")]  # RocketMQ's proxy asks for them


class Side(NamedTuple):
    """The port of a proxy, and its broker."""

    port: int
    broker: str

    def caller(self, client_id: str) -> Caller:
        caller = Caller(self.port, client_id)
        caller.metadata += _METADATA
        return caller


class History:
    """Random requests about topics and a group of its own."""

    def __init__(self, seed: int, sides: tuple[Side, Side]) -> None:
        self._chance, self._sides, self._seed = Random(seed), sides, seed
        self._group = f"g{seed}"
        self._perm = self._chance.choice([0, 2, 4, 6])
        self.different: dict[str, str] = {}  # by kind: the request and both answers

    async def run(self) -> None:
        times, policy = self._chance.choice([0, 1, 16]), self._chance.choice(POLICIES)
        config = GroupConfig(self._group, retry_max_times=times, retry_policy=policy)
        for side in self._sides:
            async with JavaClient.connect(side.broker) as client:
                for name, kind in {**KINDS, "R": v2.MessageType.NORMAL}.items():
                    named = next(key for key, value in vars(v2.MessageType).items() if value == kind)
                    made = UpdateTopic(
                        self._topic(name), read_queue_nums=2, write_queue_nums=2, attributes=f"+message.type={named}"
                    )
                    await client.ask(made._replace(perm=self._perm) if name == "R" else made)
                await client.ask(UpdateGroup(config))
        async with AsyncExitStack() as stack:
            pairs = [[await stack.enter_async_context(side.caller(f"{who}{self._seed}")) for side in self._sides] for who in "pc"]
            senders, consumers = pairs
            for caller in senders:
                await stack.enter_async_context(caller.telemetry(publishing(*map(self._topic, KINDS))))
            said = [await stack.enter_async_context(caller.telemetry(self._settings())) for caller in consumers]
            self._compare("settings", config, *(_settings(answer) for _, answer in said))
            for name in ("QueryRoute", "QueryAssignment"):
                await self._both(name, senders, self._where(name), _places)
            await asyncio.gather(*(self._drained(consumers, name) for name in KINDS))  # where the group begins
            for number in range(SENT):
                await self._both("SendMessage", senders, lambda _, number=number: {"messages": [self._message(number)]}, _sent)
            for name in KINDS:
                theirs, ours = await self._drained(consumers, name)
                for key in theirs | ours:
                    self._compare(f"message of {name}", key, theirs.get(key), ours.get(key))

    def _topic(self, name: str) -> str:
        return f"{name}{self._seed}"

    def _compare(self, what: str, asked: object, theirs: Any, ours: Any) -> None:
        if theirs != ours:
            text = f"seed {self._seed}: {what} {asked}\n  RocketMQ {theirs}\n  ours     {ours}"
            self.different.setdefault(f"{what}: {_kinds(theirs)} - {_kinds(ours)}", text)

    async def _both(
        self, name: str, callers: list[Caller], fields: Callable[[Caller], dict[str, Any]], seen: Callable[[Any], Any]
    ) -> None:
        before = self._chance.getstate()
        answers = []
        for caller in callers:
            self._chance.setstate(before)
            asked = fields(caller)
            answers.append(seen(await caller.ask(name, **asked)))
        self._compare(name, asked, *answers)

    async def _drained(self, consumers: list[Caller], name: str) -> list[dict[str, Any]]:
        return list(await asyncio.gather(*(self._all_of(caller, self._topic(name)) for caller in consumers)))

    async def _all_of(self, caller: Caller, topic: str) -> dict[str, Any]:
        """By id. Some ask for more than a pop gives."""
        found: dict[str, Any] = {}
        while True:
            _, messages = await caller.receive(self._group, topic, batch_size=100, long_polling_timeout=ms(WAIT_MS))
            if not messages:
                return found
            await caller.ack(self._group, topic, *messages)
            found |= {one.system_properties.message_id: _message(one) for one in messages}

    # --- what is asked

    def _settings(self) -> Any:
        return subscribing(self._group, *map(self._topic, KINDS))

    def _where(self, name: str) -> Callable[[Caller], dict[str, Any]]:
        asked = {"topic": v2.Resource(name=self._topic("R"))}
        group = {"group": v2.Resource(name=self._group)} if name == "QueryAssignment" else {}
        return lambda caller: {**asked, **group, "endpoints": caller.endpoints}

    def _message(self, number: int) -> Any:
        one = self._chance.choice
        name = one([*KINDS])
        kind = one([name, name, name, *KINDS])  # some are of another type than their topic
        system: dict[str, Any] = {
            "message_id": f"{self._seed:08X}{number:024X}",
            "message_type": KINDS[kind],
            "born_host": "host",
        }
        system |= {"tag": one(["a", "b", " a", "b ", " ", "a\t"])} if one([0, 1]) else {}
        system["keys"] = one([[], ["k"], ["k", "l"], ["two words", "l"]])
        system |= {"F": {"message_group": one("xy")}, "P": {"priority": one([0, 1, 5])}}.get(kind, {})
        system |= {"trace_context": "trace"} if one([0, 0, 1]) else {}
        system["body_encoding"] = one([v2.Encoding.IDENTITY, v2.Encoding.GZIP])
        body = one([b"x", b"y" * 300, b"" if number % 10 == 0 else b"z"])
        if system["body_encoding"] == v2.Encoding.GZIP and body:
            body = gzip.compress(body)
        own = one([{}, {"own": "1"}, {"empty": "", "own": "2"}, {"KEYS": "x"}, {"UNIQ_KEY": "x"}])
        properties = v2.SystemProperties(**system)
        return v2.Message(topic=v2.Resource(name=self._topic(name)), body=body, user_properties=own, system_properties=properties)


def _kinds(answer: Any) -> Any:
    """What a difference is remembered by."""
    return sorted(answer) if isinstance(answer, dict) else type(answer).__name__ if isinstance(answer, list) else answer


def _code(status: Any) -> str:
    return "OK" if status.code == v2.Code.OK else "refused"


def _sent(answer: Any) -> Any:
    return _code(answer.status)


def _places(answer: Any) -> Any:
    """How many queues may be read, or written: RocketMQ numbers them in another order."""
    queues = [*getattr(answer, "message_queues", []), *(one.message_queue for one in getattr(answer, "assignments", []))]
    return _code(answer.status), sorted(queue.permission for queue in queues)


def _settings(answer: Any) -> Any:
    policy, wanted = answer.settings.backoff_policy, answer.settings.subscription
    times = [one.ToMilliseconds() for one in policy.customized_backoff.next]
    growing = policy.exponential_backoff
    grows = growing.initial.ToMilliseconds(), growing.max.ToMilliseconds(), growing.multiplier
    return policy.max_attempts, times, grows, wanted.fifo, wanted.receive_batch_size, wanted.long_polling_timeout.seconds


def _message(found: Any) -> dict[str, Any]:
    system = found.system_properties
    body = gzip.decompress(found.body) if system.body_encoding == v2.Encoding.GZIP else found.body
    own = {name: value for name, value in found.user_properties.items() if name not in _OWN}
    fields = ("tag", "message_type", "born_host", "delivery_attempt", "message_group", "trace_context", "priority", "lite_topic")
    told = {name: getattr(system, name) for name in fields}
    return {"topic": found.topic.name, "body": body, "own": own, "keys": [*system.keys], **told}


async def twins(folder: Path, seeds: Iterable[int]) -> dict[str, str]:
    """What is different: by kind, the first request that was."""
    async with AsyncExitStack() as running:
        nameserver, address = await running.enter_async_context(rocketmq(folder))
        grpc, _ = await running.enter_async_context(proxy(nameserver, checks_types=True))
        local = await running.enter_async_context(LocalBroker())
        port = await running.enter_async_context(door(local))
        histories = [History(seed, (Side(grpc, address), Side(port, local.address))) for seed in seeds]
        working: list[Awaitable[None]] = [history.run() for history in histories]
        await asyncio.gather(*working)
    return first_of_each(history.different for history in histories)


if __name__ == "__main__":
    sys.exit(main(__doc__ or "", "1:10", twins))

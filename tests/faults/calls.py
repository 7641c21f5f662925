"""Every call of our client, and those of gRPC's clients at `rmq proxy`, while leaders of a group are killed: which of them raise?

    python -m tests.faults.calls --kills 20 [--seed 1]

Each call goes on beside the others, some twenty times a second. An election is crossed: only a call that must not be repeated may
end, and only as Unknown, where the leader died with it. A busy machine that elects for longer than a call waits shows here, too.
Prints how often each call came through, and each kind of error with its first text.
"""

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from itertools import count
from pathlib import Path

from rmq.client import Client, Decision, Message
from rmq.client.admin.calls import update_group
from rmq.errors import RmqError, Unknown
from rmq.grpc.schema import v2
from rmq.model import GroupConfig
from tests.door.caller import Caller, handle_of, id_of, ms, subscribing
from tests.faults.hurting import hurt, listed, until
from tests.faults.members import Members
from tests.faults.traffic import make_topic
from tests.ports import free_port

TOPICS = {"Plain": "", "Popped": "", "Asked": "", "Later": "", "Halves": "", "Door": "", "Lites": "+message.type=LITE"}
TOPICS |= {"DoorLater": "", "DoorHalves": ""}
SETTINGS = {"recall_messages": "true", "light_queues": "true", "light_dispatch": "true"}
PAUSE_S = 0.05
SLOW_S = 10.0  # longer than any call here may take
ONCE = {"send", "send_batch", "send later", "send to a light queue", "send to a lite topic", "send in a transaction", "recall"}
ONCE |= {"end a transaction by the proxy", "change_invisible by the proxy", "bury by the proxy"}
ONCE |= {"request", "change_invisible", "send by the proxy", "recall by the proxy"}  # Unknown where the leader died with it


class Calls:
    """`through`: how often each call came through. `errors`: how often each ended with what; `texts`: the first of each kind."""

    def __init__(self) -> None:
        self.through: Counter[str] = Counter()
        self.errors: Counter[tuple[str, str]] = Counter()
        self.texts: dict[tuple[str, str], str] = {}

    async def again_and_again(self, name: str, call: Callable[[], Awaitable[object]]) -> None:
        while True:
            began_s = time.monotonic()
            try:
                await call()
                self.through[name] += 1
            except RmqError as error:
                self._note(name, type(error).__name__, str(error))
            if (took_s := time.monotonic() - began_s) > SLOW_S:
                self._note(name, "slow", f"{took_s:.0f} s")
            await asyncio.sleep(PAUSE_S)

    def _note(self, name: str, kind: str, text: str) -> None:
        self.errors[name, kind] += 1
        self.texts.setdefault((name, kind), text)

    @property
    def found(self) -> list[str]:
        """What is wrong."""
        wrong = [key for key in self.errors if not (key[0] in ONCE and key[1] == Unknown.__name__)]
        return [f"{name}: {kind}, {self.errors[name, kind]} times: {self.texts[name, kind]}" for name, kind in sorted(wrong)]


async def of_the_client(client: Client, stack: AsyncExitStack) -> dict[str, Callable[[], Awaitable[object]]]:
    producer = client.producer("callers")
    cashier = client.transaction_producer(lambda _: Decision.COMMIT, "cashiers", topics="Halves")
    simple = client.simple_consumer("simple", "Popped", start="first")
    consumer = await stack.enter_async_context(client.consumer("members", "Plain", start="first", auto_commit=False))
    answering = await stack.enter_async_context(client.consumer("answering", "Asked", start="first"))
    light = await stack.enter_async_context(client.light_consumer("lights", "l", "Plain"))
    lite = await stack.enter_async_context(client.lite_consumer("takers", "Lites", ["a"]))
    running = asyncio.create_task(answering.run(answering.reply(lambda question: question.body)))
    stack.callback(running.cancel)

    async def recall() -> None:
        await producer.recall(await producer.send(Message("Later", b"x", delay_s=100)))

    async def pop() -> None:
        for message in await simple.receive(4, wait_seconds=4):
            await simple.ack(message)

    async def change() -> None:
        for message in await simple.receive(1, wait_seconds=4):
            await simple.change_invisible(message, 0)

    async def consume() -> None:
        await consumer.receive(timeout=1)
        await consumer.commit()

    async def read() -> None:
        await light.receive(timeout=1)
        await light.commit()

    async def take() -> None:
        for message in await lite.receive(4, wait_seconds=4):
            await lite.ack(message)

    async def want() -> None:
        await lite.add("b")
        await lite.remove("b")

    def commit(_: object) -> Decision:
        return Decision.COMMIT

    return {
        "send": lambda: producer.send(Message("Plain", b"x")),
        "send_batch": lambda: producer.send_batch([Message("Popped", b"x")] * 5),
        "send later": lambda: producer.send(Message("Later", b"x", delay_level=1)),
        "send to a light queue": lambda: producer.send(Message("Plain", b"x", light_queues=["l"])),
        "send to a lite topic": lambda: producer.send(Message("Lites", b"x", lite_topic="a")),
        "send in a transaction": lambda: cashier.send_in_transaction(Message("Halves", b"x"), commit),
        "recall": recall,
        "receive and ack": pop,
        "change_invisible": change,
        "receive and commit": consume,
        "receive and commit of a light queue": read,
        "receive and ack of lite topics": take,
        "add and remove lite topics": want,
        "request": lambda: client.request(Message("Asked", b"x"), timeout=6),
    }


def check(code: int) -> None:
    if code == v2.Code.PROXY_TIMEOUT:
        raise Unknown("PROXY_TIMEOUT")
    if code not in (v2.Code.OK, v2.Code.MESSAGE_NOT_FOUND):
        raise RmqError(f"code {code}")


def at_the_door(caller: Caller, beginner: Caller) -> dict[str, Callable[[], Awaitable[object]]]:
    topic, system = v2.Resource(name="Door"), v2.SystemProperties(message_type=v2.MessageType.NORMAL)
    numbers = count()

    async def send() -> None:
        message = v2.Message(topic=topic, body=b"x", system_properties=system)
        check((await caller.ask("SendMessage", 6.0, messages=[message])).status.code)

    async def receive() -> None:
        code, found = await caller.receive("door", "Door", long_polling_timeout=ms(4000), batch_size=8)
        check(code)
        for code in await caller.ack("door", "Door", *found) if found else ():
            check(code)

    async def recall() -> None:
        at = v2.SystemProperties()
        at.delivery_timestamp.FromSeconds(int(time.time()) + 100)
        sent = await caller.send("DoorLater", b"x", v2.MessageType.DELAY, delivery_timestamp=at.delivery_timestamp)
        check(sent.status.code)
        answer = await caller.ask("RecallMessage", 3.0, topic=v2.Resource(name="DoorLater"), recall_handle=sent.recall_handle)
        check(answer.status.code)

    async def end() -> None:
        sent = await caller.send("DoorHalves", b"x", v2.MessageType.TRANSACTION)
        check(sent.status.code)
        fields = {"transaction_id": sent.transaction_id, "message_id": sent.message_id, "topic": v2.Resource(name="DoorHalves")}
        answer = await caller.ask("EndTransaction", 3.0, resolution=v2.TransactionResolution.COMMIT, **fields)
        check(answer.status.code)

    async def use(name: str, group: str, **fields: object) -> None:
        code, found = await caller.receive(group, "Door", long_polling_timeout=ms(4000), batch_size=1)
        check(code)
        for message in found:
            fields |= {"group": v2.Resource(name=group), "topic": topic, "receipt_handle": handle_of(message)}
            check((await caller.ask(name, 3.0, message_id=id_of(message), **fields)).status.code)

    async def begin() -> None:
        """As a consumer of a group that the proxy has not looked at."""
        async with beginner.telemetry(subscribing(f"begins-{next(numbers)}", "Door")) as (_, answer):
            check(answer.status.code)
        check((await caller.ask("QueryRoute", 3.0, topic=topic, endpoints=caller.endpoints)).status.code)

    async def want() -> None:
        for action in (v2.LiteSubscriptionAction.PARTIAL_ADD, v2.LiteSubscriptionAction.PARTIAL_REMOVE):
            fields = {"topic": v2.Resource(name="Lites"), "group": v2.Resource(name="takers"), "lite_topic_set": ["c"]}
            check((await caller.ask("SyncLiteSubscription", 3.0, action=action, **fields)).status.code)

    return {
        "send by the proxy": send,
        "receive and ack by the proxy": receive,
        "recall by the proxy": recall,
        "end a transaction by the proxy": end,
        "change_invisible by the proxy": lambda: use("ChangeInvisibleDuration", "changing", invisible_duration=ms(10)),
        "bury by the proxy": lambda: use("ForwardMessageToDeadLetterQueue", "burying"),
        "begin by the proxy": begin,
        "add and remove lite topics by the proxy": want,
    }


async def campaign(folder: Path, kills: int, seed: int) -> Calls:
    chance, calls, covered = random.Random(seed), Calls(), Counter[str]()
    async with AsyncExitStack() as stack:
        members = Members(folder, None, **SETTINGS)
        stack.push_async_callback(members.kill)
        await members.start()
        client = await stack.enter_async_context(Client(members.nameserver_list))
        for name, attributes in TOPICS.items():
            await make_topic(client, members, name, 2, attributes)
        leader = members.nodes[members.leader].address
        await update_group(client, GroupConfig("takers", attributes={"+lite.bind.topic": "Lites"}), broker=leader)
        port = free_port()
        words = ("-m", "rmq.cli", "proxy", "-n", members.nameserver_list, "--listen", f"127.0.0.1:{port}")
        with (folder / "proxy.log").open("wb") as log:
            proxy = await asyncio.create_subprocess_exec(sys.executable, *words, stdout=log, stderr=log)
        stack.push_async_callback(proxy.wait)
        stack.callback(proxy.terminate)
        caller = await stack.enter_async_context(Caller(port))
        beginner = await stack.enter_async_context(Caller(port, "beginner"))
        await caller.connected()
        work = await of_the_client(client, stack) | at_the_door(caller, beginner)
        tasks = [asyncio.create_task(calls.again_and_again(name, call)) for name, call in work.items()]
        for _ in range(kills):
            await asyncio.sleep(chance.uniform(2.0, 5.0))
            await hurt(members, "kill", leader=True, chance=chance, covered=covered)
            if not await until(lambda: len(members.status) == len(members.names)):
                raise TimeoutError(f"not all nodes are back: {members.status}")
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return calls


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        calls = asyncio.run(campaign(Path(folder), options.kills, options.seed))
    print(f"{options.kills} kills of leaders; came through: {listed(calls.through)}")
    print(f"ended: {listed(Counter({f'{name} ({kind})': count for (name, kind), count in calls.errors.items()}))}")
    print(f"{len(calls.found)} problems", *calls.found, sep="\n")
    raise SystemExit(1 if calls.found else 0)


if __name__ == "__main__":
    main()

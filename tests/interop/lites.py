"""What RocketMQ's tools, and a proxy's requests, show of lite topics: here and at Apache RocketMQ 5.5.0 in the same state.

    python -m tests.interop.lites             # what differs; and RocketMQ's gRPC client with a lite consumer, through its proxy
    python -m tests.interop.lites --record    # what RocketMQ answers goes to lites-5.5.0.json, for the test run

Needs Maven and a JDK. The requests that RocketMQ's proxy would send are made by hand.
"""

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Final

from rmq.model import LITE_PROPERTY
from rmq.net.commands import UpdateGroup, UpdateTopic
from rmq.net.commands.lites import LitePopAnswer
from rmq.testing import LocalBroker
from tests.broker.javaclient import JavaClient
from tests.broker.litepops import bound, declare, pop_lite, popped_lites
from tests.interop import java
from tests.interop.java import Java
from tests.interop.mqadmin import Campaign, Printed, Side
from tests.interop.mqadminsteps import Step
from tests.interop.versions import fetched, printed, proxy
from tests.net.java_peer import read_answer
from tests.ports import free_port

GRPC: Final = "5.2.0"  # the newest on Maven Central
RECORDED: Final = Path(__file__).parent / "lites-5.5.0.json"
SWITCHES: Final = {"enableLmq": "true", "enableMultiDispatch": "true"}
COMMANDS: Final = tuple(
    """
getBrokerLiteInfo -b {b} -d
getBrokerLiteInfo -c DefaultCluster
getParentTopicInfo -p Rooms
getParentTopicInfo -p Plain
getLiteTopicInfo -p Rooms -l one
getLiteTopicInfo -p Rooms -l one -s
getLiteTopicInfo -p Rooms -l none
getLiteClientInfo -p Rooms -g readers -c phone
getLiteClientInfo -p Rooms -g readers -c nobody
getLiteGroupInfo -p Rooms -g readers -l one
getLiteGroupInfo -p Rooms -g readers -l none
getLiteGroupInfo -p Rooms -g missing
triggerLiteDispatch -p Rooms -g readers
triggerLiteDispatch -p Rooms -g readers -c phone
triggerLiteDispatch -p Rooms -g missing
""".strip().splitlines()
)


async def state(broker: str) -> list[str]:
    """Makes the same state at both; what was answered meanwhile."""
    said = []
    async with JavaClient.connect(broker) as client:

        async def ask(request: object) -> object:
            header, body = await client.ask(request)
            said.append(f"{type(request).__name__} {header.code}")
            return read_answer(header, body, type(request)) if header.code in (0, 210) else None

        kind = "+message.type=LITE,+lite.topic.expiration=60"
        await ask(UpdateTopic("Rooms", read_queue_nums=2, write_queue_nums=2, attributes=kind))
        await ask(UpdateTopic("Plain", read_queue_nums=2, write_queue_nums=2))
        await ask(bound("readers", "Rooms"))
        for number in range(5):
            text = f"UNIQ_KEY\x01A{number}\x02{LITE_PROPERTY}\x01{'one' if number < 4 else 'two'}\x02"
            said.append(f"send {(await client.send(b'%d' % number, 'Rooms', i=text))[0].code}")
        asked = {"group": "readers", "topic": "Rooms"}
        await ask(declare("one", "two", client="phone", **asked))
        found: list[object] = []
        said.append("")
        while len(found) < 5:  # RocketMQ dispatches behind its answers
            asking = pop_lite("phone", poll_ms=1000, **asked)
            header, body = await client.ask(asking)
            answer = read_answer(header, body, type(asking))
            assert isinstance(answer, LitePopAnswer)
            found += [(one.body.decode(), one.lite, one.offset, one.tries) for one in popped_lites(answer)]
            said[-1] = f"{sorted(found)} {answer.revive_qid}"
        fields = {"consumerGroup": "readers", "topic": "Rooms", "queueId": "0", "offset": "0", "liteTopic": "one"}
        handle = f"0 {answer.pop_time} {answer.invisible_time} 999 0 broker-a 0 0"
        said.append(f"ack {(await client.greet(200051, **fields, extraInfo=handle))[0].code}")
        for wrong in (
            pop_lite(group="missing", topic="Rooms"),
            pop_lite(group="readers", topic="Plain"),
            pop_lite(group="readers", topic="Missing"),
            pop_lite(group="readers", topic="Rooms", count=33),
        ):
            await ask(wrong)
        for fields in ({"liteTopic": "one", "offset": "99"}, {"liteTopic": "one", "offset": "1", "queueId": "1"}):
            usual = {"consumerGroup": "readers", "topic": "Rooms", "queueId": "0", "extraInfo": handle}
            said.append(f"ack {(await client.greet(200051, **{**usual, **fields}))[0].code}")
        said.append(f"{(await client.body(200071, b''))[0].code} {(await client.greet(200072))[0].code}")
    return said


async def asked_at(side: Side) -> list[Printed]:
    tools = await Java.start_tools(side.nameserver)
    steps = [Step("clusterList", ".", until="broker-a"), Step("topicList", ".", until="TBW102")]
    campaign = Campaign(side, tools)
    try:
        await campaign.run(steps)
        campaign.printed = [await state(side.broker)]
        until = Step("topicRoute -t Plain", ".", until="brokerDatas")
        await campaign.run([until, *(Step(line, "+") for line in COMMANDS)])
    finally:
        await tools.kill()
    del campaign.printed[1]
    return campaign.printed


async def at_ours(folder: Path) -> list[Printed]:
    async with LocalBroker(light_queues=True, light_dispatch=True, broker_name="broker-a") as broker:
        return await asked_at(Side(broker.nameserver, broker.address, folder, lambda: broker.clock.advance(0.2), 300))


async def at_rocketmq(folder: Path) -> list[Printed]:
    named, port = free_port(), free_port(1, -2)
    nameserver = await Java.start_nameserver(folder, named)
    broker = await Java.start_broker(folder, f"127.0.0.1:{named}", port, 16 << 20, **SWITCHES)
    try:
        return await asked_at(Side(f"127.0.0.1:{named}", f"127.0.0.1:{port}", folder, lambda: asyncio.sleep(1), 30))
    finally:
        for each in (broker, nameserver):
            await each.kill()


async def consumed(through: Callable[[LocalBroker], AbstractAsyncContextManager[int]]) -> list[str]:
    """What is wrong with a lite push consumer of RocketMQ's gRPC client before our broker: it should get what it wants, in order
    in each lite topic, and what it failed again. `through`: the proxy, its port."""
    folder = await asyncio.to_thread(fetched, "rocketmq-client-java", GRPC, "Lites")
    async with LocalBroker(light_queues=True, light_dispatch=True, broker_name="broker-a") as broker:
        async with JavaClient.connect(broker.address) as client:
            kind = "+message.type=LITE"
            await client.ask(UpdateTopic("Rooms", read_queue_nums=2, write_queue_nums=2, attributes=kind))
            config = bound("readers", "Rooms").config._replace(consume_message_orderly=True)  # else it has a thread for each
            await client.ask(UpdateGroup(config))
        async with through(broker) as grpc:
            lines = await printed(folder, "Lites", f"127.0.0.1:{grpc}", "Rooms", "readers")
    got = [line.split()[1:] for line in lines if line.startswith("GOT")]
    mine = {lite: [one[1:] for one in got if one[0] == lite] for lite in ("a", "b", "unwanted")}
    expected = {
        "a": [["a-0", "1"], ["a-1", "1"], ["a-1", "2"], ["a-2", "1"]],
        "b": [["b-0", "1"], ["b-1", "1"], ["b-2", "1"]],
        "unwanted": [],
    }
    wants = [line for line in lines if line.startswith("WANTS")]
    return [] if (mine, wants) == (expected, ["WANTS 2", "WANTS 1"]) else [*map(str, got), *lines[-20:]]


@asynccontextmanager
async def rocketmqs_proxy(broker: LocalBroker) -> AsyncIterator[int]:
    async with proxy(broker.nameserver) as (grpc, _):
        yield grpc


async def _main(record: bool) -> int:
    await asyncio.to_thread(java.build)
    with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as second:
        if record:
            RECORDED.write_text(json.dumps(await at_rocketmq(Path(first)), indent=0) + "\n")
        theirs, ours = json.loads(RECORDED.read_text()), await at_ours(Path(second))
    for line, mine, other in zip(("the state", *COMMANDS), ours, theirs, strict=True):
        print("same   " if mine == other else "differs", line)
        for row in [f"        - {row}" for row in other] + [f"        + {row}" for row in mine] if mine != other else []:
            print(row)
    wrong = await consumed(rocketmqs_proxy)
    print("\n".join(wrong) or f"rocketmq-client-java {GRPC} through rocketmq-proxy: its lite consumer got all, in order")
    return int(ours != theirs or bool(wrong))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--record", action="store_true", help="ask RocketMQ again, and keep what it says")
    sys.exit(asyncio.run(_main(parser.parse_args().record)))

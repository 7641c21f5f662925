"""A leader whose process stands still: its connections stay open, and no error tells anybody."""

import asyncio
from pathlib import Path

from rmq.client import Client, Message, Producer
from rmq.errors import RmqError
from rmq.testing import until
from tests.faults.members import Members
from tests.faults.traffic import make_topic


async def sent(producer: Producer, body: bytes) -> None:
    """Until it is acknowledged; it may be stored more than once."""
    while True:
        try:
            await producer.send(Message("T", body), timeout=1.0)
            return
        except RmqError:
            continue  # the producer itself makes pauses


async def test_a_consumer_at_a_leader_that_hangs_goes_on_as_soon_as_producers(tmp_path: Path) -> None:
    """N4: the consumer's client sends nothing itself, its pull waits at the leader that was paused."""
    members = Members(tmp_path)
    try:
        await members.start()
        async with Client(members.nameserver_list) as sending, Client(members.nameserver_list) as taking:
            await make_topic(sending, members, "T", 1)
            leader = members.nodes[members.leader]
            producer = sending.producer("p")
            await sent(producer, b"before")
            async with taking.consumer("g", "T", start="first", auto_commit=False) as consumer:
                assert (await anext(consumer)).body == b"before"
                waiting = asyncio.ensure_future(anext(consumer))
                await until(lambda: leader.address in taking.session.connections.waiting())
                leader.freeze()
                async with asyncio.timeout(30):
                    await sent(producer, b"after")
                async with asyncio.timeout(10):  # a pull may wait for 30 s
                    assert (await waiting).body == b"after"
                leader.thaw()
    finally:
        await members.kill()

"""Whole nodes that take TLS only: nameserver, group and clients, while leaders change and certificates are renewed."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from rmq.client import Client, Message, Tls, Unreachable
from rmq.net.commands import Hello, UpdateTopic
from rmq.testing import LocalBroker
from tests.broker.groups import LocalGroup
from tests.certificates import Certificates
from tests.dialing import dial


@pytest.fixture(scope="module")
def certs(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


def settings(certs: Certificates, mode: str, **others: Any) -> dict[str, Any]:
    made = certs.made["node"]
    return {"tls_mode": mode, "tls_cert": str(made.cert), "tls_key": str(made.key), "tls_ca": certs.ca, **others}


async def through(client: Client, body: bytes) -> None:
    """Sent and received."""
    async with client, client.producer() as producer:
        await producer.send(Message("T", body))
        async with client.consumer(f"g-{body.decode()}", "T", start="first") as consumer:
            async for message in consumer:
                if message.body == body:
                    return


async def test_a_broker_that_takes_tls_only(certs: Certificates) -> None:
    async with LocalBroker(**settings(certs, "enforcing")) as broker:
        await through(broker.client(tls=Tls(ca=certs.ca)), b"encrypted")
        for address in (broker.address, broker.nameserver):
            with pytest.raises(Unreachable):
                await dial(address, Hello(1))


async def test_a_permissive_broker_takes_both(certs: Certificates) -> None:
    """And still dials plain, until it is told otherwise: the first step of a running cluster."""
    async with LocalBroker(**settings(certs, "permissive")) as broker:
        await asyncio.gather(through(broker.client(tls=Tls(ca=certs.ca)), b"encrypted"), through(broker.client(), b"plain"))


async def test_a_group_elects_copies_and_forwards_inside_tls(certs: Certificates, tmp_path: Path) -> None:
    """Both directions show certificates; a new leader is found, and what was acknowledged is there (S3)."""
    encrypted = settings(certs, "enforcing", tls_client_auth="require")
    async with LocalGroup(tmp_path, tls=certs.tls("client"), **encrypted) as group:
        leader = await group.leader()
        await (await group.connect(leader)).ask(UpdateTopic("T", read_queue_nums=1, write_queue_nums=1))
        async with group.client() as client, client.producer() as producer:
            first = await producer.send(Message("T", b"before"))
            await group.stop(leader)
            await group.clock.advance(3)
            await group.leader(but=leader)
            second = await producer.send(Message("T", b"after"))
            assert second.queue_offset > first.queue_offset
            async with client.consumer("g", "T", start="first") as consumer:
                received = [(await anext(consumer)).body for _ in range(2)]
            assert received == [b"before", b"after"]
        await group.start(leader)
        await group.caught_up(leader)
        with pytest.raises(Unreachable):
            await dial(group.peer_address(leader), Hello(1))

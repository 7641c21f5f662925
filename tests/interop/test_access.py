"""Users and policies with RocketMQ's own Java client and mqadmin 5.5.0, which sign each request (F1), inside TLS (F7)."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rmq.client import Message
from rmq.client.admin import calls as admin
from rmq.testing import LocalBroker
from tests.broker.test_access import SETTINGS, nameserver_knows
from tests.broker.test_tls import settings
from tests.certificates import Certificates
from tests.interop import java
from tests.interop.java import CACHE, Java, mqadmin

pytestmark = [pytest.mark.java, pytest.mark.skipif(bool(java.MISSING), reason=java.MISSING)]


TLS = ["tls.enable=true"]


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[LocalBroker]:
    """It takes plain connections too, but no signatures there."""
    java.build()
    encrypted = settings(Certificates(tmp_path), "permissive", signed_in_tls_only=True)
    async with LocalBroker(**encrypted, **SETTINGS) as broker:
        tools = CACHE / "conf" / "tools.yml"  # where mqadmin looks for whom it is
        tools.parent.mkdir(exist_ok=True)
        tools.write_text("accessKey: root\nsecretKey: root-secret\n")
        yield broker
        tools.unlink()


async def test_java_and_mqadmin_sign_what_they_ask(broker: LocalBroker) -> None:
    """mqadmin makes a user and what it may; a Java producer and consumer do that, and not with a wrong secret."""
    where = ("-n", broker.nameserver, "-b", broker.address)
    assert "success" in await mqadmin("createUser", *where, "-u", "java", "-p", "java-secret", "-t", "Normal", properties=TLS)
    rights = ("-s", "User:java", "-r", "Topic:Signed,Group:readers", "-a", "Pub,Sub", "-d", "Allow")
    assert "success" in await mqadmin("createAcl", *where, *rights, properties=TLS)
    async with broker.client(user="root", password="root-secret") as client:
        await admin.update_topic(client, "Signed", broker=broker.address, read_queues=2, write_queues=2)
        await broker.clock.advance_until(lambda: nameserver_knows(broker, "java"))
        good = await Java.start("signed", broker.nameserver, "Signed", "readers", "java", "java-secret", properties=TLS)
        await good.until(lambda: len(good.got("SENT")) == 3)
        async with client.producer() as producer:
            await producer.send(Message("Signed", b"from-python"))
        await good.until(lambda: len(good.got("GOT")) == 4)
    assert {fields[-1] for fields in good.got("GOT")} == {"signed-0", "signed-1", "signed-2", "from-python"}
    assert await good.stop() == 0
    bad = await Java.start("signed", broker.nameserver, "Signed", "readers", "java", "wrong", properties=TLS)
    await bad.until(lambda: len(bad.got("REFUSED")) == 3)
    assert not bad.got("SENT")
    await bad.kill()

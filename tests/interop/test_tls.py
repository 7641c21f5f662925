"""RocketMQ's Java client with TLS on our ports (F7)."""

from pathlib import Path

import pytest

from rmq.client import Message, Tls
from rmq.testing import LocalBroker, until
from tests.broker.test_tls import settings
from tests.certificates import Certificates
from tests.interop import java
from tests.interop.java import Java

pytestmark = [pytest.mark.java, pytest.mark.skipif(bool(java.MISSING), reason=java.MISSING)]


async def test_java_with_tls_and_java_without_on_one_port(tmp_path: Path) -> None:
    """Permissive: the first byte decides, at the nameserver and at the broker; messages go both ways between them and ours."""
    java.build()
    certs = Certificates(tmp_path)
    async with LocalBroker(**settings(certs, "permissive")) as broker:
        await broker.create_topic("T", queues=2)
        consumer = await Java.start("consume", broker.nameserver, "T", "encrypted", "*", properties=["tls.enable=true"])
        plain = await Java.start("consume", broker.nameserver, "T", "plain", "*")
        for each in (consumer, plain):
            await each.until(lambda each=each: each.got("STARTED"))  # type: ignore[misc]
        producer = await Java.start("send", broker.nameserver, "T", "10", properties=["tls.enable=true"])
        await producer.until(lambda: len(producer.got("SENT")) == 11)
        async with broker.client(tls=Tls(ca=certs.ca)) as client, client.producer() as ours:
            await ours.send(Message("T", b"ours", tags="red"))
        for each in (consumer, plain):
            await until(lambda each=each: len({row[-1] for row in each.got("GOT")}) == 15, 90)  # type: ignore[misc]
        for each in (producer, consumer, plain):
            assert await each.stop() == 0


async def test_java_with_a_certificate_of_its_own(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Enforcing, and both sides show who they are; without a certificate Java is not taken."""
    java.build()
    certs = Certificates(tmp_path)
    async with LocalBroker(**settings(certs, "enforcing", tls_client_auth="require")) as broker:
        made = certs.made["client"]
        shown = [f"tls.client.certPath={made.cert}", f"tls.client.keyPath={made.key}", f"tls.client.trustCertPath={certs.ca}"]
        checking = ["tls.enable=true", "tls.test.mode.enable=false", "tls.client.authServer=true", *shown]
        producer = await Java.start("send", broker.nameserver, "T", "3", properties=checking)
        await producer.until(lambda: len(producer.got("SENT")) == 4)
        assert await producer.stop() == 0
        stranger = await Java.start("send", broker.nameserver, "T", "3", properties=["tls.enable=true"])
        await until(lambda: "did not return a certificate" in caplog.text)
        assert stranger.got("SENT") == []
        await stranger.kill()

"""Namespaces of RocketMQ's clients: the older way (before all names) and the newer one (a field of requests)."""

import pytest

from rmq.client import Message
from rmq.testing import LocalBroker
from tests.interop import java
from tests.interop.java import Java

pytestmark = [pytest.mark.java, pytest.mark.skipif(bool(java.MISSING), reason=java.MISSING)]


async def test_tenants_do_not_see_each_other(built: None) -> None:
    """A23: topic, group, retry topic and what Java shows of them; both in one broker, beside a client without a namespace."""
    async with LocalBroker() as broker, broker.client() as client:
        for topic in ("Work", "one%Work"):
            await broker.create_topic(topic, queues=1)
        for topic, group in (("Work", "g"), ("one%Work", "one%g"), ("Work", "h")):
            async with client.consumer(group, topic):  # with its retry topic, which a Java member else looks for every 30 s only
                pass
        await client.producer().send(Message("one%Work", b"ours"))
        programs = [
            await Java.start("tenant", broker.nameserver, "Work", group, *names)
            for group, names in (("g", ("one", "-")), ("h", ("-", "two")))
        ]
        first, second = programs
        await first.until(lambda: len(first.got("TRY")) >= 4, 120)
        await second.until(lambda: len(second.got("TRY")) >= 2, 120)
        assert [await program.stop() for program in programs] == [0, 0]
        assert sorted(" ".join(fields) for fields in first.got("TRY")) == sorted(
            f"{tries} Work {body}" for tries in (0, 1) for body in ("ours", "of one -")
        ), "shown without the namespace"
        assert sorted(" ".join(fields) for fields in second.got("TRY")) == ["0 Work of - two", "1 Work of - two"]
        assert [program.got("SENT") for program in programs] == [[["SEND_OK", "Work"]]] * 2
        assert [broker.serving.store.queues.look(topic, 0).max for topic in ("one%Work", "Work")] == [2, 1]

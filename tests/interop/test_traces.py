"""The message trace of RocketMQ's Java client and ours: each side reads what the other wrote; mqadmin's output is ours."""

import asyncio

import pytest

from rmq import cli
from rmq.client import ClientSettings, Message
from rmq.client.admin import timelines
from rmq.client.admin.timelines import Note
from rmq.client.shared.traceformat import EndTransaction, MessageKind, Outcome, Pub, SubAfter, SubBefore, encode
from rmq.testing import LocalBroker
from tests.client.test_traces import RECORDS
from tests.interop import java
from tests.interop.java import Java, mqadmin

pytestmark = [pytest.mark.java, pytest.mark.skipif(bool(java.MISSING), reason=java.MISSING)]


async def test_java_traces_are_read_by_ours_and_ours_by_mqadmin(capsys: pytest.CaptureFixture[str]) -> None:
    await asyncio.to_thread(java.build)
    async with LocalBroker(trace_topic=True) as broker, broker.client(settings=ClientSettings(trace=True)) as client:
        await broker.create_topic("Orders", queues=1)
        program = await Java.start("tracing", broker.nameserver, "Orders", "kitchen")
        await program.until(lambda: program.got("STARTED"))
        ours = [encode(record).replace("\x01", "|").replace("\x02", "#").replace(" ", "_") for record, _ in RECORDS]
        assert [fields[0] for fields in program.got("SPELLED")] == ours

        [_, single, *_], [_, half, *_], [_, batch, *_] = program.got("SENT")
        sent = await client.producer("python-producers").send(Message("Orders", b"x", "red", ["key-ours"]))
        everything = {single, half, *batch.split(","), sent.message_id}
        await program.until(lambda: {fields[0] for fields in program.got("TOOK")} == everything)

        async def notes(message_id: str, count: int) -> list[Note]:
            async with asyncio.timeout(30):
                while len(found := (await timelines.notes_of(client, message_id)).notes) < count:
                    await asyncio.sleep(0)
            return found

        found = [note.trace for note in await notes(single, 3)]
        [pub] = [trace for trace in found if isinstance(trace, Pub)]
        assert pub[1:9] == ("DefaultRegion", "kitchen-producers", "Orders", single, "red", "key-single", broker.address, 6)
        assert (pub.kind, pub.success) == (MessageKind.NORMAL, True)
        assert [trace.retries for trace in found if isinstance(trace, SubBefore)] == [0]
        assert [trace.outcome for trace in found if isinstance(trace, SubAfter)] == [Outcome.SUCCESS]
        ends = [note.trace for note in await notes(half, 4) if isinstance(note.trace, EndTransaction)]
        assert [(end.state, end.from_check) for end in ends] == [("COMMIT_MESSAGE", False)]
        line = timelines.line_of(await notes(sent.message_id, 3))
        assert [(step.kind, step.group, step.good) for step in line] == [
            ("sent", "python-producers", True),
            ("consumed", "kitchen", True),
        ]
        assert await program.stop() == 0
        of = ("-n", broker.nameserver, "-i", sent.message_id)
        theirs = await mqadmin("queryMsgTraceById", *of)
        capsys.readouterr()
        assert await asyncio.to_thread(cli.run, ["admin", "queryMsgTraceById", *of]) == 0
        printed = capsys.readouterr().out
        assert printed.count("#Type") == 2
        assert theirs.strip() == printed.strip()

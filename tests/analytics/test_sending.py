"""Rows become messages, or are refused with a reason."""

import asyncio
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="needs the extra `spark`")

import pyarrow as pa

from analytics.spark.sending import messages, parse_sink_options, send
from rmq.client import Message
from rmq.client.admin import calls as admin
from rmq.errors import InvalidArgument
from rmq.measures import Histogram
from rmq.testing import LocalBroker, rmq_broker, until

__all__ = ["rmq_broker"]
NAMESERVERS = {"nameservers": "127.0.0.1:9876"}


def batch(**columns: list[Any]) -> Any:
    return pa.RecordBatch.from_pydict(columns)


def test_a_row_is_a_message() -> None:
    properties = pa.array([[("n", "1"), ("UNIQ_KEY", "of another"), ("none", None)], None], pa.map_(pa.string(), pa.string()))
    rows = batch(topic=["A", "B"], body=[b"x", b"y"], keys=[["k", "l"], None], tags=["t", None], uniq_key=["u", None])
    rows = rows.append_column("properties", properties)
    assert list(messages(rows, "")) == [
        Message("A", b"x", "t", ["k", "l"], {"n": "1"}, message_id="u"),
        Message("B", b"y", keys=()),
    ]
    assert list(messages(batch(body=["text"], keys=["k l"]), "C")) == [Message("C", b"text", keys=["k", "l"])]
    for bad in (batch(topic=["A"], body=[None]), batch(topic=["A"], body=[b""]), batch(topic=[None], body=[b"x"])):
        with pytest.raises(InvalidArgument, match="a row without a"):
            list(messages(bad, ""))


@pytest.mark.parametrize(
    ("options", "columns", "says"),
    [
        ({}, {"body": "binary"}, "nameservers. is missing"),
        (NAMESERVERS, {"body": "binary"}, "say where rows go"),
        (NAMESERVERS, {"topic": "string"}, "'body' is missing"),
        (NAMESERVERS, {"topic": "string", "bodi": "binary"}, "no column 'bodi'; did you mean 'body'"),
        (NAMESERVERS, {"topic": "string", "body": "int"}, "is int; it can be binary or string"),
        (NAMESERVERS | {"topc": "A"}, {"body": "binary"}, "did you mean 'topic'"),
        (NAMESERVERS | {"topic": "a b"}, {"body": "binary"}, "a b"),
    ],
)
def test_what_nobody_could_send_is_refused(options: dict[str, str], columns: dict[str, str], says: str) -> None:
    with pytest.raises(InvalidArgument, match=says):
        parse_sink_options(options, columns)


async def test_all_rows_are_stored_also_while_the_broker_starts_anew(rmq_broker: LocalBroker) -> None:
    """Rows that go out while nobody listens are sent again until somebody does; nameservers do not know the topic meanwhile."""
    await rmq_broker.create_topic("T", queues=2)
    rows = [batch(body=[b"%d" % number for number in range(first, first + 100)]) for first in range(0, 300, 100)]
    assert await asyncio.to_thread(send, rmq_broker.nameserver, rows, "T") == 300
    await rmq_broker.stop_broker()
    refused = _refusals(rmq_broker)
    sending = asyncio.create_task(asyncio.to_thread(send, rmq_broker.nameserver, rows, "T"))
    await until(lambda: sending.done() or _refusals(rmq_broker) > refused + 6)  # more than a producer's own three tries
    await rmq_broker.start_broker()
    assert await sending == 300
    async with rmq_broker.client() as client:
        stored = sum(row.max_offset for row in (await admin.topic_stats(client, "T")).queues)
    assert stored >= 600, "each at least once"
    with pytest.raises(InvalidArgument, match="the body has"):
        await asyncio.to_thread(send, rmq_broker.nameserver, [batch(body=[bytes(5 << 20)])], "T")


def _refusals(broker: LocalBroker) -> float:
    """How many requests the nameserver has refused."""
    refused = next(family for family in broker.naming.metrics() if family.name == "rmq_refused_requests_total")
    return sum(count for _, count in refused.rows if not isinstance(count, Histogram))

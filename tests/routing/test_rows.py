"""What of a route is believed. A queue costs a client a little; two thousand millions of them cost it everything."""

import pytest

from rmq.model import BrokerAddresses, QueueData, Route
from rmq.routing.rows import MAX_ROUTE_ADDRESSES, MAX_ROUTE_GROUPS, believable

GOOD = QueueData("good", 4, 4, 6)


@pytest.mark.parametrize("row", [(2**31 - 1, 4), (4, 2**31 - 1), (16_385, 0), (-1, 4), (4, -(2**31))])
def test_what_no_broker_has_is_not_believed(row):
    """A claim of 2^31-1 queues ended every client of the topic with a MemoryError."""
    assert believable(Route([], [QueueData("bad", *row, 6), GOOD])).queues == [GOOD]


def test_a_route_has_so_many_queues():
    rows = [QueueData(f"b{number}", 16_384, 16_384, 6) for number in range(10)]
    found = believable(Route([], [GOOD, *rows, GOOD._replace(broker_name="late")])).queues
    assert sum(row.read_queue_nums for row in found) <= 100_000
    assert [row.broker_name for row in found] == ["good", "b0", "b1", "b2", "b3", "b4", "b5", "late"]


def test_an_ordinary_route_is_what_it_was():
    route = Route([], [GOOD, QueueData("wide", 16_384, 0, 6), QueueData("none", 0, 0, 6)])
    assert believable(route) is route


def test_a_route_has_so_many_brokers() -> None:
    """A client connects to each of their nodes."""
    many = [BrokerAddresses("c", f"b{number}", {0: f"10.0.0.1:{number + 1}"}) for number in range(20_000)]
    found = believable(Route(many, [QueueData(group.name, 1, 1, 6) for group in many]))
    assert len(found.brokers) == len(found.queues) == MAX_ROUTE_GROUPS
    wide = BrokerAddresses("c", "wide", {number: f"10.0.0.2:{number + 1}" for number in range(MAX_ROUTE_ADDRESSES)})
    found = believable(Route([wide, many[0]], [QueueData("b0", 1, 1, 6), QueueData("wide", 1, 1, 6)]))
    assert [group.name for group in found.brokers] == [row.broker_name for row in found.queues] == ["wide"]

"""The producer's choice of a queue."""

import pytest
from hypothesis import given, strategies as st

from rmq.model import BrokerAddresses, MessageQueue, QueueData, Route
from rmq.routing.choose import FAILED_MS, Isolation, QueueChooser, led_queues, readable_queues, writable_queues


def a_route(*groups):
    """Rows of (name, has a leader, perm, read queues, write queues)."""
    brokers = [BrokerAddresses("C", name, {0 if led else 1: "127.0.0.1:1"}) for name, led, *_ in groups]
    return Route(brokers, [QueueData(name, read, write, perm) for name, _, perm, read, write in groups])


def test_a_queue_is_writable_only_where_there_is_a_leader():
    """N4: a group that is electing takes nothing; its followers can still be read."""
    route = a_route(("b", True, 6, 1, 2), ("a", False, 6, 1, 2), ("c", True, 4, 1, 2), ("d", True, 2, 1, 1))
    led = [MessageQueue("T", "b", 0), MessageQueue("T", "b", 1), MessageQueue("T", "d", 0)]
    assert led_queues(route, writable_queues(route, "T")) == led
    assert readable_queues(route, "T") == [MessageQueue("T", name, 0) for name in "abc"]


QUEUES = [MessageQueue("T", name, queue_id) for name in "ab" for queue_id in range(3)]


@given(start=st.integers(0, 2**31))
def test_queues_take_turns_from_any_start(start):
    chooser = QueueChooser(start)
    taken = [chooser.next(QUEUES) for _ in range(12)]
    assert taken[:6] == taken[6:]
    assert sorted(taken[:6]) == QUEUES


@given(start=st.integers(0, 2**31), topics=st.lists(st.sampled_from("ABC"), min_size=1, max_size=6))
def test_every_queue_of_every_topic_takes_turns(start, topics):
    """However a producer goes from one topic to the other."""
    chooser = QueueChooser(start)
    taken = {topic: set() for topic in topics}
    for topic in topics * len(QUEUES):
        taken[topic].add(chooser.next([queue._replace(topic=topic) for queue in QUEUES]))
    assert {len(queues) for queues in taken.values()} == {len(QUEUES)}


@given(start=st.integers(0, 100))
def test_the_broker_that_failed_is_avoided(start):
    """C19."""
    chooser = QueueChooser(start)
    assert {chooser.next(QUEUES, "a").broker_name for _ in range(6)} == {"b"}


def test_the_only_broker_is_taken_even_if_it_failed():
    """C19."""
    chooser = QueueChooser(0)
    assert {chooser.next(QUEUES[:3], "a") for _ in range(20)} == set(QUEUES[:3])


@given(key=st.text())
def test_a_key_goes_to_one_queue(key):
    assert QueueChooser(1).by_key(QUEUES, key) == QueueChooser(2).by_key(QUEUES, key)


def test_a_key_goes_where_java_clients_send_it():
    """Java: Math.abs("polygenelubricants".hashCode() % 6), where the hash is the lowest int there is."""
    assert QueueChooser(0).by_key(QUEUES, "polygenelubricants") == QUEUES[(2**31) % 6]
    assert QueueChooser(0).by_key(QUEUES, "hello world") == QUEUES[1794106052 % 6]


@pytest.mark.parametrize("choose", [lambda chooser: chooser.next([]), lambda chooser: chooser.by_key([], "k")])
def test_no_queue_is_an_error(choose):
    with pytest.raises(ValueError, match="no queue"):
        choose(QueueChooser(0))


def test_a_failed_broker_is_left_alone_for_ten_seconds():
    isolation = Isolation()
    isolation.report("a", FAILED_MS, now=100.0)
    assert {queue.broker_name for queue in isolation.available(QUEUES, 109.9)} == {"b"}
    assert isolation.available(QUEUES, 110.0) == QUEUES


def test_a_good_answer_ends_the_isolation_and_all_bad_means_all():
    isolation = Isolation()
    isolation.report("a", FAILED_MS, 0.0)
    isolation.report("b", FAILED_MS, 0.0)
    assert isolation.available(QUEUES, 1.0) == QUEUES
    isolation.report("a", 20.0, 1.0)
    assert {queue.broker_name for queue in isolation.available(QUEUES, 1.0)} == {"a"}


def test_a_new_leader_is_not_blamed_for_the_old_one():
    """N2: a route with a newer epoch clears the isolation at once."""
    isolation = Isolation()
    isolation.route_seen([BrokerAddresses("C", "a", {0: "x:1"}, 3)])
    isolation.report("a", FAILED_MS, 0.0)
    isolation.route_seen([BrokerAddresses("C", "a", {0: "x:1"}, 3)])
    assert len(isolation.available(QUEUES, 1.0)) == 3
    isolation.route_seen([BrokerAddresses("C", "a", {0: "y:1"}, 4)])
    assert len(isolation.available(QUEUES, 1.0)) == 6

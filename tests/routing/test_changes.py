"""Topics that change are told alone. Twin: a nameserver that is told of all topics each time."""

import tracemalloc

import pytest
from hypothesis import given, strategies as st

from rmq.errors import Refusal
from rmq.model import DataVersion, QueueData, TopicConfig
from rmq.routing.rows import reported
from rmq.routing.table import Change, RouteTable
from tests.routing.test_table import a_broker, a_table, is_unknown

ALL = [TopicConfig("T", 4, 4), TopicConfig("U", 1, 1)]


def a_change(*topics, gone=(), since=0, broker_id=0, port=1, epoch=1, name="b"):
    rows = [reported(topic) for topic in topics]
    return Change(name, broker_id, f"10.0.0.1:{port}", epoch, rows, gone, DataVersion(since), DataVersion(since + 1))


def test_what_changed_is_so_and_the_rest_stays():
    table = a_table(a_broker(topics=ALL))
    assert table.change(a_change(TopicConfig("U", 2, 2, 4), TopicConfig("V", 3, 3)), 1, 1.0) == (True, 0, "")
    assert [table.route(name).queues for name in "TUV"] == [
        [QueueData("b", 4, 4, 6)],
        [QueueData("b", 2, 2, 4)],
        [QueueData("b", 3, 3, 6)],
    ]
    assert table.change(a_change(gone=["T", "never"], since=1), 1, 2.0).changed
    assert table.topics() == ["U", "V"]
    assert table.sizes() == [(("C", "b"), 1, 2)]
    assert not table.expire(122.0), "it was heard from"
    assert table.expire(122.1)


@pytest.mark.parametrize(
    ("change", "connection"),
    [
        pytest.param(a_change(gone=["T"], since=7), 1, id="a version that was not told"),
        pytest.param(a_change(gone=["T"]), 2, id="another connection"),
        pytest.param(a_change(gone=["T"], port=2), 1, id="another address"),
        pytest.param(a_change(gone=["T"], epoch=2), 1, id="a newer epoch"),
        pytest.param(a_change(gone=["T"], epoch=0), 1, id="an older epoch"),
        pytest.param(a_change(gone=["T"], broker_id=1), 1, id="a stranger"),
        pytest.param(a_change(gone=["T"], name="other"), 1, id="an unknown group"),
    ],
)
def test_who_is_not_known_so_has_to_register(change, connection):
    """N5: a change that was lost, or comes out of its order, hides nothing."""
    table = a_table(a_broker(topics=ALL))
    with pytest.raises(Refusal, match="register all of them") as refused:
        table.change(change, connection, 1.0)
    assert refused.value.retryable
    assert table.topics() == ["T", "U"]


def test_the_topics_of_the_leader_count():
    """A follower's changes come with its own copy of the log, later; without a leader it has to tell of all topics."""
    table = a_table(a_broker(topics=ALL), a_broker(broker_id=1, port=2, topics=ALL))
    follower = a_change(gone=["T"], broker_id=1, port=2)
    assert table.change(follower, 2, 1.0) == (False, 0, "")
    assert table.topics() == ["T", "U"]
    table.connection_closed(1, 2.0)
    with pytest.raises(Refusal, match="register all of them"):
        table.change(a_change(gone=["T"], since=1, broker_id=1, port=2), 2, 3.0)


def test_a_topic_that_somebody_named_is_its_own_again_when_the_broker_has_it_no_more():
    table = a_table(a_broker(topics=ALL))
    table.name_topic("N", [QueueData("b", 5, 5, 6)])
    table.change(a_change(TopicConfig("N", 1, 1)), 1, 1.0)
    assert table.route("N").queues == [QueueData("b", 1, 1, 6)]
    table.change(a_change(gone=["N"], since=1), 1, 1.0)
    assert table.route("N").queues == [QueueData("b", 5, 5, 6)]


def test_what_cannot_be_served_is_left_out_and_said(monkeypatch):
    """S9."""
    table = a_table(a_broker(topics=ALL))
    found = table.change(a_change(TopicConfig("T", 2**31 - 1), TopicConfig("V")), 1, 1.0)
    assert found[:2] == (True, 1)
    assert "'T' has 2147483647" in found.about
    assert is_unknown(table, "T"), "as with all topics told: what it was is not what it is"
    monkeypatch.setattr("rmq.routing.table.MAX_ROWS", 2)
    found = table.change(a_change(TopicConfig("U", 7, 7), TopicConfig("W"), since=1), 1, 1.0)
    assert found[:2] == (True, 1)
    assert "this nameserver is full" in found.about
    assert table.route("U").queues == [QueueData("b", 7, 7, 6)]


NAMES = st.sampled_from(["T", "U", "V", "N"])
STEPS = st.lists(st.tuples(st.integers(0, 1), st.dictionaries(NAMES, st.none() | st.integers(1, 3))), max_size=12)


@given(STEPS)
def test_told_alone_or_with_all_others(steps):
    """Two broker groups, of which one has topics that somebody else named."""
    alone, whole = (a_table(a_broker("a"), a_broker("b", port=2)) for _ in range(2))
    for table in (alone, whole):
        table.name_topic("N", [QueueData("a", 9, 9, 6)])
    held = [{"T": TopicConfig("T", 4, 2)} for _ in "ab"]
    versions = [0, 0]
    for which, changes in steps:
        name, topics, version = "ab"[which], held[which], versions[which]
        gone = [topic for topic, queues in changes.items() if queues is None]
        topics |= {topic: TopicConfig(topic, queues, queues) for topic, queues in changes.items() if queues is not None}
        for topic in gone:
            topics.pop(topic, None)
        now = [topics[topic] for topic in changes if topic in topics]
        alone.change(a_change(*now, gone=gone, since=version, name=name, port=which + 1), which + 1, 1.0)
        whole.register(a_broker(name, port=which + 1, topics=topics.values(), counter=version + 1), which + 1, 1.0)
        versions[which] += 1
    assert told(alone) == told(whole)


def told(table: RouteTable):
    """All that can be asked, and how many more topics there is room for."""
    rows = sum(count for *_, count in table.sizes())
    probe = a_broker("probe", port=3, topics=[TopicConfig(f"new-{number}") for number in range(3)])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rmq.routing.table.MAX_ROWS", rows + 2)
        left_out = table.register(probe, 3, 1.0).left_out
    routes = {topic: sorted(table.route(topic).queues) for topic in table.topics()}
    return routes, table.topic_count, table.sizes(), left_out


def test_naming_and_deleting_one_topic_copies_no_others():
    """A request has up to 25 000 rows: each copied all topics of its broker, of which there may be 100 000."""
    table = a_table(a_broker(topics=[TopicConfig(f"T{number}") for number in range(15_000)]))
    tracemalloc.start()
    try:
        table.name_topic("N", [QueueData("b", 5, 5, 6)] * 3)
        assert len(table.route("N").queues) == 1
        table.delete_topic("N")
        assert tracemalloc.get_traced_memory()[1] < 100_000, "bytes; all topics have some 600 kB"
    finally:
        tracemalloc.stop()

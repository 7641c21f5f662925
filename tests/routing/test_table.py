"""The nameserver's mind. Time is an argument, so these tests move it."""

import pytest
from hypothesis import given, strategies as st

from rmq.codes import ResponseCode
from rmq.errors import Refusal
from rmq.model import BrokerAddresses, DataVersion, QueueData, TopicConfig
from rmq.routing.rows import reported
from rmq.routing.table import Registration, Removed, RouteTable

T = TopicConfig("T", 4, 2)


def a_broker(name="b", broker_id=0, port=1, *, epoch=1, topics=(T,), counter=0, cluster="C", members=range(1, 7), **fields):
    """Of a group of six, each with its own port and store, unless `members` says otherwise."""
    store = fields.pop("store", f"store-{port}")
    named = [f"store-{number}" for number in members]
    rows = [reported(topic) for topic in topics]
    return Registration(
        cluster, name, broker_id, f"10.0.0.1:{port}", epoch, rows, DataVersion(counter), store, named, **fields
    )  # fmt: skip


def a_table(*brokers):
    """Each broker registered at time 0 through a connection of its own: 1, 2, ..."""
    table = RouteTable()
    for connection_id, broker in enumerate(brokers, 1):
        table.register(broker, connection_id, 0.0)
    return table


def addresses(table, topic="T"):
    return {group.name: group.addresses for group in table.route(topic).brokers}


def is_unknown(table, topic="T"):
    try:
        table.route(topic)
    except Refusal as refusal:
        return refusal.code == ResponseCode.TOPIC_NOT_EXIST
    return False


def test_a_route_names_every_broker_group_that_holds_the_topic():
    table = a_table(a_broker("b", port=2), a_broker("a", port=1, topics=(TopicConfig("T", 1, 1, 4), TopicConfig("U"))))
    route = table.route("T")
    assert route.brokers == [BrokerAddresses("C", "a", {0: "10.0.0.1:1"}, 1), BrokerAddresses("C", "b", {0: "10.0.0.1:2"}, 1)]
    assert route.queues == [QueueData("a", 1, 1, 4), QueueData("b", 4, 2, 6)]
    assert table.topics() == ["T", "U"]
    assert [group.name for group in table.clusters()] == ["a", "b"]
    assert is_unknown(table, "V")


# --- N1: how long a dead broker stays


def test_a_silent_broker_leaves_after_its_expiry():
    """N1."""
    table = a_table(a_broker())
    assert table.expire(120.0) == []
    assert table.expire(120.1) == [Removed("b", 0, "10.0.0.1:1")]
    assert is_unknown(table)
    assert table.clusters() == []


def test_each_heartbeat_renews():
    """N1."""
    table = a_table(a_broker())
    assert not table.register(a_broker(), 1, 100.0).changed
    assert table.expire(220.0) == []
    assert len(table.expire(220.1)) == 1


def test_a_lost_connection_removes_the_broker_at_once():
    """N1."""
    table = a_table(a_broker("a"), a_broker("b"))
    assert table.connection_closed(1, 5.0) == [Removed("a", 0, "10.0.0.1:1")]
    assert addresses(table) == {"b": {0: "10.0.0.1:1"}}
    assert table.connection_closed(1, 6.0) == []
    assert table.connection_closed(77, 6.0) == []


def test_a_broker_that_reconnected_survives_the_end_of_its_old_connection():
    """N1, N5."""
    table = a_table(a_broker())
    table.register(a_broker(), 2, 1.0)
    assert table.connection_closed(1, 2.0) == []
    assert addresses(table) == {"b": {0: "10.0.0.1:1"}}


def test_goodbye():
    """N1."""
    table = a_table(a_broker(port=1))
    assert not table.unregister("b", 0, "10.0.0.1:9", 1, 1.0)  # somebody else's
    assert not table.unregister("x", 0, "10.0.0.1:1", 1, 1.0)
    assert not table.unregister("b", 0, "10.0.0.1:1", 2, 1.0)  # somebody else says it
    assert addresses(table) == {"b": {0: "10.0.0.1:1"}}
    assert table.unregister("b", 0, "10.0.0.1:1", 1, 1.0)
    assert is_unknown(table)


# --- N2: the larger epoch


def test_a_larger_epoch_replaces_the_leader():
    """N2."""
    table = a_table(a_broker(port=1, epoch=1))
    assert table.register(a_broker(port=2, epoch=2), 2, 1.0).changed
    assert addresses(table) == {"b": {0: "10.0.0.1:2"}}
    assert table.route("T").brokers[0].epoch == 2


def test_a_smaller_epoch_is_refused_and_told_the_leader():
    """N2, N4."""
    table = a_table(a_broker(port=2, epoch=2))
    with pytest.raises(Refusal, match="epoch 1") as refused:
        table.register(a_broker(port=1, epoch=1), 2, 1.0)
    assert refused.value.hint == "10.0.0.1:2"
    assert addresses(table) == {"b": {0: "10.0.0.1:2"}}


def test_of_two_leaders_in_one_epoch_the_first_stays():
    """N2: story 54, two masters with the same number, also two of RocketMQ's."""
    table = a_table(a_broker(port=1, epoch=0, store="", members=()))
    with pytest.raises(Refusal, match="already leads") as refused:
        table.register(a_broker(port=2, epoch=0, store="", members=()), 2, 1.0)
    assert refused.value.hint == "10.0.0.1:1"
    table.connection_closed(1, 2.0)
    again = table.register(a_broker(port=2, epoch=0, store="", members=()), 2, 3.0)
    assert again.changed  # the first has gone: a restart on another port


def test_the_epoch_is_remembered_after_the_leader_left():
    """N2: an old leader does not come back in the minutes after the new one died; later it is a new start."""
    table = a_table(a_broker(port=2, epoch=5))
    table.connection_closed(1, 10.0)
    with pytest.raises(Refusal):
        table.register(a_broker(port=1, epoch=4), 2, 20.0)
    table.expire(129.0)
    with pytest.raises(Refusal):
        table.register(a_broker(port=1, epoch=4), 2, 130.0)
    table.expire(131.0)
    assert table.register(a_broker(port=1, epoch=4), 2, 132.0)


def test_a_broker_that_changes_its_role_is_listed_once():
    """N2."""
    table = a_table(a_broker(port=1, epoch=1), a_broker(broker_id=2, port=2, epoch=1))
    table.register(a_broker(broker_id=0, port=2, epoch=2), 2, 1.0)
    table.register(a_broker(broker_id=1, port=1, epoch=2), 1, 1.0)
    assert addresses(table) == {"b": {0: "10.0.0.1:2", 1: "10.0.0.1:1"}}


# --- N3, N5: what is learnt, and what stays


def test_an_empty_nameserver_learns_all_from_one_heartbeat():
    """N3."""
    brokers = [a_broker(name, port=port) for port, name in enumerate("abc", 1)]
    old, new = a_table(*brokers), a_table(*brokers)
    assert new.route("T") == old.route("T")
    assert new.clusters() == old.clusters()


def test_a_topic_stays_while_one_broker_holds_it():
    """N5."""
    table = a_table(a_broker("a"), a_broker("b"))
    table.connection_closed(1, 1.0)
    assert table.topics() == ["T"]
    table.connection_closed(2, 1.0)
    assert table.topics() == []


def test_a_group_without_leader_is_still_read_from_its_followers():
    """N5: and clients see from the missing key 0 that it cannot be written to."""
    table = a_table(a_broker(port=1), a_broker(broker_id=1, port=2, topics=()))
    table.connection_closed(1, 1.0)
    assert addresses(table) == {"b": {1: "10.0.0.1:2"}}
    table.register(a_broker(broker_id=1, port=2, topics=()), 2, 2.0)
    assert table.topics() == ["T"]  # the leader's word counts, until there is a leader again


def test_followers_alone_tell_their_topics_until_a_leader_does():
    """N3, N5: a nameserver that starts while a group has no leader."""
    table = a_table(a_broker(broker_id=1, port=2), a_broker(broker_id=2, port=3, topics=(T, TopicConfig("U"))))
    assert table.topics() == ["T", "U"]
    table.register(a_broker(port=1, topics=(TopicConfig("V"),)), 3, 1.0)
    assert table.topics() == ["V"]


def test_the_list_of_a_slave_of_rocketmq_does_not_count_beside_its_masters():
    """N5: a slave that starts knows its system topics only, and has no epoch, as its master has none."""
    rocketmq = {"epoch": 0, "store": "", "members": ()}
    table = a_table(a_broker(port=1, **rocketmq), a_broker(broker_id=1, port=2, topics=(), **rocketmq))
    assert addresses(table) == {"b": {0: "10.0.0.1:1", 1: "10.0.0.1:2"}}
    table.connection_closed(1, 1.0)
    table.register(a_broker(broker_id=1, port=2, topics=(), **rocketmq), 2, 2.0)
    assert addresses(table) == {"b": {1: "10.0.0.1:2"}}  # what the master had is read from its slave


def test_a_registration_is_the_whole_list():
    """N5: what a leader no longer names is gone."""
    table = a_table(a_broker(topics=(T, TopicConfig("U"))))
    assert table.register(a_broker(topics=(T,)), 1, 1.0)
    assert table.topics() == ["T"]


def test_a_registration_that_was_overtaken_changes_nothing():
    """N5: sent through the old connection, read after one of the new connection."""
    table = a_table(a_broker(counter=3, topics=()))
    table.register(a_broker(counter=4, topics=(T,)), 9, 1.0)
    assert not table.register(a_broker(counter=3, topics=()), 1, 2.0).changed
    assert table.topics() == ["T"]
    assert table.connection_closed(1, 3.0) == []


def test_a_store_made_anew_counts_from_the_beginning():
    """N5: a smaller version is no older one when it comes through the newest connection."""
    table = a_table(a_broker(counter=1000))
    assert table.register(a_broker(counter=1, topics=()), 2, 1.0)
    assert table.topics() == []


def test_delete_topic():
    table = a_table(a_broker("a", cluster="C"), a_broker("b", cluster="D"))
    assert not table.delete_topic("T", "E")
    assert table.delete_topic("T", "C")
    assert addresses(table) == {"b": {0: "10.0.0.1:1"}}
    assert table.delete_topic("T")
    assert is_unknown(table)
    table.register(a_broker("a"), 1, 1.0)
    assert table.topics() == ["T"]  # it is still there, as its broker says


@pytest.mark.parametrize(
    "broker",
    [
        a_broker("../b"),
        a_broker(cluster=""),
        a_broker(broker_id=-1),
        a_broker(epoch=-1),
        a_broker(store="x" * 65),
        a_broker(members=range(200)),
        *(a_broker()._replace(address=wrong) for wrong in ("host", ":1", "h:0", "h:99999")),
    ],
)
def test_a_registration_that_cannot_be_right_is_refused_whole(broker):
    """S9."""
    table = RouteTable()
    with pytest.raises(Refusal) as refused:
        table.register(broker, 1, 0.0)
    assert refused.value.code == ResponseCode.INVALID_PARAMETER
    assert table.clusters() == []
    assert table.topics() == []


# --- what is left out


LONG = TopicConfig("%RETRY%" + "g" * 120 + "_" + "T" * 127, 1, 1)
KEPT = [T, LONG, TopicConfig("%RETRY%g+T"), TopicConfig("a.b"), TopicConfig("wide", 16_384, 0)]
LEFT_OUT = [
    TopicConfig(""), TopicConfig("x" * 256), TopicConfig("a b"), TopicConfig("a/b"), TopicConfig("a\n"),
    TopicConfig("Q", 2**31 - 1),
    TopicConfig("W", 8, -1), TopicConfig("P", 8, 8, 8), TopicConfig("F", sys_flag=2**31),
]  # fmt: skip


@pytest.mark.parametrize("wrong", LEFT_OUT)
def test_one_topic_that_cannot_be_served_does_not_take_the_others_away(wrong):
    """S9, N5: it alone is left out, and that is said; names that brokers make themselves are served."""
    table = RouteTable()
    outcome = table.register(a_broker(topics=[*KEPT, wrong]), 1, 0.0)
    assert (outcome.changed, outcome.left_out) == (True, 1)
    assert repr(wrong.name[:40]) in outcome.about
    assert table.topics() == sorted(one.name for one in KEPT)
    known = T._replace(read_queue_nums=2**31 - 1)
    assert table.register(a_broker(topics=[known, *KEPT[1:]]), 1, 1.0).left_out == 1, "also one that was served until now"
    assert "T" not in table.topics()


def test_a_nameserver_is_never_more_than_full(monkeypatch):
    """N5: what is there stays, what comes is left out or refused, and there is room again when something goes."""
    monkeypatch.setattr("rmq.routing.table.MAX_NAMES", 5)
    monkeypatch.setattr("rmq.routing.table.MAX_ROWS", 7)
    monkeypatch.setattr("rmq.routing.table.MAX_GROUPS", 2)
    monkeypatch.setattr("rmq.routing.table.MAX_TOPICS_OF_GROUP", 4)
    table = a_table(a_broker("a", topics=[TopicConfig(name) for name in "ABC"]))
    assert table.register(a_broker("b", topics=[TopicConfig(name) for name in "CDEFG"]), 2, 0.0).left_out == 2
    assert table.topics() == ["A", "B", "C", "D", "E"]
    with pytest.raises(Refusal, match="limits"):
        table.register(a_broker("c", port=3), 3, 0.0)
    assert table.register(a_broker("a", topics=[TopicConfig(name) for name in "AVWXY"]), 1, 1.0).left_out >= 3
    table.connection_closed(1, 2.0)
    table.expire(200.0)
    assert table.topics() == []
    assert table.register(a_broker("c", port=3), 3, 201.0).changed


def test_one_connection_speaks_for_a_few_brokers():
    table = RouteTable()
    for number in range(8):
        table.register(a_broker(f"b{number}", port=number + 1), 1, 0.0)
    with pytest.raises(Refusal, match="8 broker groups"):
        table.register(a_broker("b8"), 1, 0.0)
    table.register(a_broker("b7", port=8), 1, 1.0)


def test_a_group_has_so_many_brokers():
    table = RouteTable()
    for number in range(100):
        table.register(a_broker(broker_id=number, port=number + 1), number + 1, 0.0)
    with pytest.raises(Refusal, match="100 brokers"):
        table.register(a_broker(broker_id=100, port=101), 101, 0.0)


def test_a_list_in_pieces_of_rocketmqs_adds_up():
    """[enableSplitRegistration]: 800 topics at a time; nothing tells which is the last, so nothing goes by being left out."""
    table = RouteTable()
    for part in ("AB", "CD"):
        topics = [TopicConfig(name) for name in part]
        table.register(a_broker(epoch=0, store="", members=(), whole=False, topics=topics), 1, 0.0)
    assert table.topics() == ["A", "B", "C", "D"]
    table.register(a_broker(epoch=0, store="", members=(), whole=False, topics=[TopicConfig("A", 1, 1)]), 1, 1.0)
    assert [row.read_queue_nums for row in table.route("A").queues] == [1]
    assert [row.read_queue_nums for row in table.route("B").queues] == [8]
    table.delete_topic("D")
    assert table.topics() == ["A", "B", "C"]


# --- any history

EVENTS = st.lists(
    st.one_of(
        st.tuples(
            st.just("register"), st.sampled_from("ab"), st.integers(0, 2), st.integers(1, 4), st.integers(1, 3), st.integers(1, 6)
        ),
        st.tuples(st.just("close"), st.integers(1, 6)),
        st.tuples(st.just("pass"), st.integers(1, 100)),
        st.tuples(st.just("scan")),
    ),
    max_size=40,
)


@given(events=EVENTS)
def test_after_any_history(events):
    """N1, N2, N5: a listed broker was heard within its expiry through an open connection; an epoch never goes back."""
    table, now, scanned = RouteTable(), 0.0, 0.0
    heard, epochs = {}, {}
    for kind, *details in events:
        if kind == "pass":
            now += details[0]
        elif kind == "scan":
            table.expire(now)
            scanned = now
            heard = {who: (when, connection) for who, (when, connection) in heard.items() if now - when <= 120.0}
        elif kind == "close":
            table.connection_closed(details[0], now)
            heard = {who: (when, connection) for who, (when, connection) in heard.items() if connection != details[0]}
        else:
            name, broker_id, port, epoch, connection_id = details
            try:
                table.register(a_broker(name, broker_id, port, epoch=epoch), connection_id, now)
            except Refusal:
                pass
            else:
                who = (name, broker_id, f"10.0.0.1:{port}")
                if who not in heard or heard[who][1] <= connection_id:
                    heard[who] = (now, connection_id)
        there = {(group.name, *member) for group in table.clusters() for member in group.addresses.items()}
        heard = {who: last for who, last in heard.items() if who in there}  # a broker that claims another id gives its id up
        for group in table.clusters():
            assert len(set(group.addresses.values())) == len(group.addresses)
            for broker_id, address in group.addresses.items():
                assert scanned - heard[group.name, broker_id, address][0] <= 120.0
            assert group.epoch >= epochs.get(group.name, 0)
        epochs = {group.name: group.epoch for group in table.clusters()}
        assert bool(table.topics()) == bool(table.clusters())
    table.expire(now + 120.1)
    assert table.clusters() == []
    assert table.topics() == []


def test_ten_thousand_topics_at_a_hundred_brokers_are_no_burden():
    """The aim of the design; generous here, so that it fails only when the cost grows with topics x brokers."""
    topics = [TopicConfig(f"topic-{number}") for number in range(10_000)]
    table = RouteTable()
    for number in range(100):
        table.register(a_broker(f"broker-{number}", topics=topics), number + 1, 0.0)
    assert len(table.route("topic-77").brokers) == 100
    assert len(table.topics()) == 10_000
    rows = {id(data) for number in range(0, 10_000, 100) for data in table.route(f"topic-{number}").queues}
    assert len(rows) == 100  # one shared row for each broker group, not a million

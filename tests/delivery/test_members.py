"""Who is connected. Time is an argument, so these tests move it."""

import pytest
from hypothesis import given, strategies as st

from rmq.delivery.groups import ConsumerRegistry
from rmq.delivery.members import PLACES, SUBSCRIPTION_BYTES
from rmq.errors import Refusal
from rmq.model import ConnectionInfo, ConsumerData, Subscription
from rmq.testing import entries


def consumer(group="g", *topics, version=1, expression="*"):
    return ConsumerData(group, subscriptions=[Subscription(topic, expression, version=version) for topic in topics or ("T",)])


def beat(registry, connection_id, client_id, *consumers, now=0.0, producers=(), **more):
    address = f"10.0.0.1:{connection_id}"
    return registry.heartbeat(connection_id, client_id, "JAVA", 513, address, consumers, producers, now, **more)


def test_members_are_sorted_and_named_once():
    """C8: all members must split by the same list."""
    registry = ConsumerRegistry()
    assert beat(registry, 1, "c", consumer()).changed == {"g"}
    assert beat(registry, 2, "a", consumer()).changed == {"g"}
    assert beat(registry, 3, "B", consumer()).changed == {"g"}
    assert beat(registry, 3, "B", consumer()).changed == set()
    assert registry.members("g") == ["B", "a", "c"]
    assert registry.connections_of("g") == [1, 2, 3]
    assert registry.members("nobody") == []


def test_a_client_that_reconnects_is_one_member():
    """C8: neither its new connection nor the end of the old one is a change."""
    registry = ConsumerRegistry()
    beat(registry, 1, "a", consumer())
    assert beat(registry, 2, "a", consumer()).changed == set()
    assert registry.members("g") == ["a"]
    assert registry.connection_closed(1) == set()
    assert registry.members("g") == ["a"]
    assert registry.connection_closed(2) == {"g"}
    assert registry.members("g") == []


def test_a_silent_connection_leaves_after_its_expiry():
    """T1: on the monotonic clock."""
    registry = ConsumerRegistry()
    beat(registry, 1, "a", consumer(), now=0.0)
    beat(registry, 2, "b", consumer(), now=50.0)
    assert registry.expire(120.0) == set()
    assert registry.expire(120.1) == {"g"}
    assert registry.members("g") == ["b"]


def test_a_group_that_is_no_longer_named_is_left():
    """The goodbye may have been lost; the connection goes on with another group."""
    registry = ConsumerRegistry()
    beat(registry, 1, "a", consumer("g"), consumer("h"), producers=["p"])
    beat(registry, 1, "a", consumer("h"), now=100.0)
    assert registry.expire(120.1) == {"g"}
    assert registry.members("h") == ["a"]
    assert registry.producers_of("p") == []


def test_goodbye():
    registry = ConsumerRegistry()
    beat(registry, 1, "a", consumer("g"), consumer("h"), producers=["p"])
    assert registry.unregister(1, "somebody else", "", "g") == set()
    assert registry.unregister(2, "a", "", "g") == set()
    assert registry.unregister(1, "a", "p", "g") == {"g"}
    assert registry.producers_of("p") == []
    assert registry.members("g") == []
    assert registry.members("h") == ["a"]
    assert registry.connection_closed(1) == {"h"}


def test_subscriptions():
    registry = ConsumerRegistry()
    beat(registry, 1, "a", consumer("g", "T", "U"))
    assert registry.subscription("g", "T") == Subscription("T", version=1)
    assert registry.subscription("g", "X") is None
    assert registry.subscription("x", "T") is None
    assert registry.topics_of("g") == {"T", "U"}
    assert registry.groups_of("T") == {"g"}
    assert beat(registry, 1, "a", consumer("g", "U", "V")).changed == {"g"}
    assert registry.topics_of("g") == {"U", "V"}
    assert registry.groups_of("T") == set()
    registry.connection_closed(1)
    assert registry.groups_of("U") == set()
    assert registry.subscription("g", "U") is None


def test_a_newer_version_is_taken_but_is_no_change_by_itself():
    """Clients raise it when they rebalance; a notice about it would make them rebalance again, without end."""
    registry = ConsumerRegistry()
    beat(registry, 1, "a", consumer(version=1))
    assert beat(registry, 1, "a", consumer(version=2)).changed == set()
    assert registry.subscription("g", "T").version == 2
    assert beat(registry, 1, "a", consumer(version=3, expression="x")).changed == {"g"}
    assert beat(registry, 1, "a", consumer(version=2, expression="old")).changed == set()
    assert registry.subscription("g", "T").expression == "x"


def test_the_view():
    registry = ConsumerRegistry()
    assert registry.connection_view("g") is None
    data = ConsumerData("g", "CONSUME_ACTIVELY", "BROADCASTING", "CONSUME_FROM_FIRST_OFFSET", [Subscription("T")])
    beat(registry, 2, "b", data)
    beat(registry, 1, "a", data)
    view = registry.connection_view("g")
    assert view.connections == [ConnectionInfo("a", "10.0.0.1:1", "JAVA", 513), ConnectionInfo("b", "10.0.0.1:2", "JAVA", 513)]
    assert view[1:] == ("CONSUME_ACTIVELY", "BROADCASTING", "CONSUME_FROM_FIRST_OFFSET", [Subscription("T")])


def test_a_client_id_that_could_forge_a_line_is_refused():
    """S9."""
    with pytest.raises(Refusal):
        beat(ConsumerRegistry(), 1, "a\nb", consumer())


def test_members_that_want_something_else():
    """Said once for each; tags in another order, retry topics, and a client that comes again differ in nothing."""
    registry = ConsumerRegistry()
    beat(registry, 1, "a", consumer(expression="x || y"))
    alike = consumer(expression="y||x")
    alike = alike._replace(subscriptions=[*alike.subscriptions, Subscription("%RETRY%g")])
    assert not registry.differing(2, "b", alike)
    beat(registry, 2, "b", alike)
    other = consumer(expression="z")
    assert not registry.differing(1, "unknown", consumer("h", expression="z"))
    assert registry.differing(3, "c", other) == "c subscribes to T: z, but a does not (the group: T: x || y)"
    beat(registry, 3, "c", other)
    assert not registry.differing(3, "c", other)
    beat(registry, 3, "c", ConsumerData("g"), fingerprint=7, without_sub=True)
    assert not registry.differing(3, "c", other), "as it said before"
    assert "a subscribes" in registry.differing(1, "a", consumer(expression="q"))
    assert len(registry.differing(4, "d", consumer(expression="w" * 100_000))) < 600
    alone = ConsumerRegistry()
    beat(alone, 1, "a", consumer())
    assert not alone.differing(2, "a", other), "the same client, again"


# --- heartbeat V2: a fingerprint instead of the subscriptions


def test_clients_without_fingerprint_are_told_that_subscriptions_changed():
    """As Apache RocketMQ 5.5 answers every heartbeat of V1."""
    assert beat(ConsumerRegistry(), 1, "a", consumer()).sub_changed


def test_the_same_fingerprint_needs_no_subscriptions():
    registry = ConsumerRegistry()
    assert not beat(registry, 1, "a", consumer(), fingerprint=7).sub_changed
    outcome = beat(registry, 1, "a", ConsumerData("g"), fingerprint=7, without_sub=True, now=100.0)
    assert outcome == (set(), False, "")
    assert registry.topics_of("g") == {"T"}
    assert registry.expire(150.0) == set()


def test_another_fingerprint_asks_for_the_full_form():
    registry = ConsumerRegistry()
    beat(registry, 1, "a", consumer(), fingerprint=7)
    assert beat(registry, 1, "a", ConsumerData("g"), fingerprint=8, without_sub=True).sub_changed
    assert beat(registry, 1, "a", ConsumerData("g"), fingerprint=8, without_sub=True).sub_changed  # until it comes
    assert beat(registry, 1, "a", consumer("g", "U"), fingerprint=8) == ({"g"}, True, "")
    assert not beat(registry, 1, "a", ConsumerData("g"), fingerprint=8, without_sub=True).sub_changed
    assert registry.topics_of("g") == {"U"}


def test_a_restarted_broker_asks_for_the_full_form():
    """The client believes that its subscriptions are known."""
    registry = ConsumerRegistry()
    outcome = beat(registry, 1, "a", ConsumerData("g"), fingerprint=7, without_sub=True)
    assert outcome == ({"g"}, True, "")
    assert registry.members("g") == ["a"]


# --- any history

STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("beat"),
            st.integers(1, 4),
            st.sampled_from("ab"),
            st.sets(st.sampled_from("gh")),
            st.sets(st.sampled_from("TU")),
        ),
        st.tuples(st.just("close"), st.integers(1, 4)),
        st.tuples(st.just("bye"), st.integers(1, 4), st.sampled_from("ab"), st.sampled_from("gh")),
    ),
    max_size=30,
)


@given(steps=STEPS)
def test_the_members_are_those_who_said_so(steps):
    """C8: and a group whose members changed is named, no other."""
    registry, said = ConsumerRegistry(), {}
    for kind, connection_id, *details in steps:
        before = {group: registry.members(group) for group in "gh"}
        topics_before = {group: registry.topics_of(group) for group in "gh"}
        if kind == "beat":
            client_id, names, topics = details
            wanted = [Subscription(topic) for topic in sorted(topics)]
            consumers = [ConsumerData(name, subscriptions=wanted) for name in sorted(names)]
            changed = beat(registry, connection_id, client_id, *consumers).changed
            said.update({(name, connection_id): client_id for name in names})
        elif kind == "close":
            changed = registry.connection_closed(connection_id)
            said = {place: client_id for place, client_id in said.items() if place[1] != connection_id}
        else:
            client_id, group = details
            changed = registry.unregister(connection_id, client_id, "", group)
            if said.get((group, connection_id)) == client_id:
                del said[group, connection_id]
        for group in "gh":
            assert registry.members(group) == sorted({client_id for place, client_id in said.items() if place[0] == group})
            members_differ = registry.members(group) != before[group]
            topics_differ = registry.topics_of(group) != topics_before[group]
            assert (group in changed) == (members_differ or (topics_differ and kind == "beat"))
            for topic in "TU":
                assert (group in registry.groups_of(topic)) == (topic in registry.topics_of(group))


def names(count, prefix="p"):
    return [f"{prefix}{number}" for number in range(count)]


def test_a_client_is_in_so_many_groups_and_others_have_room_all_the_same():
    """As a producer or a consumer; what goes leaves room."""
    registry = ConsumerRegistry()
    most = PLACES.of_connection
    assert "1000" in beat(registry, 1, "a", producers=names(most + 5)).refused
    assert "1000" in beat(registry, 1, "a", consumer("g")).refused
    assert registry.producers_of(f"p{most}") == []
    assert registry.members("g") == []
    assert not beat(registry, 1, "a", producers=names(most)).refused, "those that it has are kept"
    assert not beat(registry, 2, "b", consumer("g"), producers=["p0"]).refused
    assert registry.unregister(1, "a", "p0", "") == set()
    assert not beat(registry, 1, "a", consumer("g")).refused
    registry.connection_closed(1)
    registry.connection_closed(2)
    assert entries(registry) == 0


def test_a_connection_whose_client_changes_its_id_leaves_none_behind():
    """D18: each id of a heartbeat stayed for ever, and the connection was asked for what another client had begun."""
    registry = ConsumerRegistry()
    for number in range(10):
        beat(registry, 1, f"c{number}", producers=["g"])
    beat(registry, 1, "other", producers=["h", "i"])
    assert [registry.producing(client) for client in ("c0", "c9", "other")] == [[], [1], [1]]
    registry.unregister(1, "other", "h", "")
    assert registry.producing("other") == [1]
    registry.connection_closed(1)
    assert entries(registry) == 0


def test_all_connections_of_one_address_have_a_share_together():
    registry = ConsumerRegistry()
    wanted = [PLACES.of_connection] * (PLACES.of_address // PLACES.of_connection)
    for connection, count in enumerate(wanted, 1):
        assert not registry.heartbeat(connection, "a", "JAVA", 513, f"10.0.0.1:{connection}", (), names(count), 0.0).refused
    assert "10.0.0.1" in registry.heartbeat(99, "a", "JAVA", 513, "10.0.0.1:99", (), ["p"], 0.0).refused
    assert not registry.heartbeat(100, "b", "JAVA", 513, "10.0.0.2:1", (), ["p"], 0.0).refused
    registry.expire(500.0)
    assert entries(registry) == 0


def test_a_producer_group_has_a_name_of_some_length():
    registry = ConsumerRegistry()
    assert "255" in beat(registry, 1, "a", producers=["x" * 256, "", "good"]).refused
    assert [len(registry.producers_of(name)) for name in ("x" * 256, "", "good")] == [0, 0, 1]


def test_subscriptions_are_bounded_in_bytes_and_those_before_stay():
    registry = ConsumerRegistry()
    long = "t" * (SUBSCRIPTION_BYTES.of_connection // 2)
    assert not beat(registry, 1, "a", consumer("g", version=1), consumer("h", version=1, expression=long)).refused
    assert "bytes of subscriptions" in beat(registry, 1, "a", consumer("g", version=2, expression=long + long)).refused
    assert registry.subscription("g", "T").expression == "*"
    assert registry.members("g") == ["a"]
    assert not beat(registry, 2, "b", consumer("g", version=3, expression=long)).refused, "another client has room"
    older = consumer("g", version=1)
    more = consumer("h", version=1, expression=long)
    assert "bytes of subscriptions" in beat(registry, 2, "b", older, more).refused, "it changes nothing, so it costs as much"
    for connection in (1, 2):
        registry.connection_closed(connection)
    assert entries(registry) == 0


def test_tags_and_codes_count_too():
    registry = ConsumerRegistry()
    many = ConsumerData("g", subscriptions=[Subscription("T", tags=["a"] * 9_000, codes=[1] * 9_000)])
    assert registry.heartbeat(1, "a", "JAVA", 513, "h:1", [many], (), 0.0).refused

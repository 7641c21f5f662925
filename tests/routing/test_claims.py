"""Who may take whose place at a nameserver: the rules in docs/operators.md, one by one. Times are arguments."""

import pytest

from rmq.errors import Refusal
from rmq.model import TopicConfig
from rmq.routing.rows import reported
from rmq.routing.table import Registration, RouteTable

T = [TopicConfig("T")]


class World:
    """A nameserver's table; every broker has a connection of its own."""

    def __init__(self):
        self.table = RouteTable()
        self.connections = {}
        self.now = 0.0

    def register(self, port, epoch, *members, store=None, broker_id=0, topics=T):
        """`members`: the ports of the group's nodes; none: it stands alone."""
        store = f"store-{port}" if store is None else store
        broker = Registration(
            "C",
            "b",
            broker_id,
            f"h:{port}",
            epoch,
            list(map(reported, topics)),
            store=store,
            members=[f"store-{one}" for one in members],
        )
        connection = self.connections.setdefault((port, store), len(self.connections) + 1)
        return self.table.register(broker, connection, self.now)

    def refused(self, *claim, **fields):
        before = self.table.clusters(), self.table.topics()
        with pytest.raises(Refusal) as refused:
            self.register(*claim, **fields)
        assert (self.table.clusters(), self.table.topics()) == before, "a refusal changes nothing"
        return refused.value

    def dies(self, port, store=None):
        connection = self.connections.pop((port, f"store-{port}" if store is None else store))
        self.table.connection_closed(connection, self.now)

    @property
    def addresses(self):
        return {broker_id: int(address[2:]) for group in self.table.clusters() for broker_id, address in group.addresses.items()}


@pytest.fixture
def world():
    return World()


# --- while somebody leads


@pytest.mark.parametrize("epoch", [5, 6, 2**62, 2**63 - 1])
@pytest.mark.parametrize("store", ["stranger", ""])
def test_no_epoch_takes_a_route_from_a_broker_that_is_there(world, epoch, store):
    """N2: another cluster's broker of that name, or somebody who wants its messages."""
    world.register(1, 5)
    assert world.refused(9, epoch, 9, store=store).hint == "h:1"
    world.now = 65.0
    assert world.refused(9, epoch, 1, 9, store=store).hint == "h:1", "and naming it as a member changes nothing"
    assert world.addresses == {0: 1}


def test_a_member_that_the_leader_named_takes_over_with_a_larger_epoch(world):
    """N2: an old leader that is cut off from its group, not from the nameserver, is replaced at once."""
    world.register(1, 5, 1, 2, 3)
    world.refused(2, 5, 1, 2, 3)
    world.refused(2, 4, 1, 2, 3)
    assert world.register(2, 6, 1, 2, 3).changed
    assert world.addresses == {0: 2}
    assert world.refused(1, 5, 1, 2, 3).hint == "h:2"


def test_a_copy_of_its_disk_does_not_take_its_place(world):
    """A machine image that was started twice: the second one has a later epoch of the same store."""
    world.register(1, 5)
    world.refused(2, 6, store="store-1")
    world.dies(1)
    assert world.register(2, 6, store="store-1").changed


def test_one_that_is_silent_may_be_replaced_before_it_expires(world):
    """A machine that lost its power closes no connection; registrations come every 30 s."""
    world.register(1, 5)
    world.now = 64.0
    world.refused(2, 1)
    world.now = 66.0
    assert world.register(2, 1).changed
    assert world.addresses == {0: 2}


def test_nobody_tells_its_topics_in_its_name(world):
    """At the same address, which may be told by anybody."""
    world.register(1, 5)
    world.refused(1, 7, store="stranger", topics=[])
    world.refused(1, 7, store="stranger", broker_id=3)
    assert world.register(1, 5).changed is False


def test_the_same_broker_registers_anew_through_another_connection(world):
    world.register(1, 5)
    world.connections.clear()
    assert not world.register(1, 5).changed
    assert world.register(1, 6).changed, "it was started again, and its old end was not noticed yet"
    assert world.addresses == {0: 1}


# --- when nobody leads


def test_a_lone_broker_with_an_empty_store_begins_at_once(world):
    """Its disk was lost, its address may be another one: the old one is gone, whatever epoch it had."""
    world.register(1, 57)
    world.dies(1)
    assert world.register(2, 1).changed
    assert world.addresses == {0: 2}


def test_a_lone_broker_from_a_backup_begins_at_once(world):
    world.register(1, 57)
    world.dies(1)
    assert world.register(2, 12, store="store-1").changed


def test_an_old_leader_of_a_group_does_not_come_back(world):
    """N2: for two minutes, though nobody of its group is registered."""
    world.register(2, 5, 1, 2, 3)
    world.dies(2)
    world.refused(1, 4, 1, 2, 3)
    assert world.register(1, 6, 1, 2, 3).changed


def test_another_group_waits_until_the_last_member_is_gone(world):
    world.register(1, 5, 1, 2, 3)
    world.register(2, 5, 1, 2, 3, broker_id=2)
    world.dies(1)
    world.refused(9, 99)
    assert world.register(3, 6, 1, 2, 3).changed, "one of the group"
    world.dies(3)
    world.dies(2)
    assert world.register(9, 1).changed


def test_a_disk_that_was_replaced_leads_as_soon_as_a_member_names_it(world):
    world.register(1, 5, 1, 2, 3)
    world.register(2, 5, 1, 2, 4, broker_id=2)
    world.dies(1)
    assert world.register(4, 6, 1, 2, 4).changed


def test_followers_that_nobody_named_keep_no_leader_away(world):
    """A nameserver that has just started hears first of a node that is being added."""
    world.register(4, 5, broker_id=4)
    assert world.register(1, 5, 1, 2, 3).changed
    assert world.addresses == {0: 1, 4: 4}


def test_rocketmqs_broker_follows_one_of_ours_and_back(world):
    """Moving back and forth: a stopped broker's name is free, whatever its epoch was."""
    world.register(1, 57)
    world.dies(1)
    assert world.register(1, 0, store="").changed
    world.refused(1, 58)
    world.dies(1, "")
    assert world.register(1, 58).changed


# --- followers


def test_a_follower_keeps_its_number_while_it_is_there(world):
    world.register(1, 5, 1, 2, 3)
    world.register(2, 5, 1, 2, 3, broker_id=1)
    world.refused(3, 5, 1, 2, 3, broker_id=1)
    world.register(7, 5, 1, 2, 3, broker_id=1, store="store-2")
    assert world.addresses == {0: 1, 1: 7}, "the same store at another address"


def test_two_slaves_of_rocketmq_are_what_they_were(world):
    """RocketMQ's rule, as they tell no store: the later one."""
    world.register(1, 0, store="")
    world.register(2, 0, store="", broker_id=1)
    world.register(3, 0, store="", broker_id=1)
    assert world.addresses == {0: 1, 1: 3}


def test_two_that_exchange_their_numbers_do_not_wait_for_each_other(world):
    """Fixed roles: a master hands over, and neither hears at once that the other one left its place."""
    world.register(1, 5, 1, 2)
    world.register(2, 5, 1, 2, broker_id=1)
    with pytest.raises(Refusal):
        world.register(1, 5, 1, 2, broker_id=1)  # which 2 still has
    assert world.addresses == {1: 2}
    world.register(2, 6, 1, 2)
    world.register(1, 6, 1, 2, broker_id=1)
    assert world.addresses == {0: 2, 1: 1}

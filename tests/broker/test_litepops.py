"""Pops of lite topics: in order in each, to clients that want them, until they are acknowledged."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rmq.broker.pending.lites import SLICE
from rmq.codes import ResponseCode as R
from rmq.delivery.lites import MOST_OF_ONE
from rmq.errors import Refusal
from rmq.names import lite_queue
from rmq.net.commands import DeleteGroup, DeleteTopic, Pull, QueryConsumerOffset, UpdateConsumerOffset, UpdateGroup
from rmq.net.commands.access import PolicyEntry
from rmq.net.commands.configuration import UpdateBrokerConfig
from rmq.net.commands.lites import (
    COMPLETE_REMOVE,
    PARTIAL_ADD,
    PARTIAL_REMOVE,
    DeclareLites,
    GetBrokerLiteInfo,
    GetParentTopicInfo,
    LiteTaken,
    TriggerLiteDispatch,
)
from rmq.net.commands.pop import Ack
from rmq.testing import LocalBroker, TestClock
from tests.broker.conftest import Connect
from tests.broker.groups import LocalGroup
from tests.broker.helddisk import HeldDisk
from tests.broker.litepops import ack_lites, bodies_of, bound, declare, hide, pop_lite, popped_lites, take_lites
from tests.broker.support import Peer
from tests.broker.test_access import SETTINGS, login, make_user
from tests.broker.test_lights import LIGHT
from tests.broker.test_lites import LONG, parent, to_lite


@pytest.fixture
async def local() -> AsyncIterator[LocalBroker]:
    async with LocalBroker(clock=TestClock(), **LIGHT) as broker:
        yield broker


@pytest.fixture
async def peer(local: LocalBroker) -> AsyncIterator[Peer]:
    """Knows topic P of type LITE, and group g that is bound to it."""
    peer = await Peer.connect(local.address)
    await peer.ask(parent())
    await peer.ask(bound())
    yield peer
    await peer.close()


async def test_each_lite_topic_is_popped_in_order(peer: Peer) -> None:
    """The next of a lite topic come when these are acknowledged, or these again; others do not wait for it."""
    await peer.send(to_lite("a", b"a1"), to_lite("a", b"a2"), to_lite("b", b"b1"), to_lite("c", b"c1"))
    await peer.ask(declare("a", "b"))
    first = await take_lites(peer.ask, count=1)
    assert [(one.body, one.lite, one.offset) for one in first] == [(b"a1", "a", 0)]
    assert await bodies_of(peer.ask) == [b"b1"], "a is closed, c not wanted"
    assert await bodies_of(peer.ask) == []
    await ack_lites(peer.ask, *first)
    await ack_lites(peer.ask, *first)  # once more does no harm
    assert (await peer.ask(QueryConsumerOffset("g", lite_queue("P", "a"), 0))).offset == 1
    assert await bodies_of(peer.ask) == [b"a2"]
    await peer.send(to_lite("b", b"b2"), to_lite("d", b"d1"))
    await peer.ask(declare("d", action=PARTIAL_ADD))
    assert await bodies_of(peer.ask) == [b"d1"]
    await peer.ask(declare("a", "b", action=PARTIAL_REMOVE))
    await peer.ask(declare("a", action=COMPLETE_REMOVE))
    await peer.send(to_lite("d", b"d2"))
    assert await bodies_of(peer.ask) == [], "it wants none any more"
    with pytest.raises(Refusal) as unknown:
        await peer.ask(pop_lite(declared=True))
    assert unknown.value.code == R.SUBSCRIPTION_NOT_EXIST


async def test_what_is_not_acknowledged_comes_again(local: LocalBroker, peer: Peer) -> None:
    """After its invisible time, or another one; with how often it came; a client that waits hears of it."""
    await peer.send(*(to_lite("a", b"%d" % number) for number in range(3)))
    await peer.ask(declare("a", "b"))
    first = await take_lites(peer.ask, hidden_ms=10_000)
    await ack_lites(peer.ask, first[0])
    waiting = asyncio.create_task(peer.ask(pop_lite(poll_ms=30_000, hidden_ms=10_000)))
    await local.clock.advance_until(waiting.done)
    again = popped_lites(await waiting)
    assert [(one.body, one.tries) for one in again] == [(b"1", 1), (b"2", 1)]
    with pytest.raises(Refusal) as ended:
        await peer.ask(hide(first[1], 5000))
    assert ended.value.code == R.NO_MESSAGE
    for one in again:
        assert (await peer.ask(hide(one, 0))).revive_qid == 999
    waiting = asyncio.create_task(peer.ask(pop_lite(poll_ms=30_000)))
    await local.clock.advance_until(waiting.done)
    last = popped_lites(await waiting)
    assert [(one.body, one.tries) for one in last] == [(b"1", 2), (b"2", 2)]
    await ack_lites(peer.ask, *again)
    assert (await peer.ask(QueryConsumerOffset("g", lite_queue("P", "a"), 0))).offset == 1, "earlier receipts move nothing"
    await ack_lites(peer.ask, *reversed(last))
    assert (await peer.ask(QueryConsumerOffset("g", lite_queue("P", "a"), 0))).offset == 3
    waiting = asyncio.create_task(peer.ask(pop_lite(poll_ms=30_000)))
    await peer.send(to_lite("b", b"new"))
    assert popped_lites(await waiting)[0].body == b"new", "it is woken"
    assert await bodies_of(peer.ask) == []


async def test_what_could_not_be_handed_out_comes_by_itself(local: LocalBroker, peer: Peer) -> None:
    """Its client was refused once (here: an offset of the group could not be written), and no further message came."""
    await peer.send(*(to_lite("a", b"%d" % number) for number in range(2)), to_lite("b", b"of b"))
    await peer.ask(declare("a"))
    local.serving.appender.refuse("full", "full", "full")
    peer.channel.post(UpdateConsumerOffset("g", lite_queue("P", "a"), 0, 1))
    assert await peer.refusal(pop_lite()) == R.SERVICE_NOT_AVAILABLE
    local.serving.appender.refuse("", "", "")
    waiting = asyncio.create_task(peer.ask(pop_lite(poll_ms=30_000)))
    await local.clock.advance_until(waiting.done)
    assert [one.body for one in popped_lites(await waiting)] == [b"1"]


async def test_an_attempt_that_is_repeated_gets_the_same(peer: Peer) -> None:
    await peer.send(to_lite("a", b"1"))
    await peer.ask(declare("a"))
    assert await bodies_of(peer.ask, attempt_id="x") == [b"1"]
    for client in ("c", "d"):
        await peer.ask(declare("a", client=client))
    assert await bodies_of(peer.ask, "d", attempt_id="y") == []
    await peer.ask(declare(action=COMPLETE_REMOVE))
    await peer.ask(declare("a"))
    again = await take_lites(peer.ask, attempt_id="x")
    assert [(one.body, one.tries) for one in again] == [(b"1", 0)]


async def test_an_attempt_whose_answer_was_lost_gets_the_same_first(peer: Peer) -> None:
    """With a connection, say, and the client is known as before: it was given what is new elsewhere, and its own stood still."""
    await peer.send(to_lite("a", b"a1"), to_lite("b", b"b1"), to_lite("b", b"b2"))
    await peer.ask(declare("a", "b", "c"))
    assert await bodies_of(peer.ask, count=3, attempt_id="x") == [b"a1", b"b1", b"b2"]
    await peer.send(to_lite("c", b"c1"))
    assert await bodies_of(peer.ask, count=3, attempt_id="x") == [b"a1", b"b1", b"b2"]
    assert await bodies_of(peer.ask, count=4, attempt_id="x") == [b"a1", b"b1", b"b2", b"c1"]
    assert await bodies_of(peer.ask, attempt_id="y") == [], "another attempt waits for its acknowledgements"


async def test_an_attempt_of_which_nobody_knew_whether_it_counts_gets_the_same_first(tmp_path: Path) -> None:
    """The disk stood still, so it was answered with "outcome unknown": its messages stood still until their time was over."""
    disk = HeldDisk()
    async with LocalGroup(tmp_path, count=1, disks={"n0": disk}, flush="sync", **LIGHT) as group:
        peer = await group.connect(await group.leader())
        for request in (parent(), bound(), declare("a", "b")):
            await peer.ask(request)
        await peer.send(to_lite("a", b"a1"), to_lite("b", b"b1"))
        disk.flushes.clear()
        late = asyncio.create_task(peer.refusal(pop_lite(count=1, attempt_id="x")))
        await group.clock.advance_until(late.done)
        assert await late == R.SYSTEM_ERROR
        try:
            assert await peer.refusal(pop_lite(count=1, attempt_id="x")) == R.SYSTEM_ERROR, "it is too early to tell"
        finally:
            disk.flushes.set()
        await group.level()
        assert await bodies_of(peer.ask, count=1, attempt_id="x") == [b"a1"]
        assert await bodies_of(peer.ask, count=1, attempt_id="y") == [b"b1"]


@pytest.mark.parametrize("wildcard", [False, True])
async def test_an_attempt_that_another_leader_hears_of(local: LocalBroker, peer: Peer, connect: Connect, wildcard: bool) -> None:
    """That one does not know the client: it gave it what was new in other lite topics, or, as to one that wants all, nothing."""
    await peer.ask(bound(**({"sub_wildcard": "true"} if wildcard else {})))
    wanted = declare(*(() if wildcard else ("a", "b")))
    await peer.ask(wanted)
    await peer.send(to_lite("b", b"b1"))
    assert await bodies_of(peer.ask, attempt_id="x") == [b"b1"]
    await peer.send(to_lite("a", b"a1"))
    await local.stop_broker()
    await local.start_broker()
    peer = await connect(local)
    await peer.ask(wanted)
    again = await take_lites(peer.ask, count=1, attempt_id="x")
    assert [one.body for one in again] == [b"b1"]
    assert await bodies_of(peer.ask, attempt_id="y") == [b"a1"]
    await ack_lites(peer.ask, *again)
    assert await bodies_of(peer.ask, attempt_id="x") == [], "of what is done nothing comes again"


async def test_clients_of_a_group_share_a_lite_topic(local: LocalBroker, peer: Peer) -> None:
    """Each message goes to one of them; another group gets it too; with a client its share is not lost."""
    await peer.ask(bound("h"))
    for client in ("c1", "c2"):
        await peer.ask(declare("a", "b", client=client))
    await peer.ask(declare("a", group="h"))
    await peer.send(to_lite("a", b"1"), to_lite("b", b"2"))
    first, second = await bodies_of(peer.ask, "c1", count=1), await bodies_of(peer.ask, "c2")
    assert (first, second) == ([b"1"], [b"2"])
    assert await bodies_of(peer.ask, group="h") == [b"1"]
    waiting = [asyncio.create_task(peer.ask(pop_lite(client, poll_ms=30_000, hidden_ms=1000))) for client in ("c1", "c2")]
    await peer.send(to_lite("c", b"nobody's"))
    await peer.ask(declare("c", client="c2", action=PARTIAL_ADD))
    done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    assert [popped_lites(each.result())[0].body for each in done] == [b"nobody's"]
    assert waiting[1] in done
    await peer.ask(declare(client="c2", action=COMPLETE_REMOVE))
    await local.clock.advance_until(waiting[0].done)
    assert popped_lites(await waiting[0]) == [], "c is not what c1 wants"


async def test_an_exclusive_lite_topic_has_one_owner(local: LocalBroker, peer: Peer) -> None:
    """[excludeClientByLmqName] The former one hears of it, also when it does not know it yet and declares all it had."""
    await peer.ask(bound("x", sub_model="Exclusive", sub_reset_offset_exclusive="true", sub_reset_offset_unsubscribe="true"))
    other = await Peer.connect(local.address, "other")
    await peer.send(to_lite("a", b"1"), to_lite("a", b"2"))
    await peer.ask(declare("a", "b", group="x", client="old", action=PARTIAL_ADD))
    await ack_lites(peer.ask, *(await take_lites(peer.ask, "old", group="x", count=1)), group="x")
    await other.ask(declare("a", group="x", client="new", action=PARTIAL_ADD))
    await peer.wait_for_pushes(1)
    assert peer.pushed == [LiteTaken("a", "x", "old")]
    assert await bodies_of(peer.ask, "old", group="x") == []
    taken = await take_lites(other.ask, "new", group="x")
    assert [one.body for one in taken] == [b"1", b"2"], "from the first on, as the group says"
    await peer.ask(declare("a", "b", group="x", client="old"))
    await peer.wait_for_pushes(2)
    assert peer.pushed[1:] == [LiteTaken("a", "x", "old")]
    await ack_lites(other.ask, *taken, group="x")
    await other.ask(declare("a", group="x", client="new", action=PARTIAL_REMOVE))
    assert (await peer.ask(QueryConsumerOffset("x", lite_queue("P", "a"), 0))).offset == 0, "given up, so it begins anew"
    await other.ask(declare("a", group="x", client="new", action=PARTIAL_ADD))
    assert await bodies_of(other.ask, "new", group="x") == [b"1", b"2"]
    await other.close()


async def test_a_group_may_want_all_lite_topics(peer: Peer) -> None:
    await peer.ask(bound("all", sub_wildcard="true"))
    await peer.send(to_lite("a", b"1"))
    for client in ("c1", "c2"):
        await peer.ask(declare("whatever", group="all", client=client))
    assert await peer.refusal(declare("a", group="all", action=PARTIAL_ADD)) == R.ILLEGAL_OPERATION
    assert await bodies_of(peer.ask, "c1", group="all") == [b"1"]
    waiting = asyncio.create_task(peer.ask(pop_lite("c2", "all", poll_ms=30_000)))
    await peer.send(to_lite("made-later", b"2"))
    assert popped_lites(await waiting)[0].body == b"2"


async def test_where_a_client_begins(peer: Peer) -> None:
    """[OffsetOption, LiteSubscriptionRegistryImpl.resetOffset]"""
    cases = {
        ("POLICY", 0): b"23", ("POLICY", 1): b"0123", ("POLICY", 2): b"", ("OFFSET", 3): b"3", ("TAIL_N", 1): b"123",
        ("TAIL_N", 9): b"0123", ("TIMESTAMP", 1): b"23", ("?", 1): b"23",
    }  # fmt: skip
    for number, ((kind, value), expected) in enumerate(cases.items()):
        lite = f"lite-{number}"
        await peer.send(*(to_lite(lite, b"%d" % number) for number in range(4)))
        await peer.ask(declare(lite))
        await ack_lites(peer.ask, *(await take_lites(peer.ask, count=2)))
        await peer.ask(declare(client="c", action=COMPLETE_REMOVE))
        await peer.ask(declare(lite, action=PARTIAL_ADD, offset_type=kind, offset_value=value))
        assert b"".join(await bodies_of(peer.ask)) == expected, kind


async def test_what_is_refused(local: LocalBroker, peer: Peer) -> None:
    """200070 and 200071 [PopLiteMessageProcessor.preCheck, LiteSubscriptionCtlProcessor]"""
    await local.create_topic("Plain")
    await peer.ask(bound("off")._replace(config=bound("off").config._replace(consume_enable=False)))
    await peer.ask(UpdateGroup(bound("plain").config._replace(name="plain", attributes={})))
    refusals = {
        pop_lite(count=33): R.INVALID_PARAMETER,
        pop_lite(count=0): R.INVALID_PARAMETER,
        pop_lite(hidden_ms=0): R.INVALID_PARAMETER,
        pop_lite(topic="None"): R.TOPIC_NOT_EXIST,
        pop_lite(topic="Plain"): R.INVALID_PARAMETER,
        pop_lite(group="none"): R.INVALID_PARAMETER,  # it would be made, and be bound to nothing
        pop_lite(group="plain"): R.INVALID_PARAMETER,
        pop_lite(group="off"): R.NO_PERMISSION,
        pop_lite(client="c" * 256): R.INVALID_PARAMETER,
        pop_lite(attempt_id="x" * 256): R.INVALID_PARAMETER,
    }
    assert {asked: await peer.refusal(asked) for asked in refusals} == refusals
    await peer.ask(UpdateBrokerConfig("autoCreateSubscriptionGroup=false"))
    assert await peer.refusal(pop_lite(group="none")) == R.SUBSCRIPTION_GROUP_NOT_EXIST
    for asked, code in (
        (DeclareLites([]), R.ILLEGAL_OPERATION),
        (declare(group="none"), R.ILLEGAL_OPERATION),
        (declare(group="off"), R.ILLEGAL_OPERATION),
        (declare(action="ADD"), R.ILLEGAL_OPERATION),
        (declare(topic="Plain"), R.INVALID_PARAMETER),
        (declare(group="plain"), R.INVALID_PARAMETER),
        (declare("a$b"), R.INVALID_PARAMETER),
        (declare("\ud800".encode("utf-8", "surrogatepass").decode("utf-8", "replace")), R.INVALID_PARAMETER),
    ):
        assert await peer.refusal(asked) == code, asked
    await peer.ask(declare(client=" "))  # as if it had not come
    assert await peer.refusal(Ack("g", lite_queue("P", "a"), 0, "0 1 1 999 0 broker 0 9", 9)) == R.NO_MESSAGE


async def test_quotas_of_subscriptions(local: LocalBroker, peer: Peer) -> None:
    """Of one client by its group, of all by the broker; a hostile set is refused before anything is done with it."""
    exceeded = R.LITE_SUBSCRIPTION_QUOTA_EXCEEDED
    assert exceeded == 2018
    await peer.ask(bound(sub_client_quota="3"))
    await peer.ask(declare("a", "b", "c"))
    assert await peer.refusal(declare("d", action=PARTIAL_ADD)) == exceeded
    await peer.ask(declare("c", action=PARTIAL_ADD))
    assert await peer.refusal(declare(*(f"n{number}" for number in range(20_000)))) == exceeded
    await peer.ask(UpdateBrokerConfig("maxLiteSubscriptionCount=6"))
    await peer.ask(bound(sub_client_quota="-1"))
    await peer.ask(declare("d", action=PARTIAL_ADD))
    assert await peer.refusal(declare("e", "f", action=PARTIAL_ADD)) == exceeded
    await peer.ask(declare(client="one-more"))
    assert await peer.refusal(declare(client="another")) == exceeded, "a client takes room too"


async def test_sets_that_are_declared_at_once_share_the_room(local: LocalBroker, peer: Peer) -> None:
    """Each is taken in slices; what another one took meanwhile counts."""
    await peer.ask(bound(sub_client_quota="-1"))
    await peer.ask(UpdateBrokerConfig("maxLiteSubscriptionCount=1000"))
    names = [f"n{number}" for number in range(700)]
    told = await asyncio.gather(*(peer.ask_code(declare(*names, client=client)) for client in ("c1", "c2")))
    info = await peer.ask(GetBrokerLiteInfo())
    assert info.lite_subscription_count <= 1000
    assert sorted(told) == [0, R.LITE_SUBSCRIPTION_QUOTA_EXCEEDED]


async def test_what_is_added_behind_a_whole_set_stays(peer: Peer) -> None:
    """A set of many is looked through in slices: what was added meanwhile was not in it, and forgotten, though it was answered
    that it is there."""
    names = [f"n{number}" for number in range(SLICE + 1)]
    await peer.ask(declare(*names))
    await asyncio.gather(peer.ask(declare(*names)), peer.ask(declare("more", action=PARTIAL_ADD)))
    await peer.ask(to_lite("more", b"x"))
    assert await bodies_of(peer.ask) == [b"x"]


async def test_a_crowd_for_one_lite_topic(peer: Peer) -> None:
    """Each of them hears of each message, so there are not too many; whole sets of names are looked at in slices."""
    for first in range(0, MOST_OF_ONE, 100):
        crowd = [declare("a", client=f"c{first + number}").changes[0] for number in range(100)]
        await peer.ask(DeclareLites(crowd))
    assert await peer.refusal(declare("a", client="one-more")) == R.LITE_SUBSCRIPTION_QUOTA_EXCEEDED
    await peer.ask(bound(sub_client_quota="-1"))
    await peer.ask(declare(*(f"n{number}" for number in range(20_000)), client="c0"))
    assert await peer.refusal(declare(*(f"m{number}" for number in range(90_000)))) == R.LITE_SUBSCRIPTION_QUOTA_EXCEEDED
    await peer.send(to_lite("n7777", b"1"))
    assert await bodies_of(peer.ask, "c0") == [b"1"]


async def test_beyond_its_events_a_client_looks_for_itself(peer: Peer) -> None:
    names = [f"n{number}" for number in range(30)]
    await peer.ask(bound(sub_client_max_event_cnt="10"))
    await peer.ask(declare(*names))
    await peer.send(*(to_lite(name, name.encode()) for name in names))
    found: list[bytes] = []
    while some := await bodies_of(peer.ask, count=4):
        found += some
    assert sorted(found) == sorted(name.encode() for name in names)


async def test_the_longest_names(peer: Peer) -> None:
    topic, lite = LONG
    group, client = "g" * 120, "c" * 255
    await peer.ask(parent(topic))
    await peer.ask(bound(group, topic))
    await peer.send(to_lite(lite, b"1", topic))
    await peer.ask(declare(lite, group=group, client=client, topic=topic))
    found = await take_lites(peer.ask, client, group=group, topic=topic)
    assert [one.body for one in found] == [b"1"]
    await ack_lites(peer.ask, *found, group=group, topic=topic)
    assert (await peer.ask(QueryConsumerOffset(group, lite_queue(topic, lite), 0))).offset == 1


async def test_the_end_of_a_client_a_group_and_a_topic(local: LocalBroker, peer: Peer) -> None:
    """Who waits is told; a topic of the same name has nothing of the old one."""
    await peer.ask(bound("h"))
    await peer.send(to_lite("a", b"1"))
    for group in "gh":
        await peer.ask(declare("a", "b", group=group))
    assert await bodies_of(peer.ask) == [b"1"]
    waiting = asyncio.create_task(peer.ask(pop_lite(group="h", poll_ms=30_000)))
    assert popped_lites(await waiting)[0].body == b"1"
    waiting = asyncio.create_task(peer.ask(pop_lite(group="h", poll_ms=30_000)))
    await peer.ask(DeleteGroup("h"))
    with pytest.raises(Refusal) as gone:
        await waiting
    assert gone.value.code == R.INVALID_PARAMETER
    waiting = asyncio.create_task(peer.ask(pop_lite(poll_ms=30_000)))
    await peer.ask(DeleteTopic("P"))
    with pytest.raises(Refusal) as gone:
        await waiting
    assert gone.value.code == R.TOPIC_NOT_EXIST
    await peer.ask(parent())
    await peer.send(to_lite("a", b"new"))
    await peer.ask(declare("a"))
    found = await take_lites(peer.ask)
    assert [(one.body, one.offset, one.tries) for one in found] == [(b"new", 0, 0)]
    await peer.ask(declare("a", client="silent"))
    for _ in range(20):
        await local.clock.advance(10)
        await peer.ask(declare("a"))
    assert (await peer.refusal(pop_lite("silent", declared=True))) == R.SUBSCRIPTION_NOT_EXIST
    await peer.ask(pop_lite(declared=True))


async def test_what_was_popped_outlives_a_leader(tmp_path: Path) -> None:
    """A new leader knows offsets and what is handed out; clients declare again, and get what was not acknowledged, in order."""
    async with LocalGroup(tmp_path, **LIGHT) as group:
        leader = await group.leader()
        peer = await group.connect(leader)
        await peer.ask(parent())
        await peer.ask(bound())
        await peer.send(*(to_lite("a", b"%d" % number) for number in range(3)), to_lite("b", b"b"))
        await peer.ask(declare("a"))
        found = await take_lites(peer.ask, count=2, hidden_ms=3_600_000)
        await ack_lites(peer.ask, found[0])
        await group.stop(leader)
        new = await group.connect(await group.leader(but=leader))
        assert await new.refusal(pop_lite(declared=True)) == R.SUBSCRIPTION_NOT_EXIST
        await new.ask(declare("a", "b"))
        assert await bodies_of(new.ask) == [b"b"], "1 is still handed out"
        await ack_lites(new.ask, found[1])
        assert await bodies_of(new.ask) == [b"2"]
        await new.close()


async def test_a_wall_clock_set_back_keeps_no_lite_topic_closed(local: LocalBroker, peer: Peer) -> None:
    """T3: who waits for it hears when it opens."""
    await peer.send(to_lite("a", b"1"))
    await peer.ask(declare("a"))
    assert len(await take_lites(peer.ask, hidden_ms=30_000)) == 1
    await local.clock.advance(1)
    local.clock.jump_wall(-365 * 86_400_000)
    waiting = asyncio.create_task(take_lites(peer.ask, poll_ms=60_000))
    began = local.clock.monotonic()
    await local.clock.advance_until(waiting.done)
    assert [one.body for one in await waiting] == [b"1"]
    assert 29 < local.clock.monotonic() - began < 40


async def test_a_lite_topic_that_nobody_writes_to_goes(local: LocalBroker, peer: Peer) -> None:
    """[LiteLifecycleManager] With the offsets of its groups; who wants it still gets what comes later, from the first on."""
    await peer.ask(UpdateBrokerConfig("minLiteTTl=60000\nliteTtlCheckInterval=10000"))
    await peer.ask(parent(more=",+lite.topic.expiration=2"))
    await peer.ask(parent("ForEver"))
    await peer.send(to_lite("a", b"1"), to_lite("b", b"2"), to_lite("a", b"3", "ForEver"))
    await peer.ask(declare("a"))
    await ack_lites(peer.ask, *(await take_lites(peer.ask)))
    lights = local.serving.store.queues.lights()
    await local.clock.advance(100)
    await peer.send(to_lite("b", b"again"))
    await peer.ask(declare("a"))
    await local.clock.advance_until(lambda: len(lights) == 2)
    assert lights == {"%LMQ%$P$b", "%LMQ%$ForEver$a"}
    assert (await peer.ask(QueryConsumerOffset("g", lite_queue("P", "a"), 0))).offset == 0
    await peer.send(to_lite("a", b"new"))
    assert [(one.body, one.offset) for one in await take_lites(peer.ask)] == [(b"new", 0)]


async def test_a_wall_clock_that_jumps_ahead_deletes_no_lite_topic(local: LocalBroker, peer: Peer) -> None:
    """T1. Once so much time has passed, it goes."""
    await peer.ask(UpdateBrokerConfig("minLiteTTl=60000\nliteTtlCheckInterval=10000"))
    await peer.ask(parent(more=",+lite.topic.expiration=2"))
    for _ in range(3):  # from then on it looks every 10 s
        await local.clock.advance(50)
        await peer.send(to_lite("a"))
    lights = local.serving.store.queues.lights()
    local.clock.jump_wall(365 * 86_400_000)
    await peer.send(to_lite("b", b"2"))
    await local.clock.advance(100)
    assert sorted(lights) == ["%LMQ%$P$a", "%LMQ%$P$b"]
    await local.clock.advance_until(lambda: lights == {"%LMQ%$P$b"})


async def test_a_machine_that_slept_deletes_lite_topics_as_ever(local: LocalBroker, peer: Peer) -> None:
    """T1: each sleep kept all of them for as long again."""
    await peer.ask(UpdateBrokerConfig("minLiteTTl=60000\nliteTtlCheckInterval=10000"))
    await peer.ask(parent(more=",+lite.topic.expiration=2"))
    for _ in range(3):  # from then on it looks every 10 s
        await local.clock.advance(50)
        await peer.send(to_lite("a"))
    lights, awake_s = local.serving.store.queues.lights(), local.clock.monotonic()
    local.clock.suspend(3600)
    await local.clock.advance_until(lambda: not lights)
    assert local.clock.monotonic() - awake_s < 100


async def test_rights_to_lite_topics() -> None:
    """Those to their topic: Sub there and on the group to declare, pop and acknowledge; Get to look; Update to trigger."""
    async with LocalBroker(**SETTINGS, **LIGHT) as broker:
        root = await login(broker, "root", "root-secret")
        for request in (parent(), parent("Q"), bound(), bound("h", "Q"), to_lite("a", b"1")):
            await root.ask(request)
        await make_user(root, "ann", PolicyEntry("Topic:P", ["Sub"]), PolicyEntry("Group:g", ["Sub"]))
        ann = await login(broker, "ann", "ann-secret")
        await ann.ask(declare("a"))
        await ack_lites(ann.ask, *(await take_lites(ann.ask)))
        await ann.ask(Pull("g", lite_queue("P", "a"), 0, 0))
        both = DeclareLites([*declare("a").changes, *declare("b", group="h", topic="Q").changes])
        for refused in (both, pop_lite(group="h", topic="Q"), to_lite("a"), GetBrokerLiteInfo(), GetParentTopicInfo("P")):
            assert await ann.refusal(refused) == R.NO_PERMISSION, refused
        assert await ann.refusal(Ack("g", lite_queue("Q", "a"), 0, "0 1 1 999 0 broker 0 0", 0)) == R.NO_PERMISSION
        assert await ann.refusal(TriggerLiteDispatch("g")) == R.NO_PERMISSION
        for each in (root, ann):
            await each.close()

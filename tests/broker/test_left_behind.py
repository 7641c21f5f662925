"""What stays of a topic, a group or a user that was deleted, or comes behind the deletion in the log: the next one of that name
must not find it.

As in `test_deletions` a disk that does not flush holds what is to happen first.
"""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from rmq.broker.node import Broker
from rmq.broker.pending.popreader import QueueReader
from rmq.broker.shared.state import lines_of
from rmq.codes import RequestCode, ResponseCode as R
from rmq.config.settings import NodeSettings
from rmq.errors import Refusal
from rmq.log.records import record
from rmq.model import STATE_TOPIC, GroupConfig, MessageQueue
from rmq.names import lite_queue
from rmq.net.commands import (
    CreateUser,
    DeleteGroup,
    DeleteTopic,
    DeleteUser,
    GetAcl,
    GetMaxOffset,
    GetTopicConfig,
    GetUser,
    Heartbeat,
    UpdateConsumerOffset,
    UpdateGroup,
    UpdateTopic,
    UpdateUser,
    UserInfo,
)
from rmq.net.commands.access import PolicyEntry
from rmq.net.commands.lites import PARTIAL_ADD, PARTIAL_REMOVE
from rmq.net.commands.locks import LockQueues
from rmq.net.commands.pop import SetRequestMode
from rmq.net.commands.quotas import DeleteQuota, QuotaRow, SetQuota
from rmq.testing import LocalBroker, until
from tests.broker.litepops import bodies_of, bound, declare
from tests.broker.popping import ack, bodies, change, pop, take
from tests.broker.support import Peer, hold_reads
from tests.broker.test_access import SETTINGS, Signer, acl, asked, login, make_user, nameserver_knows
from tests.broker.test_deletions import RETRY, Node
from tests.broker.test_group_deletions import held, node
from tests.broker.test_lights import LIGHT
from tests.broker.test_lites import parent, to_lite
from tests.broker.transactions import checks, half
from tests.net.java_peer import BODIES

__all__ = ["node"]

OF_GROUPS = ("offset", "reset", "lock", "receipt", "orderInfo", "mode", "forbidden", "cursor")
ALL = PolicyEntry("*", ["All"])
BOB = CreateUser("bob", UserInfo("bob", "secret"))


def left_of_groups(node: Node) -> dict[str, Any]:
    """All that the tables say of any group."""
    tables = node.broker.serving.tables.by_name
    return {name: dict(tables[name].committed()) for name in OF_GROUPS if tables[name].committed()}


@pytest.fixture
async def other(node: Node) -> AsyncIterator[Peer]:
    peer = await Peer.connect(node.broker.address, "other")
    yield peer
    await peer.close()


# --- a deletion, asked for again ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("deletion", [DeleteGroup("g"), DeleteTopic("T")], ids=["group", "topic"])
async def test_a_deletion_that_is_repeated_is_not_done_before_the_first(node: Node, other: Peer, deletion: Any) -> None:
    """R7: who heard "unknown" asks again. The answer came at once, when a change of leader could still undo it."""
    first = await held(node, deletion)
    second = asyncio.create_task(other.ask(deletion))
    await node.clock.advance(0.5)
    assert not second.done()
    node.disk.flushes.set()
    await asyncio.gather(first, second)
    await node.make()
    await node.peer.ask(UpdateGroup(GroupConfig("g")))
    await node.restart_without_queues()
    assert await node.end("T") == (2 if deletion == DeleteGroup("g") else 0)


async def test_a_topic_with_many_lite_topics_is_there_until_the_last_is_gone() -> None:
    """Their lines take several records: after a kill between two of them the deletion can be repeated. What was left was found by
    the next topic of that name."""
    async with LocalBroker(**LIGHT) as local:
        peer = await Peer.connect(local.address)
        await peer.ask(parent())
        for number in range(2000):
            local.serving.store.queues.get(lite_queue("P", f"{number}"), 0)
        begin = (await peer.ask(GetMaxOffset(STATE_TOPIC, 0))).offset
        await peer.ask(DeleteTopic("P"))
        records = [*record.iterate((await peer.pull(STATE_TOPIC, begin)).messages)]
        assert [len(lines_of(one.body)) for one in records] == [2000, 1]
        assert lines_of(records[-1].body) == [("topic", "P", None)]
        await peer.close()


# --- users ----------------------------------------------------------------------------------------------------------------------


async def unheard(node: Node, request: Any) -> None:
    """It is in the log, and who asked is told after a while that nobody knows."""
    asked = await held(node, request)
    await node.clock.advance_until(asked.done)
    with pytest.raises(Refusal, match="outcome unknown"):
        await asked


async def then(node: Node, peer: Peer, request: Any) -> int:
    """The code of its answer. All that was asked before is committed."""
    asking = asyncio.create_task(peer.ask_code(request))
    await node.clock.advance(0.5)
    node.disk.flushes.set()
    code = await asking
    await peer.ask(UpdateGroup(GroupConfig("behind")))
    return code


async def test_a_policy_for_a_user_who_is_being_deleted(node: Node, other: Peer) -> None:
    """S2: it came behind the deletion, and the next user of that name had it."""
    await node.peer.ask(BOB)
    await unheard(node, DeleteUser("bob"))
    assert await then(node, other, acl("bob", ALL)) == R.USER_NOT_EXIST
    await other.ask(BOB)
    assert not node.broker.serving.tables.policies.committed()


async def test_a_user_who_is_being_deleted_is_not_changed_back(node: Node, other: Peer) -> None:
    await node.peer.ask(BOB)
    await unheard(node, DeleteUser("bob"))
    assert await then(node, other, UpdateUser("bob", UserInfo("bob", user_status="disable"))) == R.USER_NOT_EXIST
    assert not node.broker.serving.tables.users.committed()


async def test_a_user_who_is_being_made_is_deleted(node: Node, other: Peer) -> None:
    """The deletion found nobody and said so, and then he was there. Until then nobody sees him (R18)."""
    await unheard(node, BOB)
    assert await other.refusal(GetUser("bob")) == await other.refusal(GetAcl("User:bob")) == R.USER_NOT_EXIST
    assert await then(node, other, DeleteUser("bob")) == 0
    assert not node.broker.serving.tables.users.committed()


async def test_a_quota_that_is_being_set_is_deleted(node: Node, other: Peer) -> None:
    """As a user who is being made."""
    await unheard(node, SetQuota(QuotaRow("User:bob", bytes_in=1)))
    assert await then(node, other, DeleteQuota("User:bob")) == 0
    assert not node.broker.serving.tables.quotas.committed()


async def test_a_user_is_deleted_when_the_answer_comes(node: Node, other: Peer) -> None:
    """R7, S1"""
    await node.peer.ask(BOB)
    await node.peer.ask(acl("bob", ALL))
    await unheard(node, DeleteUser("bob"))
    again = asyncio.create_task(other.ask(DeleteUser("bob")))
    await node.clock.advance(0.5)
    assert not again.done()
    node.disk.flushes.set()
    await again
    tables = node.broker.serving.tables
    assert not tables.users.committed()
    assert not tables.policies.committed()


@pytest.fixture
async def root() -> AsyncIterator[tuple[LocalBroker, Peer]]:
    async with LocalBroker(transaction_timeout_ms=1000, transaction_check_interval_ms=1000, **SETTINGS) as local:
        root = await login(local, "root", "root-secret")
        await root.ask(UpdateTopic("T"))
        yield local, root
        await root.close()


async def another_bob(root: Peer) -> None:
    await root.ask(DeleteUser("bob"))
    await root.ask(CreateUser("bob", UserInfo("bob", "another-secret")))
    await root.ask(acl("bob", PolicyEntry("Topic:T", ["Pub"])))


async def test_who_has_logged_in_is_not_the_next_user_of_that_name(root: tuple[LocalBroker, Peer]) -> None:
    """S1: his connections stay, as those of one with another password do, and he is a producer until his heartbeats are missed.
    He was asked after transactions of the next one, and got their messages."""
    local, admin = root
    await make_user(admin, "bob", PolicyEntry("Topic:T", ["Pub"]))
    old, java = await login(local, "bob", "bob-secret"), Signer(local.address, "bob", "bob-secret")
    await old.ask(Heartbeat("c", ["p"]))
    assert (await asked(java, RequestCode.HEART_BEAT, {}, BODIES[Heartbeat](Heartbeat("java", ["p"], []))))[0] == 0
    await another_bob(admin)
    new = await login(local, "bob", "another-secret")
    await new.ask(Heartbeat("c", ["p"]))
    await new.send(*(half(b"%d" % number) for number in range(4)))
    await local.clock.advance_until(lambda: len({one.msg_id for one in checks(new)}) == 4)
    assert not checks(old)
    assert (await asked(java, 310, {}, b""))[0] == R.NO_PERMISSION
    assert not java.questions
    java.close()
    await old.close()
    await new.close()


async def test_users_of_a_broker_group_that_is_gone(root: tuple[LocalBroker, Peer], tmp_path: Path) -> None:
    """It never hears that one of them was deleted: he was a user at nameservers for good. Of the last group they stay."""
    local, _ = root
    more = {"segment_bytes": 16 << 20, "index_slots": 100, "index_entries": 1000, "namesrv_addresses": (local.nameserver,)}
    settings = NodeSettings(role="broker", broker_name="b", store_dir=tmp_path, listen_port=0, vip_port=False, **more, **SETTINGS)
    leaves = Broker(settings, local.clock)
    await leaves.start()
    await until(lambda: leaves.serving.tables.users.get("root"))
    there = await login(local, "root", "root-secret", leaves.address)
    await there.ask(BOB)
    await local.clock.advance_until(lambda: nameserver_knows(local, "bob"))
    await there.close()
    await leaves.stop()
    await local.clock.advance_until(lambda: not nameserver_knows(local, "bob"), 5)
    await local.stop_broker()
    await local.clock.advance(600)
    assert nameserver_knows(local, "root")


# --- groups ---------------------------------------------------------------------------------------------------------------------


async def test_a_receipt_that_is_renewed_while_its_group_is_deleted(node: Node, other: Peer) -> None:
    """It came behind the deletion; the message came back to the retry topic, for the next group of that name."""
    [one, _] = await take(node.peer.ask, hidden_ms=10_000)
    deleting = await held(node, DeleteGroup("g", True))
    renewing = asyncio.create_task(change(other.ask, one, 1000))
    await node.clock.advance(0.5)
    node.disk.flushes.set()
    await asyncio.gather(deleting, renewing)
    assert left_of_groups(node) == {}
    await node.clock.advance(5)
    assert await node.peer.refusal(GetTopicConfig(RETRY)) == R.TOPIC_NOT_EXIST


@pytest.mark.parametrize("order", [False, True])
async def test_a_pop_that_was_reading_while_its_group_was_deleted(
    node: Node, other: Peer, monkeypatch: pytest.MonkeyPatch, order: bool
) -> None:
    """Its receipt moved the next group of that name behind the messages, before anybody had popped for it."""
    reading, go_on = hold_reads(monkeypatch, QueueReader)
    popping = asyncio.create_task(take(other.ask, pop(queue_id=0, order=order)))
    await reading.wait()
    await node.peer.ask(DeleteGroup("g", True))
    go_on.set()
    await asyncio.gather(popping, return_exceptions=True)
    assert left_of_groups(node) == {}
    await node.stop()
    await node.start()
    assert left_of_groups(node) == {}, "every node notes the same, whenever it reads the log"
    assert bodies(await take(node.peer.ask)) == [b"1", b"2"]


async def test_an_ordered_acknowledgement_while_its_group_is_being_deleted(node: Node, other: Peer) -> None:
    """It wrote the group's offset behind the deletion."""
    given = await take(node.peer.ask, order=True)
    deleting = await held(node, DeleteGroup("g", True))
    acknowledging = asyncio.create_task(ack(other.ask, *given))
    await node.clock.advance(0.5)
    node.disk.flushes.set()
    await deleting
    await asyncio.gather(acknowledging, return_exceptions=True)
    assert left_of_groups(node) == {}


async def test_a_pop_that_waits_while_its_group_is_deleted(node: Node, other: Peer) -> None:
    """The deletion wakes it, and it has nothing; the next pop makes the group, as each first one does."""
    await take(node.peer.ask)
    waiting = asyncio.create_task(take(other.ask, pop(poll_ms=60_000)))
    await node.clock.advance(0.5)
    await node.peer.ask(DeleteGroup("g", True))
    assert await waiting == []
    assert node.broker.serving.tables.groups.get("g") is None
    assert bodies(await take(other.ask)) == [b"1", b"2"]
    assert node.broker.serving.tables.groups.get("g") is not None


async def test_what_is_due_while_its_group_is_being_deleted(node: Node) -> None:
    """Not before that is decided: here the deletion is decided."""
    await take(node.peer.ask, hidden_ms=1000)
    deleting = await held(node, DeleteGroup("g"))
    await node.clock.advance(5)
    node.disk.flushes.set()
    await deleting
    await node.clock.advance(5)
    assert await node.peer.refusal(GetTopicConfig(RETRY)) == R.TOPIC_NOT_EXIST
    assert not node.broker.serving.tables.receipts.committed()


async def test_locks_and_modes_go_with_their_group(node: Node, other: Peer) -> None:
    """Those on their way stand before the deletion; while that is on its way there are no others."""
    wanted = LockQueues("g", "c", [MessageQueue("T", node.broker.serving.reader.broker_name, 0)])
    await node.peer.ask(SetRequestMode("T", "g", "POP"))
    locking = await held(node, wanted)
    deleting = asyncio.create_task(other.ask(DeleteGroup("g")))
    await node.clock.advance_until(lambda: node.broker.serving.tables.groups.is_leaving("g"))
    third = await Peer.connect(node.broker.address, "third")
    assert await third.refusal(wanted) == R.SUBSCRIPTION_GROUP_NOT_EXIST
    node.disk.flushes.set()
    await asyncio.gather(locking, deleting)
    assert left_of_groups(node) == {}
    await third.close()


@pytest.mark.parametrize("deletion", [DeleteGroup("g"), DeleteTopic("T")], ids=["group", "topic"])
async def test_exported_rows_go_with_the_last_one(node: Node, deletion: Any) -> None:
    """Where no row was left the files stayed as they were: RocketMQ, and a store repaired with them, had the mode again."""
    modes, orders = (node.store / "config" / f"{name}.json" for name in ("messageRequestMode", "consumerOrderInfo"))
    await node.peer.ask(SetRequestMode("T", "g", "POP"))
    assert len(await take(node.peer.ask, pop(order=True))) == 2
    await node.clock.advance_until(lambda: modes.exists() and orders.exists())
    await node.peer.ask(deletion)
    await node.stop()  # it saves them once more
    assert orjson.loads(modes.read_bytes())["messageRequestModeMap"] == {}
    assert orjson.loads(orders.read_bytes())["table"] == {}
    await node.start()


# --- lite topics ----------------------------------------------------------------------------------------------------------------


@pytest.fixture
async def lites() -> AsyncIterator[tuple[LocalBroker, Peer]]:
    async with LocalBroker(**LIGHT) as local:
        peer = await Peer.connect(local.address)
        await peer.ask(parent())
        await peer.ask(bound(sub_reset_offset_unsubscribe="true"))
        yield local, peer
        await peer.close()


async def test_offsets_in_lite_topics_without_a_message_go_with_their_topic(lites: tuple[LocalBroker, Peer]) -> None:
    """The deletion names only those lite topics that there are. In its next life the group missed what came first."""
    local, peer = lites
    tables = local.serving.tables
    await peer.ask(declare("a", action=PARTIAL_ADD, offset_type="OFFSET", offset_value=1))
    assert tables.offsets.committed()
    await peer.ask(DeleteTopic("P"))
    assert not tables.offsets.committed()
    assert not tables.offsets.resets.committed()
    await peer.ask(parent())
    await peer.send(to_lite("a", b"1"), to_lite("a", b"2"))
    await peer.ask(declare("a"))
    assert await bodies_of(peer.ask) == [b"1", b"2"]


async def test_what_is_said_of_a_lite_topic_behind_the_end_of_its_topic_goes_with_it(
    lites: tuple[LocalBroker, Peer],
) -> None:
    local, peer = lites
    await peer.ask(DeleteTopic("P"))
    await local.serving.writer.commit([("offset", ("g", lite_queue("P", "a"), 0), 1)])
    await local.serving.writer.commit([("offset", ("g", "%LMQ%another", 0), 1)])
    assert [key.topic for key in local.serving.tables.offsets.committed()] == ["%LMQ%another"]


async def test_giving_up_a_lite_topic_that_is_not_there_leaves_nothing(lites: tuple[LocalBroker, Peer]) -> None:
    """Lite topics come and go, and each left an offset and a reset for good, until no group could commit any more."""
    local, peer = lites
    await peer.send(to_lite("a", b"1"))
    await peer.ask(declare("a", "b"))
    await peer.ask(declare("a", "b", action=PARTIAL_REMOVE))
    assert [key.topic for key in local.serving.tables.offsets.committed()] == [lite_queue("P", "a")]
    await peer.ask(DeleteTopic(lite_queue("P", "a")))
    assert not local.serving.tables.offsets.resets.committed()


async def test_offsets_of_a_group_of_light_queues_go_with_it(lites: tuple[LocalBroker, Peer]) -> None:
    """Such a group has no row, so its deletion found nothing to delete."""
    local, peer = lites
    await peer.send(to_lite("a", b"1"))
    await peer.ask(UpdateConsumerOffset("%LMQ%g", lite_queue("P", "a"), 0, 1))
    await peer.ask(SetRequestMode("P", "%LMQ%g", "POP"))
    await peer.ask(DeleteGroup("%LMQ%g"))
    assert [key.group for key in local.serving.tables.offsets.committed()] == ["%LMQ%g"], "as of any group"
    assert not local.serving.tables.modes.committed()
    await peer.ask(DeleteGroup("%LMQ%g", True))
    assert not local.serving.tables.offsets.committed()

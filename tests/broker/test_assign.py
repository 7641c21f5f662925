"""The broker divides the queues: who pulls gets some, who pops gets all, or shares; the mode is a committed setting."""

import json
from collections import Counter

import pytest

from rmq.broker.features import assignments
from rmq.broker.features.assignments import popped_by
from rmq.codes import ResponseCode
from rmq.model import MessageQueue
from rmq.net.commands import DeleteGroup, DeleteTopic, UpdateTopic
from rmq.net.commands.pop import Assignment, Assignments, QueryAssignment, SetRequestMode
from rmq.routing.rebalance import average
from rmq.testing import LocalBroker
from tests.broker.conftest import Connect
from tests.broker.support import Peer, beat

QUEUES = [MessageQueue("T", name, number) for name in ("a", "b") for number in range(4)]
MEMBERS = ["c1", "c2", "c3", "c4"]


def test_everybody_pops_everything() -> None:
    """[allocate4Pop] Queue -1 of each broker, unless the group shares with few."""
    everything = [MessageQueue("T", "a", -1), MessageQueue("T", "b", -1)]
    for share in (-1, 0, 3, 9):
        assert popped_by(QUEUES, MEMBERS, "c2", share, average) == everything
    assert popped_by([], MEMBERS, "c2", 0, average) == []


def test_a_share_is_ones_own_queues_and_those_of_the_next() -> None:
    shares = {me: popped_by(QUEUES, MEMBERS, me, 1, average) for me in MEMBERS}
    assert shares["c1"] == QUEUES[:4]
    assert shares["c4"] == sorted(QUEUES[6:] + QUEUES[:2])
    assert set(Counter(queue for share in shares.values() for queue in share).values()) == {2}
    many = [f"c{number:02}" for number in range(20)]
    assert {len(popped_by(QUEUES, many, me, 2, average)) for me in many} == {1}, "nobody goes without"


async def ask(peer: Peer, topic: str = "T", client_id: str = "c", **fields: str) -> Assignments:
    answer = await peer.ask(QueryAssignment(topic, "g", client_id, **fields))
    assert isinstance(answer, Assignments)
    return answer


async def test_a_mode_is_kept(broker: LocalBroker, peer: Peer, connect: Connect) -> None:
    assert await ask(peer) == Assignments([], known=False)
    await peer.ask(beat("c", "g"))
    pulled = [Assignment(MessageQueue("T", "broker-a", number), "PULL") for number in range(4)]
    assert await ask(peer) == Assignments(pulled)
    await peer.ask(SetRequestMode("T", "g", "POP"))
    assert await ask(peer) == Assignments([Assignment(MessageQueue("T", "broker-a", -1), "POP")])
    assert (await ask(peer, "%RETRY%g")).queues == [Assignment(MessageQueue("%RETRY%g", "broker-a", 0), "PULL")]
    assert await ask(peer, message_model="BROADCASTING") == Assignments(pulled)
    assert await ask(peer, strategy_name="DICE") == Assignments([], known=False)
    assert await ask(peer, client_id="stranger") == Assignments([], known=False)
    assert await ask(peer, "Nowhere") == Assignments([], known=False)
    await broker.stop_broker()
    said = json.loads((broker.store_dir / "config" / "messageRequestMode.json").read_bytes())
    assert said["messageRequestModeMap"]["T"]["g"]["mode"] == "POP"
    await broker.start_broker()
    peer = await connect(broker)
    await peer.ask(beat("c", "g"))
    assert [one.mode for one in (await ask(peer)).queues] == ["POP"]
    await peer.ask(SetRequestMode("T", "g", "PULL"))
    assert [one.mode for one in (await ask(peer)).queues] == ["PULL"] * 4


async def test_where_no_nameserver_tells_what_there_is_members_keep_their_queues(broker: LocalBroker, connect: Connect) -> None:
    """As at RocketMQ's. A broker that was started while all were away gave its own queues only, which took those of others."""
    await broker.stop_broker()
    await broker.stop_nameserver()
    await broker.start_broker()
    peer = await connect(broker)
    await peer.ask(beat("c", "g"))
    for model in ("CLUSTERING", "BROADCASTING"):
        assert await ask(peer, message_model=model) == Assignments([], known=False)
    await broker.start_nameserver()
    await broker.clock.advance_until(lambda: broker.serving.registration.registered() == {broker.nameserver: True})
    await broker.clock.advance(6)
    assert len((await ask(peer)).queues) == 4


@pytest.mark.parametrize("deletion", [DeleteTopic("T"), DeleteGroup("g")])
async def test_a_mode_goes_with_its_topic_and_its_group(broker: LocalBroker, peer: Peer, deletion: object) -> None:
    await peer.ask(beat("c", "g"))
    await peer.ask(SetRequestMode("T", "g", "POP"))
    await peer.ask(deletion)
    await peer.ask(UpdateTopic("T", read_queue_nums=4, write_queue_nums=4))
    await peer.ask(beat("c", "g"))
    await broker.clock.advance(6)
    assert {one.mode for one in (await ask(peer)).queues} == {"PULL"}


async def test_refused(broker: LocalBroker, peer: Peer) -> None:
    assert await peer.refusal(SetRequestMode("%RETRY%g", "g", "POP")) == 16
    assert await peer.refusal(SetRequestMode("Nowhere", "g", "POP")) == 17
    assert await peer.refusal(SetRequestMode("T", "g", "PUSH")) == 29
    assert await peer.refusal(SetRequestMode("T", "bad group", "POP")) == 29


async def test_there_are_so_many_modes_and_known_ones_change(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assignments, "MAX_MODES", 1)
    await peer.ask(SetRequestMode("T", "g", "POP", 0))
    assert await peer.ask_code(SetRequestMode("T", "h", "POP", 0)) == ResponseCode.SYSTEM_BUSY
    await peer.ask(SetRequestMode("T", "g", "PULL", 0))

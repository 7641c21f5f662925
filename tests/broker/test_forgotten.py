"""What a broker keeps in memory of topics and groups goes with them."""

import gc
import weakref
from typing import Any

import pytest

from rmq.broker.shared.stats import SAMPLE_S
from rmq.model import GroupConfig
from rmq.net.commands import DeleteGroup, DeleteTopic, UpdateGroup, UpdateTopic
from rmq.testing import LocalBroker, until
from tests.broker.popping import pop
from tests.broker.support import Peer, send


@pytest.mark.parametrize("attributes", ["", "+message.type=FIFO", "+queue.type=BatchCQ"])
async def test_queues_of_a_deleted_topic_leave_memory(attributes: str) -> None:
    """With as many as 4 096 entries each, 80 KB, what a topic was sent to stayed until 100 000 others were."""
    async with LocalBroker() as broker:
        peer = await Peer.connect(broker.address)
        await peer.ask(UpdateTopic("T", read_queue_nums=2, write_queue_nums=2, attributes=attributes))
        await peer.send(*(send("T", queue_id=each, tags="a") for each in (0, 1)))
        assert (await peer.ask(pop("T", exp="b", exp_type="TAG"))).status, "passed"
        left = [weakref.ref(queue) for queue in broker.serving.store.queues.of_topic("T")]
        await peer.ask(DeleteTopic("T"))
        await until(lambda: gc.collect() is not None and not any(queue() for queue in left))
        await peer.close()


async def test_readers_are_counted_as_long_as_their_topic_and_group_exist() -> None:
    """Each pair of a topic and a group had its series in the metrics until the broker was started again: after a thousand, new
    ones were counted as "other"."""

    def readers() -> set[Any]:
        families = {family.name: family for family in broker.serving.metrics()}
        return {labels[:2] for labels, _ in families["rocketmq_messages_out_total"].rows}

    async with LocalBroker() as broker:
        peer = await Peer.connect(broker.address)
        for topic in ("T", "Stays"):
            await peer.ask(UpdateTopic(topic, read_queue_nums=1, write_queue_nums=1))
            await peer.send(send(topic))
        for group in ("g", "stays"):
            await peer.ask(UpdateGroup(GroupConfig(group)))
            for topic in ("T", "Stays"):
                await peer.ask(pop(topic, group=group))
        assert len(readers()) == 4
        await peer.ask(DeleteTopic("T"))
        await broker.clock.advance_until(lambda: len(readers()) == 2, SAMPLE_S)
        await peer.ask(DeleteGroup("g"))
        await broker.clock.advance_until(lambda: readers() == {("Stays", "stays")}, SAMPLE_S)
        await peer.close()

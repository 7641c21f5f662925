"""What a broker keeps in memory of topics and groups goes with them."""

import gc
import weakref

import pytest

from rmq.net.commands import DeleteTopic, UpdateTopic
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

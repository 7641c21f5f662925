"""A damaged store, from the loss to consumers that pass over it."""

from pathlib import Path

from rmq.client import Message
from rmq.log.files.disk import RealDisk
from rmq.log.reader import read_records, read_segments
from rmq.log.records.record import host_bytes
from rmq.log.repair import repair
from rmq.log.repair.verify import Verifier
from rmq.testing import INDEX_SLOTS, LocalBroker


def damage_and_repair(root: Path) -> None:
    segment = read_segments(str(root))[0]
    victim = [one for one in read_records(segment) if one.topic == "T"][2]
    with open(segment.path, "r+b") as file:
        file.seek(victim.physical_offset + 88)
        file.write(b"x")
    report = Verifier(RealDisk(), str(root), INDEX_SLOTS).run()
    assert not report.clean
    for step in repair.plan(RealDisk(), str(root), report, segment.size, host_bytes("127.0.0.1", 1)):
        step.do()


async def test_consumers_pass_over_what_was_lost(tmp_path: Path) -> None:
    """D8, D12: a wrong byte in the third of five messages; after the repair a group gets the others once, and new ones."""
    root = tmp_path / "store"
    async with LocalBroker(store_dir=root) as broker:
        await broker.create_topic("T", queues=1)
        async with broker.client() as client, client.producer() as producer:
            for number in range(5):
                await producer.send(Message("T", b"%d" % number, keys=[f"k{number}"]))
        await broker.stop_broker()

        damage_and_repair(root)
        await broker.start_broker()
        async with broker.client() as client, client.producer() as producer:
            await producer.send(Message("T", b"new"))
            async with client.consumer("g", topics={"T": "*"}, start="first") as consumer:
                got: list[tuple[int, bytes]] = []
                while len(got) < 5:
                    got += [(message.queue_offset, message.body) for message in await consumer.receive(timeout=20)]
                await consumer.commit(sync=True)
        assert got == [(0, b"0"), (1, b"1"), (3, b"3"), (4, b"4"), (5, b"new")]

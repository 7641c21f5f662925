"""Stories of transactions in an elected group: one outcome each, whoever leads when the producer's word comes."""

import asyncio
from pathlib import Path

from rmq.codes import ResponseCode as R
from rmq.log.records import record
from rmq.model import HALF_TOPIC
from rmq.net.commands import DeleteExpiredLog, UpdateTopic
from rmq.net.commands.peers import Promote, TransferLeader
from tests.broker.groups import LocalGroup
from tests.broker.pair import Pair
from tests.broker.support import Peer, beat, send
from tests.broker.transactions import ROLLBACK, checks, commit, end, half, halves, numbers, outcome, properties, stored

EVERY_S = 30.0
QUIET = {"transaction_check_interval_ms": 86_400_000}


async def leading(group: LocalGroup, *, but: str = "") -> Peer:
    return await group.connect(await group.leader(but=but))


async def begun(group: LocalGroup) -> Peer:
    """The leader, with a topic T of one queue."""
    leader = await leading(group)
    await leader.ask(UpdateTopic("T", read_queue_nums=1, write_queue_nums=1))
    return leader


async def delivered(group: LocalGroup) -> list[bytes]:
    """What every node has of the topic."""
    await group.level()
    found = {tuple(one.body for one in await stored(await group.connect(name), "T")) for name in group.nodes}
    assert len(found) == 1, found
    return list(found.pop())


async def hand_over(group: LocalGroup) -> Peer:
    """Another node leads now."""
    first = await group.leader()
    await (await group.connect(first)).ask(TransferLeader())
    return await leading(group, but=first)


async def pass_time(group: LocalGroup, seconds: float) -> None:
    """In steps that let the nodes hear of each other, so that nobody misses the leader."""
    until_s = group.clock.monotonic() + seconds
    while group.clock.monotonic() < until_s:
        await group.clock.advance(0.5)
        await group.level()


async def test_two_end_transactions_before_commit(tmp_path: Path) -> None:
    """Story 36, C11: what is on its way decides; the opposite word is refused, the same one answered with it."""
    async with LocalGroup(tmp_path) as group:
        leader = await begun(group)
        [sent] = await leader.send(half(b"once"))
        words = [end(sent), end(sent), end(sent, ROLLBACK), end(sent)]
        assert await asyncio.gather(*(outcome(leader, word) for word in words)) == [0, 0, R.ILLEGAL_OPERATION, 0]
        assert await delivered(group) == [b"once"]


async def test_the_word_outlives_the_leadership_in_which_it_was_said(tmp_path: Path) -> None:
    """Story 36, C11: written, but not committed when the majority went: nobody is told a lie, and it counts once in the end."""
    async with LocalGroup(tmp_path) as group:
        leader = await begun(group)
        [sent] = await leader.send(half(b"once"))
        await group.level()
        followers = await group.followers()
        await group.stop(*followers)
        saying = [asyncio.create_task(outcome(leader, end(sent, how))) for how in (8, 8, ROLLBACK)]
        await group.clock.advance_until(lambda: all(task.done() for task in saying))
        assert {task.result() for task in saying} <= {R.SYSTEM_ERROR, R.SERVICE_NOT_AVAILABLE}
        await group.start(*followers)
        await group.clock.advance(3)
        leader = await leading(group)
        first = await outcome(leader, end(sent))  # whether the record of before came through, or this one
        assert first == 0
        assert await outcome(leader, end(sent, ROLLBACK)) == R.ILLEGAL_OPERATION
        assert await delivered(group) == [b"once"]


async def test_a_word_that_was_cut_was_never_said(tmp_path: Path) -> None:
    """Story 36, C11, R15: the old leader alone wrote the commit; another one is elected and hears the opposite."""
    async with LocalGroup(tmp_path) as group:
        leader = await begun(group)
        [sent] = await leader.send(half(b"never"))
        await group.level()
        first, followers = await group.leader(), await group.followers()
        await group.stop(*followers)
        saying = asyncio.create_task(outcome(leader, end(sent)))
        await group.clock.advance_until(saying.done)
        assert saying.result() == R.SYSTEM_ERROR, "the outcome is unknown"
        await group.stop(first)
        await group.start(*followers)
        await group.clock.advance_until(lambda: any(node.serving.membership.leads for node in group.nodes.values()))
        leader = await leading(group)
        assert await outcome(leader, end(sent, ROLLBACK)) == 0
        await group.start(first)
        await group.clock.advance(1)
        assert await delivered(group) == []
        assert await outcome(await leading(group), end(sent)) == R.ILLEGAL_OPERATION


async def test_commit_written_op_lost(tmp_path: Path) -> None:
    """Story 37, C11, C12: the leader is gone between the message and its op record: it is neither asked after nor delivered
    again, and the next leader writes the op record."""
    async with LocalGroup(tmp_path) as group:
        leader = await begun(group)
        sent = await commit(leader, b"once")
        assert await numbers(leader) == []
        first = await group.leader()
        await group.stop(first)
        leader = await leading(group, but=first)
        await leader.ask(beat("c"))
        assert await outcome(leader, end(sent)) == 0
        assert await outcome(leader, end(sent, ROLLBACK)) == R.ILLEGAL_OPERATION
        await pass_time(group, EVERY_S + 8)
        assert (await delivered(group), checks(leader), await numbers(leader)) == ([b"once"], [], ["0"])


async def test_late_end_transaction_names_first_half(tmp_path: Path) -> None:
    """Story 67, C11, C12: asked after by one leader, answered to the next by the first place of the half; then by the newest."""
    async with LocalGroup(tmp_path) as group:
        leader = await begun(group)
        await leader.ask(beat("c"))
        [sent] = await leader.send(half(b"late"))
        for _ in range(100):
            if checks(leader):
                break
            await pass_time(group, 1)
        [question] = checks(leader)
        leader = await hand_over(group)
        assert await halves(leader) == 2
        assert await outcome(leader, end(sent)) == 0
        assert await outcome(leader, end(question)) == 0
        assert await delivered(group) == [b"late"]
        [found] = await stored(leader, "T")
        assert found.prepared_transaction_offset == sent.physical_offset
        assert properties(found)["RMQ_SRC"] == f"half {sent.physical_offset} 0"


async def test_a_question_is_asked_again_by_the_next_leader(tmp_path: Path) -> None:
    """C12: the count of the checks goes on."""
    async with LocalGroup(tmp_path) as group:
        leader = await begun(group)
        await leader.ask(beat("c"))
        await leader.send(half())
        while not checks(leader):
            await pass_time(group, 1)
        leader = await hand_over(group)
        await leader.ask(beat("c"))
        while not checks(leader):
            await pass_time(group, 1)
        assert properties(record.decode(checks(leader)[0].message))["TRANSACTION_CHECK_TIMES"] == "2"


async def test_half_older_than_segment_carried(tmp_path: Path) -> None:
    """Story 40, C12: open for longer than messages are kept, it is carried forward, and its first place still names it; a node
    that is filled anew knows it, too."""
    small = {"max_message_bytes": 4096, "segment_bytes": 8192, "reserved_hours": 1, "delete_hours": tuple(range(24))}
    async with LocalGroup(tmp_path, **small, **QUIET) as group:
        leader = await begun(group)
        [sent] = await leader.send(half(b"old"))
        await leader.send(*(send("T", b"x" * 2000) for _ in range(20)))
        await group.level()
        await group.stop("n0", "n1", "n2")  # takes a snapshot
        group.clock = group.later(hours=100)
        await group.start("n0", "n1", "n2")
        leader = await leading(group)
        for _ in range(2):
            await group.level()
            for name in group.nodes:
                await (await group.connect(name)).ask(DeleteExpiredLog())
        starts = [(await group.status(name)).log_start for name in group.nodes]
        assert min(starts) > sent.physical_offset, "its segment is there still: the test proves nothing"
        assert properties((await stored(leader, HALF_TOPIC))[-1])["RMQ_SRC"].startswith(f"half {sent.physical_offset} ")

        victim = (await group.followers())[0]
        await group.stop(victim)
        group.wipe(victim)
        await group.start(victim)
        await group.level()
        known = [group.nodes[name].serving.tables.halves.open.rows for name in group.nodes]
        assert known[0] == known[1] == known[2] != {}
        assert await outcome(await leading(group), end(sent)) == 0
        assert (await delivered(group))[-1] == b"old"


async def test_a_promoted_slave_knows_what_is_open_and_what_has_ended(pair: Pair) -> None:
    """C11, C12: fixed roles; the slave refuses words as long as it is one."""
    await pair.start(0, "ASYNC_MASTER")
    slave = await pair.start(1, "SLAVE")
    master = await Peer.connect(pair.nodes[0].address)
    await master.ask(UpdateTopic("T", read_queue_nums=1, write_queue_nums=1))
    [waiting] = await master.send(half(b"open"))
    done = await commit(master, b"done")
    await pair.level()
    peer = await Peer.connect(slave.address)
    assert await outcome(peer, end(waiting)) == R.SERVICE_NOT_AVAILABLE
    await master.close()
    await pair.stop(0)
    await peer.ask(Promote())
    await pair.leads(1)
    assert [await outcome(peer, end(one, how)) for one, how in ((done, 8), (done, ROLLBACK), (waiting, 8))] == [
        0,
        R.ILLEGAL_OPERATION,
        0,
    ]
    assert [one.body for one in await stored(peer, "T")] == [b"done", b"open"]
    await peer.close()

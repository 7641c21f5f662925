"""Seeded histories of groups that pull, at a broker that is stopped and killed now and then, and deletes what is old: each queue
gives what was stored in it and nothing else, each group is where it was set last, and failed messages come again, or are dead
letters, once."""

from collections.abc import Callable
from pathlib import Path

import pytest

from rmq.broker.handlers import sendback
from rmq.broker.handlers.offsets import OffsetHandlers
from rmq.codes import ResponseCode as R
from rmq.delivery.offsets import OffsetTable
from rmq.delivery.resets import GroupQueue, ResetTable
from rmq.errors import RmqError
from rmq.model import DLQ_PREFIX, RETRY_PREFIX, GroupConfig
from rmq.net.commands import (
    DeleteExpiredLog,
    DeleteGroup,
    DeleteTopic,
    UpdateConsumerOffset,
    UpdateGroup,
    UpdateTopic,
)
from rmq.net.commands.groups import UpdateForbidden
from rmq.net.commands.resets import CloneOffsets, ResetOffset
from rmq.testing import LocalBroker, TestClock
from tests.broker.consumers import GROUPS, READER, TOPICS, Consumers
from tests.broker.consumption import Topic
from tests.broker.support import stop_somehow
from tests.broker.test_delay_histories import HOUR_MS, SETTINGS


class History(Consumers):
    """What tools do to topics and groups, and what happens to the broker."""

    async def step(self) -> None:
        steps = (self.send, self.send, self.pull, self.pull, self.pull, self.commit, self.commit, self.give_back)
        tools = (self.pass_time, self.pass_time, self.grow, self.reset, self.reset, self.clone)
        others = (self.join, self.retry_by_hand, self.broadcast)
        rare = (self.restart, self.age, self.delete_topic, self.delete_topic, self.delete_group, self.change_topic)
        for _ in range(4):
            await self.chance.choice(steps if self.chance.random() < 0.75 else (*tools, *others))()
        if self.chance.random() < 0.3:
            await self.chance.choice((*rare, self.change_group))()
        await self.check()

    # --- tools

    async def reset(self) -> None:
        """To an offset, to a time, or behind all that there is (skipAccumulatedMessage)."""
        key, books = self.key(), self.books.offsets
        group, name, queue_id = key
        topic, force = self.books.topics.get(name), self.chance.random() < 0.7
        offset = self.chance.randint(0, self.queue(key).high + 1) if self.chance.random() < 0.4 else -1
        time_ms = self.chance.choice((-1, 0, self.clock.wall_ms() - self.chance.choice((0, 1000, 10_000, 5 * HOUR_MS))))
        if offset < 0 and self.chance.random() < 0.7:
            queue_id = -1
        request = ResetOffset(name, group, queue_id, offset, time_ms, force)
        if topic is None or self.books.groups[group] is None:
            code = R.TOPIC_NOT_EXIST if topic is None else R.SUBSCRIPTION_GROUP_NOT_EXIST
            assert await self.code(self.tool, request) == code
            return
        queue = self.queue(key)
        if queue_id >= topic.count or (offset >= 0 and not queue.low <= offset <= queue.high):
            assert await self.code(self.tool, request) == R.INVALID_PARAMETER
            return
        places = {}
        for each in range(topic.count) if queue_id < 0 else (queue_id,):
            place, queue = GroupQueue(group, name, each), topic.queue(each)
            to = offset if offset >= 0 else queue.high if time_ms < 0 else queue.search(time_ms)
            known = books.of(place)
            places[place] = to if offset >= 0 or force or known is None else min(to, known)
        answer = await self.clients[self.chance.choice(("tool", "java"))].ask(request)
        assert {GroupQueue(group, name, one.queue.queue_id): one.offset for one in answer.offsets} == places
        books.move(places)

    async def clone(self) -> None:
        """[cloneGroupOffset]"""
        source, group = self.chance.sample(GROUPS, 2)
        name, offline = self.chance.choice(("", *TOPICS)), self.chance.random() < 0.5
        code = await self.code(self.tool, CloneOffsets(source, group, name, offline))
        assert code == (0 if self.books.groups[group] else R.SUBSCRIPTION_GROUP_NOT_EXIST)
        if code:
            return
        for key, (offset, _) in dict(self.books.offsets.now).items():
            topic = self.books.topics.get(key.topic)
            subscribed = offline or not self.books.members[source] or key.topic in TOPICS
            if key.group == source and topic and key.queue_id < topic.read and subscribed and name in ("", key.topic):
                self.books.offsets.move({key._replace(group=group): offset})

    async def delete_topic(self) -> None:
        """It is often made again at once, perhaps of the other kind. In its next life nothing is known of this one."""
        group = self.chance.choice(GROUPS)
        name = self.chance.choice((*TOPICS, self.lately.topic, self.lately.topic, RETRY_PREFIX + group, DLQ_PREFIX + group))
        await self.tool.ask(DeleteTopic(name))
        self.books.delete_topic(name)
        if name in TOPICS and self.chance.random() < 0.8:
            await self.make(name)

    async def make(self, name: str) -> None:
        batches = self.chance.random() < 0.4
        await self.tool.ask(UpdateTopic(name, "TBW102", 3, 3, attributes="+queue.type=BatchCQ" if batches else ""))
        self.books.topics[name] = Topic(3, 3, batches)

    async def change_topic(self) -> None:
        """More or fewer queues, and what may be done with them; and what one group may not."""
        name, group = self.chance.choice(TOPICS), self.chance.choice(GROUPS)
        topic = self.books.topics.get(name)
        if topic is None:
            await self.make(name)
            return
        queues = self.chance.choice(((1, 1), (2, 2), (3, 3), (3, 3), (4, 4), (1, 3), (3, 2)))
        await self._change(name, *queues, self.chance.choice((6, 6, 6, 6, 6, 6, 4, 2)))
        if self.books.groups[group]:
            readable = self.chance.random() < 0.8
            await self.tool.ask(UpdateForbidden(group, name, str(readable).lower()))
            (self.books.forbidden.discard if readable else self.books.forbidden.add)((group, name))

    async def _change(self, name: str, read: int, write: int, perm: int) -> None:
        await self.tool.ask(UpdateTopic(name, "TBW102", read, write, perm))
        topic = self.books.topics[name]
        topic.read, topic.write, topic.perm = read, write, perm

    async def delete_group(self) -> None:
        group, clean = self.chance.choice(GROUPS), self.chance.random() < 0.6
        await self.tool.ask(DeleteGroup(group, clean))
        self.books.delete_group(group, clean)
        if self.chance.random() < 0.5:
            await self.change_group(group)

    async def change_group(self, group: str = "") -> None:
        group = group or self.chance.choice(GROUPS)
        most, queues = self.chance.choice((0, 1, 2, 2)), self.chance.choice((0, 1, 2, 2))
        config = GroupConfig(group, self.chance.random() < 0.9, retry_queue_nums=queues, retry_max_times=most)
        await self.tool.ask(UpdateGroup(config))
        self.books.groups[group] = config

    # --- what happens to the broker

    async def pass_time(self) -> None:
        await self.clock.advance(self.chance.choice((0.5, 2.0, 11.0, 31.0)))
        await self._settle()
        await self.check()

    async def _settle(self) -> None:
        """What is due has come, and what was committed is in the log: an answered commit takes all others along."""
        due = self.broker.serving.tables.due
        await self.clock.advance_until(lambda: (due.first_ms() or self.clock.wall_ms() + 1) > self.clock.wall_ms(), 0.1)
        await self.tool.ask(UpdateConsumerOffset(READER, "F", 0, 0))
        self.books.offsets.written()

    async def age(self) -> None:
        """Hours go by, and old segments are deleted."""
        self.clock.jump_wall(self.chance.choice((2, 5)) * HOUR_MS)
        await self.restart()  # a clock that jumped is not believed before
        for _ in range(3):
            await self.tool.ask(DeleteExpiredLog())
            await self.clock.advance(11.0)
        await self._settle()
        await self.check()

    async def restart(self) -> None:
        await self.look()
        await self.end()
        before = self.broker.store_dir
        await stop_somehow(self.broker, self.chance)
        await self.broker.start_broker()
        self.books.offsets.restart(self.broker.store_dir != before)
        table, books = self.broker.serving.tables.offsets, self.books.offsets.durable
        assert {key: at for key, at in table.committed().items() if key.group != READER} == {
            key: books[key].offset for key in books
        }
        assert table.resets.committed() == {key: at.reset for key, at in books.items() if at.reset}
        await self.begin()
        await self._settle()
        await self.look()

    async def finish(self) -> None:
        """All that fails has come in the end, once."""
        self.clock.jump_wall(9 * HOUR_MS)
        await self.clock.advance_until(lambda: not self.broker.serving.tables.due.pending)
        await self._settle()
        await self.check()
        assert not self.books.coming, "they never came again"
        await self.restart()


async def play(folder: Path, seed: int, steps: int = 12) -> None:
    settings = {**SETTINGS, "max_transfer_disk_count": 32}  # a queue that is read in a thread gives as much
    clock = TestClock(running=False, wall_ms=1_700_000_000_000)
    async with LocalBroker(store_dir=folder / str(seed) / "store", clock=clock, **settings) as broker:
        await broker.create_topic("F", 1)
        history = await History(broker, seed).begin()
        try:
            for name in TOPICS:
                await history.make(name)
            for group in GROUPS:
                await history.change_group(group)
            for _ in range(steps):
                await history.step()
            await history.finish()
        finally:
            await history.end()


async def play_all(folder: Path, *seeds: int) -> None:
    for seed in seeds:
        await play(folder, seed)


@pytest.mark.parametrize("seed", range(2))
async def test_a_history(seed: int, tmp_path: Path) -> None:
    """C3, C5, C7, C10: whoever consumes how, and whatever is done to topics, groups and the broker meanwhile."""
    await play(tmp_path, seed)


def _offsets_stay(patch: pytest.MonkeyPatch) -> None:
    """A deleted topic leaves its offsets."""
    patch.setattr(OffsetTable, "remove_topics", lambda self, topics: None)


def _commits_not_written(patch: pytest.MonkeyPatch) -> None:
    """They are answered, and seen, until the broker is killed."""

    async def write(self: OffsetHandlers) -> None:
        pass

    patch.setattr(OffsetHandlers, "write", write)


def _nobody_is_sent(patch: pytest.MonkeyPatch) -> None:
    """Readers go on where they are, whatever their group was set to."""
    patch.setattr(ResetTable, "take", lambda self, place, asked, owner: None)


def _tries_not_counted(patch: pytest.MonkeyPatch) -> None:
    """A failed message comes again as often as it likes."""
    patch.setattr(sendback, "counted", lambda times: times)


@pytest.mark.parametrize("mutant", [_offsets_stay, _commits_not_written, _nobody_is_sent, _tries_not_counted])
async def test_a_broker_that_breaks_a_rule_is_noticed(
    mutant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The histories are of use: without the rule one of them fails (G1)."""
    mutant(monkeypatch)
    with pytest.raises((AssertionError, RmqError)):
        await play_all(tmp_path, 2, 6, 7, *range(8, 16))  # the first that fails ends them

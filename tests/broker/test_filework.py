"""What a member has done with files in threads: bytes for followers that were away, and votes."""

import asyncio
import threading
from pathlib import Path

from rmq.broker.replication.filework import FileWork
from rmq.errors import NoRoom
from rmq.log.files.disk import RealDisk
from rmq.net.commands import UpdateTopic
from rmq.testing import TestClock, until
from tests.broker.groups import LocalGroup
from tests.broker.support import send


class Slow(RealDisk):
    """`go_on`: reads of the log in threads wait for it. `inside`: so many do now, `most`: so many did."""

    def __init__(self) -> None:
        super().__init__()
        self.go_on = threading.Event()
        self.go_on.set()
        self.inside = self.most = 0
        self._counting = threading.Lock()
        self._of_log: set[int] = set()

    def open(self, path: str) -> int:
        handle = super().open(path)
        (self._of_log.add if "/commitlog/" in path else self._of_log.discard)(handle)
        return handle

    def pread(self, handle: int, size: int, offset: int) -> bytes:
        if handle in self._of_log and threading.current_thread() is not threading.main_thread():
            with self._counting:
                self.inside += 1
                self.most = max(self.most, self.inside)
            self.go_on.wait()
            with self._counting:
                self.inside -= 1
        return super().pread(handle, size, offset)


async def test_a_follower_that_asks_again_has_one_read_under_way(tmp_path: Path) -> None:
    """D18: a device that takes seconds. Each question was one more read, in the threads that save votes and progress, too."""
    disks = {name: Slow() for name in ("n0", "n1", "n2")}
    async with LocalGroup(tmp_path, disks=disks) as group:
        peer = await group.connect(await group.leader())
        await peer.ask(UpdateTopic("T", read_queue_nums=1, write_queue_nums=1))
        away = (await group.followers())[0]
        await group.level()
        await group.stop(away)
        await peer.send(*(send("T", b"x" * 3000) for _ in range(200)))
        rest = list(group.nodes)
        await group.stop(*rest)
        await group.start(*rest)  # nothing of the log is in memory now
        await group.clock.advance(2)
        leader = await group.leader()
        disks[leader].go_on.clear()
        disks[leader].most = 0
        try:
            await group.start(away)
            member = group.nodes[away].serving.membership.member
            await until(lambda: disks[leader].inside)
            asked = member.core.state.fetches
            async with asyncio.timeout(30):
                while member.core.state.fetches < asked + 8:
                    await group.clock.advance(0.1)
            assert disks[leader].most <= 2  # of the two followers
        finally:
            disks[leader].go_on.set()
        await group.level()


async def test_the_newest_question_is_answered() -> None:
    """Those between it and the one that is being answered get nothing: nobody waits for them any more."""
    files, go_on = FileWork(TestClock(), lambda error: None), threading.Event()
    given: list[tuple[str, int, bytes]] = []

    def ask(asker: str, number: int) -> None:
        def work() -> bytes:
            go_on.wait()
            return b"x"

        files.read(asker, work, lambda data: given.append((asker, number, data)))

    for number in range(4):
        ask("a", number)
    ask("b", 0)
    assert given == [("a", 1, b""), ("a", 2, b"")]
    go_on.set()
    await until(lambda: len(given) == 5)
    assert sorted(given[2:]) == [("a", 0, b"x"), ("a", 3, b"x"), ("b", 0, b"x")]
    ask("a", 4)
    await until(lambda: ("a", 4, b"x") in given)
    await files.stop()


async def test_a_vote_that_is_being_saved_is_awaited_by_a_stop() -> None:
    """R8: it had no room at first, so no stop waited for the next try, which could come over the vote of the next start."""
    clock, go_on, told = TestClock(), threading.Event(), list[str]()
    files = FileWork(clock, lambda error: told.append(f"{error}"))

    def save() -> None:
        told.append("begins")
        if len(told) == 1:
            raise NoRoom("the disk is full")
        go_on.wait()
        told.append("ends")

    files.write(save, lambda: told.append("more follows"))
    await until(lambda: files.unsaved)
    await clock.advance(2)
    await until(lambda: len(told) == 2)
    stopping = asyncio.create_task(files.stop())
    await clock.advance(2)
    stopped_before = stopping.done()
    go_on.set()
    await stopping
    assert not stopped_before
    assert told == ["begins", "begins", "ends"]


async def test_what_waits_for_room_is_given_up_by_a_stop() -> None:
    tries = 0

    def save() -> None:
        nonlocal tries
        tries += 1
        raise NoRoom("the disk is full")

    files = FileWork(TestClock(running=False), lambda error: None)
    files.write(save, lambda: None)
    await until(lambda: files.unsaved)
    await files.stop()
    assert tries == 1


async def test_a_read_that_failed_holds_no_stop_up() -> None:
    """What is stopped after it, as connections and the flusher, would not be."""
    told: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(str(context["exception"])))
    files, go_on = FileWork(TestClock(), lambda error: None), threading.Event()

    def fail() -> bytes:
        go_on.wait()
        raise MemoryError("no room in memory")

    files.read("a", fail, lambda data: None)
    stopping = asyncio.create_task(files.stop())
    await asyncio.sleep(0)
    go_on.set()
    await stopping
    await until(lambda: told == ["no room in memory"])

"""The same random calls of Apache RocketMQ's own Java client, with a broker of ours and with one of Apache RocketMQ 5.5.0, and
where its user sees something else.

    python -m tests.interop.twinclients --seeds 1:10

Needs Maven and a JDK. As `tests.interop.twins`, each kind of difference is shown once; times, ids, addresses, and the words of
refusals are not compared. The seeds run side by side: their consumers wait for messages that come again. When
many do, RocketMQ may hand out popped ones minutes late: the seed alone shows then no difference.
"""

import asyncio
import itertools
import json
import sys
from collections.abc import Iterable
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any, Final

from rmq.testing import LocalBroker
from tests.interop.java import Java
from tests.interop.twincalls import QUIET_MS, Calls
from tests.interop.twins import first_of_each, main, rocketmq
from tests.interop.twinseen import Answer, Op, both_refuse, differs, seen

ASKED: Final = 100  # of each seed, before its consumers come
BESIDE: Final = 6  # seeds at a time
RETRIED_MS: Final = 8000  # nothing more comes: the first levels of delay, and questions after transactions, are shorter
POPPED_MS: Final = 20_000  # RocketMQ hides a message that failed for 10 s
RESET_MS: Final = 16_000  # Java's consumer waits 10 s when its group is set back
ENOUGH_MS: Final = 120_000
LATE: Final = 5
SETTLED_S: Final = 20
_ids = itertools.count(1)


class Side:
    """A Java program, and its answers as they come."""

    def __init__(self, program: Java) -> None:
        self._program = program
        self._waiting: dict[int, asyncio.Future[Answer]] = {}
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        while True:
            await self._program.until(lambda: self._program.lines, 3600)
            lines, self._program.lines[:] = [*self._program.lines], []
            for line in lines:
                if line.startswith("ANSWER "):
                    answer = json.loads(line.removeprefix("ANSWER "))
                    self._waiting.pop(answer["id"]).set_result(answer)

    async def ask(self, number: int, op: Op) -> Answer:
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        await self._program.tell(json.dumps({"id": number, "on": op.on, "call": op.call, "args": op.args}))
        async with asyncio.timeout(180):
            done, _ = await asyncio.wait([answer, self._reading], return_when=asyncio.FIRST_COMPLETED)
        return await answer if answer in done else await self._ended()

    async def _ended(self) -> Answer:
        await self._reading
        raise EOFError

    async def close(self) -> None:
        self._reading.cancel()
        with suppress(asyncio.CancelledError):
            await self._reading
        await self._program.kill()


class History:
    """The calls of a seed, at both sides. What follows a difference may come from it: the first one counts."""

    def __init__(self, seed: int, sides: tuple[Side, Side]) -> None:
        self._calls, self._sides, self._seed = Calls(seed), sides, seed
        self.different: dict[str, str] = {}  # by kind: the call and both answers

    async def run(self) -> None:
        calls = self._calls
        for op in calls.prepared():
            await self._both(op)
        await self._until_known()
        kinds = [*[self._send] * 6, *[self._pull] * 3, *[self._look] * 4, self._change, self._later]
        for _ in range(ASKED):
            await calls.one(*kinds)()
        await self._consume()
        for _ in range(ASKED // 4):
            await self._look()
        for op in calls.deleted():
            await self._both(op)
        calls.sent.clear()
        for _ in range(ASKED // 10):
            await self._look()

    async def _both(self, op: Op) -> tuple[int, list[Answer]]:
        number = next(_ids)
        answers = await self._asked(op, number)
        self._compare(op, answers)
        return number, answers

    async def _asked(self, op: Op, number: int) -> list[Answer]:
        return list(await asyncio.gather(*(side.ask(number, op) for side in self._sides)))

    async def _in_time(self, op: Op) -> None:
        """What comes, as long as it is not the same: RocketMQ may be late on a busy machine. A poll tells only what is new."""
        answers = await self._asked(op, next(_ids))
        for _ in range(LATE):
            if seen(op, answers[0]) == seen(op, answers[1]):
                return
            more = await self._asked(op, next(_ids))
            if op.call == "poll" and all("told" in answer for answer in (*answers, *more)):
                more = [{"told": old["told"] + new["told"]} for old, new in zip(answers, more, strict=True)]
            answers = more
        self._compare(op, answers)

    def _compare(self, op: Op, answers: list[Answer]) -> None:
        theirs, ours = (seen(op, answer) for answer in answers)
        if theirs != ours and not both_refuse(theirs, ours):
            what = differs(theirs, ours)
            says = [answer.get("says", "") for answer in answers]
            text = f"{op}\n  at {what}\n  RocketMQ {theirs} {says[0]}\n  ours     {ours} {says[1]}"
            self._note("".join(one for one in f"{op.call}: {what}" if not one.isdigit()), text)

    def _note(self, kind: str, text: str) -> None:
        if not self.different:
            self.different[kind] = f"seed {self._seed}: {text}"

    async def _until_known(self) -> None:
        """Heartbeats make the retry topic of a consumer, and its queues are given to it when it looks."""
        known = Op("admin", "examineTopicRouteInfo(String)", (f"%RETRY%{self._calls.lite}",))
        for side, op in itertools.product(self._sides, (known, Op(self._calls.lite, "assignment()", ()))):
            while not (await side.ask(next(_ids), op)).get("told"):
                pass

    async def _send(self) -> None:
        op = self._calls.send()
        number, answers = await self._both(op)
        if all(answer.get("told") for answer in answers):
            (topic, queue), offset = answers[0]["told"]["queue"], answers[0]["told"]["offset"]
            if topic != self._calls.d:
                self._calls.sent.append((number, topic))
                await self._settled(topic, queue, offset + (len(op.args[0]) if isinstance(op.args[0], list) else 1))
        elif "Oneway" in op.call and "failed" not in answers[0]:
            topic, queue = op.args[1]
            await self._settled(topic, queue, self._calls.ends.get((topic, queue), 0) + 1)

    async def _settled(self, topic: str, queue: int, end: int) -> None:
        """RocketMQ tells of a message before it can be pulled."""
        self._calls.ends[topic, queue] = end
        op = Op("admin", "maxOffset(MessageQueue)", ([topic, queue],))
        for name, side in zip(("RocketMQ", "ours"), self._sides, strict=True):
            try:
                async with asyncio.timeout(SETTLED_S):
                    while (await side.ask(next(_ids), op)).get("told", end) < end:
                        pass
            except TimeoutError:
                self._note(f"nothing: {name}", f"{name} has no message {end - 1} in queue {queue} of {topic}")

    async def _later(self) -> None:
        op = self._calls.later()
        number, answers = await self._both(op)
        if "delayMs" in op.args[0] and all("told" in answer for answer in answers) and self._calls.one(True, False):
            await self._both(self._calls.recall(number))

    async def _pull(self) -> None:
        op = self._calls.pull()
        await (self._in_time(op) if op.call == "poll" else self._both(op))

    async def _look(self) -> None:
        op = self._calls.look()
        number, answers = await self._both(op)
        if op.call.startswith("viewMessage") and all("told" in answer for answer in answers):
            self._calls.viewed.append(number)

    async def _change(self) -> None:
        await self._both(self._calls.change())

    async def _consume(self) -> None:
        """Consumers of all kinds, until nothing comes any more; then dead letters."""
        for op in self._calls.readable():
            await self._both(op)
        answering = self._calls.answering()
        await self._both(Op(answering["group"], "listen", (answering,)))
        for number in range(3):
            await self._both(self._calls.question(number))
        await self._both(Op(answering["group"], "shutdown()", ()))
        wanted = self._calls.listeners()
        await asyncio.gather(*(self._listened(each) for each in wanted))
        await self._both(Op(f"checks {self._calls.d}", "checks", (0, 0)))
        await asyncio.gather(*(self._buried(each["group"]) for each in wanted))

    async def _listened(self, settings: dict[str, Any]) -> None:
        name = settings["group"]
        await self._both(Op(name, "listen", (settings,)))
        await self._in_time(Op(name, "came", (POPPED_MS if settings.get("pop") else RETRIED_MS, ENOUGH_MS)))
        if settings.get("again"):
            where = settings["topic"], name, 0, True
            await self._both(Op("admin", "resetOffsetByTimestamp(String,String,long,boolean)", where))
            await self._in_time(Op(name, "came", (RESET_MS, ENOUGH_MS)))
        await self._both(Op(name, "shutdown()", ()))

    async def _buried(self, group: str) -> None:
        dead = f"%DLQ%{group}"
        _, found = await self._both(Op("admin", "examineTopicStats(String)", (dead,)))
        if any("told" in answer for answer in found):
            name = f"undertaker {group}"
            await self._both(Op(name, "consumer", ({"group": f"u{group}", "from": "CONSUME_FROM_FIRST_OFFSET"},)))
            await self._both(Op(name, "assign(Collection)", ([[dead, 0]],)))
            await self._in_time(Op(name, "poll", (QUIET_MS,)))
            await self._both(Op(name, "shutdown()", ()))


async def twins(folder: Path, seeds: Iterable[int]) -> dict[str, str]:
    """What is different: by kind, the first call that was."""
    settings = {"enablePropertyFilter": True, "recallMessageEnable": True, "transactionTimeOut": 1000}
    settings |= {"transactionCheckInterval": 1500, "transactionOpBatchInterval": 100, "popFromRetryProbability": 100}
    ours = LocalBroker(property_filter=True, recall_messages=True, transaction_timeout_ms=1000, transaction_check_interval_ms=500)
    async with rocketmq(folder, **settings) as theirs, ours, AsyncExitStack() as running:
        sides: list[Side] = []
        for nameserver, address in (theirs, (ours.nameserver, ours.address)):
            sides.append(Side(await Java.start_twin(nameserver, address, folder / address)))
            running.push_async_callback(sides[-1].close)
        beside = asyncio.Semaphore(BESIDE)
        histories = [History(seed, (sides[0], sides[1])) for seed in seeds]

        async def run(history: History) -> None:
            async with beside:
                await history.run()

        await asyncio.gather(*(run(history) for history in histories))
    return first_of_each(history.different for history in histories)


if __name__ == "__main__":
    sys.exit(main(__doc__ or "", "1:10", twins))

"""Topics are deleted and made again while messages of all kinds wait for them, and while leaders are killed (story 35, D12).

    python -m tests.faults.lives --deletions 20000 --kills 20 [--seed 1] [--flush sync] [--keep FOLDER] [--planted]

Three `rmq node` processes that elect their leader. Each of `--at-once` topics lives for a moment: messages are sent, popped and
let go, delayed, timed, and sent in transactions; then it is deleted and made again, with all that waits. Each message says for
which life it was sent: nothing may reach another one. In the end all nodes hold the same log, verify finds nothing,
nodes that make their queues anew have those of before (and what a new leader wrote), and nothing is left of topics that are gone.
`--planted`: nodes without the rules that keep lives apart; the campaign must find that.
"""

import argparse
import asyncio
import itertools
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, NamedTuple

import orjson

import rmq
from rmq.commands.shared.options import run_fast
from rmq.delivery.popping import pop_retry_topic
from rmq.errors import Refusal, RmqError
from rmq.log.files.disk import RealDisk
from rmq.log.records import record
from rmq.log.repair.verify import Verifier
from rmq.net.commands import DeleteTopic, Hello, Pull, PullAnswer, Send, SendAnswer, UpdateTopic
from rmq.net.commands.pop import Pop, PopAnswer
from rmq.net.commands.transactions import COMMIT, EndTransaction
from rmq.net.transport.channel import Channel
from tests.dialing import dial
from tests.faults.hurting import hurt_all, listed, until
from tests.faults.members import Members
from tests.faults.waiting import SETTINGS

GROUP = "lives"
BORN = record.host_bytes("127.0.0.1", 50000)
ANSWER_S = 8.0
SURE_S = 60.0
LONGEST_S = 1.5  # of a life: the leader looks every second for what was popped and let go
PLANTED = (  # what an older release did
    ("rmq/log/units.py", "        if queue.ended or life.ended or (", "        if (False and "),
    ("rmq/routing/topics.py", "        if value is not None:\n            self._not_leaving(name)\n", ""),
    ("rmq/broker/pending/internalproducer.py", "if self.topic(topic) is None and not is_system_topic(topic):", "if False:"),
    ("rmq/broker/pending/revive.py", "if self._topics.is_leaving(key.topic) or self._topics.is_leaving(retry):", "if False:"),
)


class Result(NamedTuple):
    seconds: float
    deletions: int
    leader_changes: int
    covered: Counter[str]
    found: list[str]


class Topics:
    """`at_once` topics that come and go, `deletions` times in all."""

    def __init__(self, members: Members, deletions: int, at_once: int, chance: random.Random) -> None:
        self._members = members
        self._left = deletions
        self._at_once = at_once
        self._chance = chance
        self._channel: Channel | None = None
        self._opening = asyncio.Lock()
        self.covered: Counter[str] = Counter()
        self.found: list[str] = []

    @property
    def names(self) -> list[str]:
        return [f"L{slot}" for slot in range(self._at_once)]

    async def play(self) -> None:
        try:
            await asyncio.gather(*(self._play(topic) for topic in self.names))
        finally:
            if self._channel is not None:
                await self._channel.close()

    async def _play(self, topic: str) -> None:
        for life in itertools.count():
            if self._left <= 0 or self.found:
                return
            self._left -= 1
            await self._live(topic, life)
            self.covered["deletions"] += 1

    async def _live(self, topic: str, life: int) -> None:
        chance = self._chance
        await self._surely(UpdateTopic(topic, "TBW102", 1, 1))
        kinds: list[dict[str, object]] = [{}, {}, {"DELAY": 1}, {"TIMER_DELAY_MS": chance.randrange(500, 4000)}]
        for said in kinds:
            await self._perhaps(_message(topic, life, said))
        half = await self._perhaps(_message(topic, life, {"TRAN_MSG": "true", "PGROUP": "p"}))
        end_s = time.monotonic() + chance.uniform(0.0, LONGEST_S)
        while True:
            await self._pop(topic, life)
            if time.monotonic() > end_s:
                break
            await asyncio.sleep(chance.uniform(0.0, 0.5))
        if isinstance(half, SendAnswer) and chance.random() < 0.5:
            await self._end(half, "halves committed")
        await self._look(topic, life)
        await self._surely(DeleteTopic(topic))
        if isinstance(half, SendAnswer) and chance.random() < 0.1:
            await self._end(half, "halves committed late")

    async def _pop(self, topic: str, life: int) -> None:
        hidden_ms = self._chance.choice((1, 1, 500, 60_000))
        answer = await self._perhaps(Pop(GROUP, topic, -1, 4, hidden_ms, 0, 0, 0))
        if isinstance(answer, PopAnswer) and answer.messages:
            self._judge(topic, life, list(record.iterate(answer.messages)), "popped")

    async def _look(self, topic: str, life: int) -> None:
        """Reads everything that the topic holds."""
        for name in (topic, pop_retry_topic(GROUP, topic)):
            answer = await self._perhaps(Pull("looking", name, 0, 0, sys_flag=4))
            if isinstance(answer, PullAnswer) and answer.messages:
                self._judge(topic, life, list(record.iterate(answer.messages)), "seen")

    def _judge(self, topic: str, life: int, messages: Sequence[record.Record], how: str) -> None:
        for one in messages:
            self.covered[how] += 1
            said = record.bytes_to_properties(one.properties)
            for kind in ("DELAY", "TIMER_OUT_MS", "TRAN_MSG"):
                self.covered[f"{how}: {kind}"] += kind in said
            self.covered[f"{how}: came back"] += one.reconsume_times > 0
            if one.body != b"%d" % life:
                self.found.append(f"{topic} has a message of life {one.body!r} in life {life} ({how}, {said})")

    async def _end(self, half: SendAnswer, what: str) -> None:
        said = EndTransaction("p", half.queue_offset, half.physical_offset, COMMIT, "id")
        done = await self._perhaps(said) is not False
        self.covered[what] += done

    # --- asking

    async def _perhaps(self, request: Any) -> Any:
        """Returns the answer; False for a refusal, or if there is no answer."""
        try:
            return await (await self._connected()).request(request, ANSWER_S)
        except Refusal:
            self.covered[f"{type(request).__name__} refused"] += 1
        except RmqError:
            self.covered[f"{type(request).__name__} without an answer"] += 1
        return False

    async def _surely(self, request: Any) -> None:
        """Asks until the request succeeds. Raises TimeoutError."""
        async with asyncio.timeout(SURE_S):
            while await self._perhaps(request) is False:
                await asyncio.sleep(0.05)

    def _leader(self) -> str:
        return self._members.nodes[self._members.leader].address if self._members.leader else ""

    async def _connected(self) -> Channel:
        """Returns a connection to the leader. Raises RmqError."""
        async with self._opening:
            while not (leader := self._leader()):
                await asyncio.sleep(0.05)
            if self._channel is not None and (self._channel.closed.is_set() or self._channel.address != leader):
                self._channel.abort("another one leads")
                self._channel = None
            self._channel = self._channel or await dial(leader, Hello(1, "lives"), timeout_s=2.0)
            return self._channel


def _message(topic: str, life: int, said: dict[str, object]) -> Send:
    known = {"UNIQ_KEY": f"{topic}-{life}-{next(_KEYS)}", **{name: str(value) for name, value in said.items()}}
    draft = record.draft(topic, b"%d" % life, record.properties_to_bytes(known), born_timestamp=1000, born_host=BORN)
    return Send("p", topic, 0, draft)


_KEYS = itertools.count()


# --- the end ----------------------------------------------------------------------------------------------------------


async def check_end(members: Members, folder: Path, names: Sequence[str]) -> list[str]:
    """Returns what is wrong: a node is missing or differs, verify finds damage, or rebuilt queues are not those of before."""
    found = [
        f"{name} ended with {node.process.returncode}"
        for name, node in members.nodes.items()
        if node.process is not None and node.process.returncode is not None
    ]
    members.look_anew()
    if found or not await until(members.level):
        return [*found, f"the nodes did not become equal: {members.status}"]
    if len(set(members.log_digests().values())) > 1:
        found.append("the logs differ")
    await members.stop()
    before = {name: _stopped(folder / name, names, found) for name in members.names}
    for name in members.names:
        shutil.rmtree(folder / name / "consumequeue")
    await members.start()
    if not await until(members.level):
        found.append(f"nodes that made their queues anew did not become equal: {members.status}")
    await members.stop()
    for name in members.names:
        after = _stopped(folder / name, names, found)
        others = [queue for queue, content in before[name].items() if not after.get(queue, b"").startswith(content.rstrip(b"\0"))]
        found += [f"{name}: {others[:10]} were made anew otherwise"] if others else []
    return found


def _stopped(store: Path, names: Sequence[str], found: list[str]) -> dict[str, bytes]:
    """Returns the first file of each queue of a stopped node, and adds to `found` what is wrong there."""
    report = Verifier(RealDisk(), str(store), 100_000).run()
    found += [f"{store.name}: {one.where}: {one.what}" for one in report.findings if one.damage or "anew" in one.what]
    gone = {*names, *(pop_retry_topic(GROUP, name) for name in names)}
    topics = orjson.loads((store / "config/topics.json").read_bytes())["topicConfigTable"]
    offsets = orjson.loads((store / "config/consumerOffset.json").read_bytes())["offsetTable"]
    queues = store / "consumequeue"
    kept = {
        "topics.json": set(topics),
        "consumerOffset.json": {place.partition("@")[0] for place in offsets},
        "consumequeue": {path.name for path in queues.iterdir()},
    }
    left = {place: sorted(gone & names)[:10] for place, names in kept.items() if gone & names}
    found += [f"{store.name}: something is left of deleted topics: {left}"] if left else []
    return {f"{path.relative_to(queues)}": path.read_bytes() for path in sorted(queues.glob("*/*/00000000000000000000"))}


def plant(folder: Path) -> Path:
    """Makes a copy of the package without the rules. Raises ValueError if the code has changed."""
    shutil.copytree(Path(rmq.__file__).parent, folder / "rmq", ignore=shutil.ignore_patterns("__pycache__"))
    for path, old, new in PLANTED:
        text = (folder / path).read_text()
        if text.count(old) != 1:
            raise ValueError(f"{path} has {text.count(old)} times {old!r}: the code changed, change the campaign")
        (folder / path).write_text(text.replace(old, new))
    return folder


async def campaign(
    folder: Path, deletions: int, kills: int, *, seed: int, at_once: int = 128, flush: str = "async", planted: bool = False
) -> Result:
    chance, began = random.Random(seed), time.monotonic()
    async with AsyncExitStack() as stack:
        members = Members(folder, None, flush=flush, **SETTINGS)
        stack.push_async_callback(members.kill)
        if planted:
            code = plant(folder / "planted")
            for node in members.nodes.values():
                node.environment = {"PYTHONSAFEPATH": "1", "PYTHONPATH": str(code)}
        await members.start()
        topics, covered = Topics(members, deletions, at_once, chance), Counter[str]()
        if not await until(lambda: members.leader):
            return Result(time.monotonic() - began, 0, 0, covered, ["nobody leads"])
        hurting = asyncio.create_task(hurt_all(members, kills, 0, chance, covered))
        playing = asyncio.create_task(topics.play())
        watching = asyncio.create_task(_first_exit(members, hurting))
        await asyncio.wait([playing, watching], return_when=asyncio.FIRST_COMPLETED)
        broken = [watching.result()] if watching.done() else []
        if broken:
            playing.cancel()
        outcomes = await asyncio.gather(playing, return_exceptions=True)
        found = [*broken, *topics.found, *(f"{one!r}" for one in outcomes if isinstance(one, Exception))]
        hurting.cancel() if found else None
        await asyncio.gather(hurting, return_exceptions=bool(found))
        watching.cancel()
        covered += topics.covered
        found = found or await check_end(members, folder, topics.names)
        found += members.troubles()
        changes = members.told("this node leads the group") - 1
        return Result(time.monotonic() - began, covered["deletions"], changes, covered, found)


async def _first_exit(members: Members, hurting: "asyncio.Task[None]") -> str:
    """Says which node ended by itself. Killed nodes do not count: their exit codes are negative."""
    del hurting
    while True:
        for name, node in members.nodes.items():
            if node.process is not None and (node.process.returncode or 0) > 0:
                return f"{name} ended with {node.process.returncode}: {node.log_text()[-500:]}"
        await asyncio.sleep(0.2)


def too_little(result: Result, deletions: int, kills: int) -> list[str]:
    """Says why the run proves little, if it does (G4)."""
    wanted = {
        "deletions": deletions,
        "kill": kills,
        "popped": deletions // 2,
        "popped: came back": deletions // 50,
        "seen: DELAY": deletions // 100,
        "seen: TIMER_OUT_MS": deletions // 100,
        "halves committed": deletions // 10,
    }
    return [f"only {result.covered[name]} {name}" for name, least in wanted.items() if result.covered[name] < least]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--deletions", type=int, default=2000)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--at-once", type=int, default=128, help="topics that live side by side")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--flush", choices=["sync", "async"], default="async")
    parser.add_argument("--keep", type=Path, help="where stores and the nodes' logs are left")
    parser.add_argument("--planted", action="store_true", help="nodes without the rules: this run must find something")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rmq-lives-") as temporary:
        folder = options.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        work = campaign(
            folder,
            options.deletions,
            options.kills,
            seed=options.seed,
            at_once=options.at_once,
            flush=options.flush,
            planted=options.planted,
        )
        result = run_fast(work)
    few = [] if result.found else too_little(result, options.deletions, options.kills)
    print(f"{result.seconds:.0f} s; {result.leader_changes} leader changes, {listed(result.covered)}")
    print(f"{len(result.found)} problems", *result.found[:40], *few, sep="\n")
    sys.exit(bool(few or bool(result.found) != options.planted))


if __name__ == "__main__":
    main()

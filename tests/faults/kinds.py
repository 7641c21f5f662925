"""Batches that are one record, light queues, lite topics, requests with replies, while nodes of a group are killed and paused.

    python -m tests.faults.kinds --kills 30 --pauses 10 [--seed 1] [--rate 100] [--flush sync]

Three `rmq node` processes that elect their leader. Batches go to a topic with `queue.type=BatchCQ`, messages to light queues of
which each names some, others to lite topics, and questions to members of a group that reply. Every second kill hits a leader
whose followers were stopped a moment before. In the end what is stored is judged (`batch_problems`, `light_problems`): a batch
is there whole, once, where its answer said, or not at all; each light queue holds the messages that name it, in the order of the
log, numbered without a gap; nobody got a reply to somebody else's question. What was acknowledged in a lite topic, and all before
it, came in order and not again (`lite_problems`). Readers got all of it, and all nodes have the same log. A run counts only if
there was enough trouble (G4). Prints what it covered. (Delays, transactions, priorities, pops in order: `delays`, `halves`,
`pops --urgent`, `moves`.)
"""

import asyncio
import random
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import NamedTuple

from rmq.client import Client, Message, ReceivedMessage
from rmq.client.admin.calls import update_group
from rmq.errors import RmqError
from rmq.log.records import record
from rmq.log.records.innerbatch import messages_in
from rmq.model import GroupConfig
from rmq.net.commands import Hello, Pull, PullAnswer
from tests.dialing import dial
from tests.faults.hurting import hurt_all, listed, main, too_few, until
from tests.faults.members import Members
from tests.faults.traffic import make_topic

BATCHES, LIGHTS, ASKED, LITES, QUEUES = "Batches", "Lights", "Asked", "Lites", 2
NAMES = ("one", "two", "three", "four")
SERVED = {"light_queues": "true", "light_dispatch": "true"}
CAME, ACKED = "came", "acknowledged"
HIDDEN_S = 5  # from a pop of lite topics until its messages may come again
DONE_SHARE = 0.995  # of them, acknowledged; an answer of eight with one that is not holds its lite topic up for 5 s
Place = tuple[int, int]  # queue, queue offset


class Batch(NamedTuple):
    """A batch that was sent. `place`: of its first message, as its answer said; None if nobody knows whether it is stored."""

    bodies: tuple[bytes, ...]
    place: Place | None


class Step(NamedTuple):
    """What happened to a message of a lite topic: it came, or its acknowledgement was answered."""

    what: str
    lite: str
    offset: int
    number: int


class Result(NamedTuple):
    seconds: float
    covered: Counter[str]
    leader_changes: int
    found: list[str]


def names_of(number: int) -> list[str]:
    """The light queues that this message names: none, some, or all."""
    return [name for bit, name in enumerate(NAMES) if number >> bit & 1]


# --- judging ----------------------------------------------------------------------------------------------------------


def batch_problems(sent: Sequence[Batch], stored: Mapping[int, Sequence[tuple[int, bytes]]]) -> list[str]:
    """Returns what is wrong. `stored`: of each queue the offset and body of each message."""
    places: dict[bytes, list[Place]] = defaultdict(list)
    found: list[str] = []
    for queue_id, messages in stored.items():
        if [offset for offset, _ in messages] != list(range(len(messages))):
            found.append(f"queue {queue_id} is not numbered without a gap")
        for offset, body in messages:
            places[body].append((queue_id, offset))
    found += [f"{body!r} was invented" for body in places.keys() - {body for one in sent for body in one.bodies}]
    for one in sent:
        there = [places.get(body, []) for body in one.bodies]
        if not any(there) and one.place is None:
            continue
        first = one.place or (there[0] or [(-1, -1)])[0]
        if there != [[(first[0], first[1] + number)] for number in range(len(one.bodies))]:
            found.append(f"the batch {one.bodies} was answered with {one.place} and is at {there}")
    return found


def light_problems(acked: set[int], topic: Sequence[int], lights: Mapping[str, Sequence[tuple[int, int]]]) -> list[str]:
    """Returns what is wrong. `topic`: all messages of the topic, as they lie in the log. `lights`: of each light queue the offset
    and number of each message."""
    found = [f"{number} is stored {topic.count(number)} times" for number in acked if topic.count(number) != 1]
    for name, messages in lights.items():
        if [offset for offset, _ in messages] != list(range(len(messages))):
            found.append(f"light queue {name} is not numbered without a gap")
        wanted = [number for number in topic if name in names_of(number)]
        if [number for _, number in messages] != wanted:
            found.append(f"light queue {name} holds {[number for _, number in messages]}, and {wanted} name it")
    return found


def lite_problems(sent: set[tuple[str, int]], history: Sequence[Step]) -> list[str]:
    """Returns what is wrong. `sent`: lite topic and number of the messages whose sends were answered."""
    found = [f"{missing} did not come" for missing in sorted(sent - {(one.lite, one.number) for one in history})[:9]]
    last: dict[str, int] = {}
    reached: Counter[str] = Counter()  # up to there all are acknowledged; what is behind comes again in order
    done: dict[str, set[int]] = defaultdict(set)  # acknowledged ones behind that
    for what, lite, offset, _ in history:
        if what == ACKED:
            done[lite].add(offset)
            while reached[lite] in done[lite]:
                done[lite].remove(reached[lite])
                reached[lite] += 1
        elif offset < reached[lite]:
            found.append(f"{lite}: {offset} came again though all up to {reached[lite] - 1} were acknowledged")
        elif offset > last.get(lite, -1) + 1:
            found.append(f"{lite}: {offset} came behind {last.get(lite, -1)}")
        else:
            # It is to be acknowledged anew, as all behind it is, also what found no room in the answer that began here.
            done[lite] = {one for one in done[lite] if one < offset}
        last[lite] = max(last.get(lite, -1), offset)
    return found


# --- doing ------------------------------------------------------------------------------------------------------------


class Kinds:
    """Producers, askers, members that reply, and readers. `rate`: sends and questions a second, each."""

    def __init__(self, nameservers: str, rate: float, chance: random.Random) -> None:
        self._pause_s = 1 / rate
        self._chance = chance
        self._client = Client(nameservers)
        self._tasks: list[asyncio.Task[None]] = []
        self._sending: list[asyncio.Task[None]] = []
        self._stopped = False
        self.covered: Counter[str] = Counter()
        self.batches: list[Batch] = []
        self.acked: set[int] = set()  # messages that name light queues
        self.answered = 0  # questions
        self.lite_sent: set[tuple[str, int]] = set()  # lite topic, number
        self.history: list[Step] = []  # of lite topics
        self.read: set[tuple[str, int]] = set()  # light queue, offset
        self.received: set[bytes] = set()  # bodies of batches
        self.found: list[str] = []

    async def start(self, members: Members) -> None:
        self._client.start()
        await make_topic(self._client, members, BATCHES, QUEUES, "+queue.type=BatchCQ")
        await make_topic(self._client, members, LIGHTS, QUEUES)
        await make_topic(self._client, members, ASKED, QUEUES)
        await make_topic(self._client, members, LITES, QUEUES, "+message.type=LITE")
        await self._bind_group(members)
        working = [self._receive(), self._reply(), *(self._read_light(name) for name in NAMES)]
        working += [self._take_lites(NAMES[:2]), self._take_lites(NAMES[2:])]
        self._tasks = [asyncio.create_task(one) for one in working]
        self._sending = [
            asyncio.create_task(one) for one in (self._send_batches(), self._send_lights(), self._send_lites(), self._ask())
        ]

    async def stop_trouble(self) -> None:
        """Stops sending; the last question is asked until it is answered."""
        self._stopped = True
        await asyncio.gather(*self._sending)

    async def stop(self) -> None:
        for task in (*self._tasks, *self._sending):
            task.cancel()
        await asyncio.gather(*self._tasks, *self._sending, return_exceptions=True)
        await self._client.close()

    def ended(self) -> list[str]:
        """Which of those that work until the end did not, and why."""
        return [f"{task.get_coro()} ended: {task.exception()!r}" for task in self._tasks if task.done()]

    async def _send_batches(self) -> None:
        producer, number = self._client.producer("batchers"), 0
        while not self._stopped:
            number += 1
            bodies = tuple(b"%d-%d" % (number, part) for part in range(self._chance.randrange(1, 8)))
            try:
                first = (await producer.send_batch([Message(BATCHES, body) for body in bodies]))[0]
                self.batches.append(Batch(bodies, (first.queue.queue_id, first.queue_offset)))
                self.covered["batches stored"] += 1
            except RmqError:
                self.batches.append(Batch(bodies, None))
                self.covered["batches without an answer"] += 1
            await asyncio.sleep(self._pause_s)

    async def _send_lights(self) -> None:
        producer, number = self._client.producer("lighters"), 0
        while not self._stopped:
            number += 1
            try:
                await producer.send(Message(LIGHTS, b"%d" % number, light_queues=names_of(number)))
                self.acked.add(number)
                self.covered["messages for light queues stored"] += bool(names_of(number))
            except RmqError:
                self.covered["messages for light queues without an answer"] += 1
            await asyncio.sleep(self._pause_s)

    async def _bind_group(self, members: Members) -> None:
        config = GroupConfig("takers", attributes={"+lite.bind.topic": LITES})
        async with asyncio.timeout(60):
            while True:
                try:
                    await update_group(self._client, config, broker=members.nodes[members.leader].address)
                    return
                except (RmqError, KeyError):
                    await asyncio.sleep(0.1)

    async def _send_lites(self) -> None:
        producer, number = self._client.producer("liters"), 0
        while not self._stopped:
            number += 1
            lite = NAMES[number % len(NAMES)]
            try:
                await producer.send(Message(LITES, b"%d" % number, lite_topic=lite))
                self.lite_sent.add((f"%LMQ%${LITES}${lite}", number))
                self.covered["messages for lite topics stored"] += 1
            except RmqError:
                self.covered["messages for lite topics without an answer"] += 1
            await asyncio.sleep(self._pause_s)

    async def _take_lites(self, lites: Sequence[str]) -> None:
        """Acknowledges most; what it does not comes again. So does what it acknowledges when its time may be over: that does
        nothing [RocketMQ's ordered pops]."""
        while True:
            try:
                async with self._client.lite_consumer("takers", LITES, lites) as consumer:
                    while True:
                        asked_s = time.monotonic()
                        messages = await consumer.receive(8, invisible_seconds=HIDDEN_S, wait_seconds=1)
                        steps = [Step(CAME, one.lies_in, one.queue_offset, int(one.body)) for one in messages]
                        self.history += steps  # all of an answer, before any is acknowledged
                        for message, step in zip(messages, steps, strict=True):
                            if self._chance.random() < DONE_SHARE:
                                await consumer.ack(message)
                                if time.monotonic() < asked_s + HIDDEN_S:
                                    self.history.append(step._replace(what=ACKED))
            except RmqError:
                self.covered["takers of lite topics that began again"] += 1
                await asyncio.sleep(0.1)

    async def _ask(self) -> None:
        number, last_answered = 0, False
        while not (self._stopped and last_answered):
            number += 1
            try:
                answer = await self._client.request(Message(ASKED, b"%d" % number), timeout=3.0)
                last_answered = True
                self.covered["questions answered"] += 1
                if answer.body != b"re:%d" % number:
                    self.found.append(f"question {number} was answered with {answer.body!r}")
            except RmqError:
                last_answered = False
                self.covered["questions without an answer"] += 1
            await asyncio.sleep(self._pause_s)

    async def _reply(self) -> None:
        async with self._client.consumer("repliers", ASKED, start="first") as consumer:
            await consumer.run(consumer.reply(lambda message: b"re:" + message.body))

    async def _receive(self) -> None:
        async with self._client.consumer("receivers", BATCHES, start="first") as consumer:
            await consumer.run(self._note)

    def _note(self, message: ReceivedMessage) -> None:
        self.received.add(message.body)

    async def _read_light(self, name: str) -> None:
        """Reads on; now and then it forgets what it did not commit, and begins again where its group is."""
        while True:
            async with self._client.light_consumer("readers", name, LIGHTS) as reader:
                while self._chance.random() < 0.9:
                    messages = await reader.receive(timeout=1.0)
                    self.read |= {(name, message.queue_offset) for message in messages}
                    try:
                        await reader.commit()
                    except RmqError:
                        self.covered["commits in light queues without an answer"] += 1
            self.covered["readers that began again"] += 1


class Stored(NamedTuple):
    """What a node holds. `topic` and `lights`: as of `light_problems`."""

    batches: dict[int, list[tuple[int, bytes]]]
    topic: list[int]
    lights: dict[str, list[tuple[int, int]]]


async def stored_at(address: str) -> Stored:
    channel = await dial(address, Hello(1, "judge"))

    async def read(topic: str, queue_id: int = 0) -> list[record.Record]:
        found: list[record.Record] = []
        offset = 0
        while True:
            answer = await channel.request(Pull("judges", topic, queue_id, offset, sys_flag=4), 10.0)
            assert isinstance(answer, PullAnswer)
            if answer.status != 0:
                return found
            found += record.iterate(answer.messages)
            offset = answer.next_begin_offset

    def apart(stored: Sequence[record.Record]) -> Iterator[tuple[int, bytes]]:
        for one in stored:
            yield from ((each.queue_offset, each.body) for each in messages_in(one))

    try:
        batches = {queue_id: list(apart(await read(BATCHES, queue_id))) for queue_id in range(QUEUES)}
        topic = [one for queue_id in range(QUEUES) for one in await read(LIGHTS, queue_id)]
        topic.sort(key=lambda one: one.physical_offset)
        lights = {
            name: [(record.queue_offset_in(f"%LMQ%{name}", one), int(one.body)) for one in await read(f"%LMQ%{name}")]
            for name in NAMES
        }
    finally:
        await channel.close()
    return Stored(batches, [int(one.body) for one in topic], lights)


async def campaign(folder: Path, kills: int, pauses: int, *, seed: int, rate: float, flush: str = "async") -> Result:
    chance = random.Random(seed)
    async with AsyncExitStack() as stack:
        members = Members(folder, None, flush=flush, **SERVED)
        stack.push_async_callback(members.kill)
        await members.start()
        kinds = Kinds(members.nameserver_list, rate, chance)
        stack.push_async_callback(kinds.stop)
        await kinds.start(members)
        began = time.monotonic()
        await hurt_all(members, kills, pauses, chance, kinds.covered)
        await kinds.stop_trouble()
        members.look_anew()
        found = kinds.found if await until(members.level) else ["the nodes' logs are not the same"]
        stored = await stored_at(members.nodes[members.leader].address)
        wanted = {(name, offset) for name, messages in stored.lights.items() for offset, _ in messages}
        bodies = {body for messages in stored.batches.values() for _, body in messages}
        if not await until(lambda: wanted <= kinds.read and bodies <= kinds.received):
            found += [
                f"{sorted(wanted - kinds.read)[:9]} and {sorted(bodies - kinds.received)[:9]} did not come to who reads them"
            ]
        if not await until(lambda: kinds.lite_sent <= {(one.lite, one.number) for one in kinds.history}):
            found.append("not all messages of lite topics came")
        found += kinds.ended()
        found += lite_problems(kinds.lite_sent, kinds.history)
        found += batch_problems(kinds.batches, stored.batches)
        found += light_problems(kinds.acked, stored.topic, stored.lights)
        if len(set(members.log_digests().values())) != 1:
            found.append("the nodes' logs differ")
        changes = members.told("this node leads the group") - 1
        return Result(time.monotonic() - began, kinds.covered, changes, found + members.troubles())


def too_little(result: Result, kills: int, pauses: int) -> list[str]:
    """Says why the run proves little, if it does (G4)."""
    few = too_few(result.covered, result.leader_changes, kills, pauses)
    wanted = ("batches stored", "messages for light queues stored", "messages for lite topics stored", "questions answered")
    return few + [f"only {result.covered[what]} {what}" for what in wanted if result.covered[what] < 10 * (kills + pauses)]


def told(result: Result) -> str:
    return f"{result.seconds:.0f} s; {result.leader_changes} leader changes, {listed(result.covered)}"


if __name__ == "__main__":
    main(__doc__, 100.0, campaign, too_little, told)

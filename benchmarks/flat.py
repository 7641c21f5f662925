"""Whether a message costs the same after millions of others, and with 1, 100 and 10 000 queues: single sends, native."""

import asyncio
import shutil
import statistics
from functools import partial
from pathlib import Path

from benchmarks import frames, targets
from benchmarks.measured import Load, compile_load, cpu_at_last, measure as measure_once
from benchmarks.options import Options, say
from benchmarks.remote import Remote
from benchmarks.rows import Goal, Row
from benchmarks.targets import Target

NAME = "flat"
_MESSAGES = 20_000_000
_WARM, _AT_A_TIME, _BATCH = 20_000, 200_000, 100
_STEPS = 4
_QUEUES = (1, 100, 10_000)
_MOST_QUEUES = 1_000  # of a topic
_STEADY, _STEADY_SECONDS = 10_000, 20  # a second: twice as long as between two saves of the queues' ends
_GOAL = Goal(1.15)
_MAKE_TOPIC, _MAX_OFFSET = 17, 30


def measure(options: Options) -> list[Row]:
    generator = compile_load(options.folder)
    made = frames.prepare(options.folder / "frames", "broker-a")
    return [*_over_time(generator, made, options), *_over_queues(generator, options)]


def _over_time(generator: Path, made: dict[str, frames.Prepared], options: Options) -> list[Row]:
    """Singles at the start and after each quarter of the messages, which come in batches between; in turns with those of a broker
    that has just begun, as a machine that slows down meanwhile would look like a cost that grows."""
    messages = options.part_of(_MESSAGES)
    ageing, costs = _begun(generator, made, options.folder / "ageing"), []
    try:
        for step in range(_STEPS + 1):
            costs.append(_beside_young(generator, made, ageing, options))
            say(f"  after {step * messages // _STEPS:,} messages: {costs[-1][0]:.2f} us, of a young broker {costs[-1][1]:.2f}")
            if step < _STEPS:
                between = Load("batch", "native", 4, 4, messages // _STEPS // _BATCH)
                measure_once(generator, ageing, between, made["native-batch"])
    finally:
        ageing.stop()
    work = f"single sends at the start and up to the {messages:,}th message: the dearest by those of a young broker in turns"
    about = "us each, and of a young broker: " + ", ".join(f"{old:.2f} and {young:.2f}" for old, young in costs)
    return [Row(NAME, work, "rmq", "", [max(old / young for old, young in costs)], _GOAL, about=about)]


def _begun(generator: Path, made: dict[str, frames.Prepared], folder: Path) -> Target:
    """A broker that has met its first messages."""
    target = targets.start_rmq(folder)
    frames.make_topic(target.port, target.broker_name)
    measure_once(generator, target, Load("single", "native", 4, 16, _WARM), made["native-single"])
    return target


def _beside_young(generator: Path, made: dict[str, frames.Prepared], ageing: Target, options: Options) -> tuple[float, float]:
    """What a single send costs this broker, and one that has just begun: medians of rounds in turns, us."""
    folder = options.folder / "young"
    young, singles = _begun(generator, made, folder), Load("single", "native", 4, 16, _AT_A_TIME)
    try:
        pairs = []
        for _ in range(options.rounds):
            options.fill_page_cache()
            pairs.append([measure_once(generator, target, singles, made["native-single"]).cpu_us for target in (ageing, young)])
    finally:
        young.stop()
        shutil.rmtree(folder)
    old, new = map(statistics.median, zip(*pairs, strict=True))
    return old, new


def _over_queues(generator: Path, options: Options) -> list[Row]:
    """As fast as it goes, where sends to one queue that come together share what a queue costs; and at a fixed rate."""
    target = targets.start_rmq(options.folder / "queues")
    loads = {
        "as fast as it goes": Load("single", "native", 4, 16, options.part_of(_AT_A_TIME)),
        f"at {_STEADY:,} a second": Load("single", "native", 4, 64, options.part_of(_STEADY * _STEADY_SECONDS), _STEADY),
    }
    costs: dict[tuple[str, int], list[float]] = {(how, count): [] for how in loads for count in _QUEUES}
    try:
        made = {}
        for count in _QUEUES:
            for topic in {topic for topic, _ in _places(count)}:
                asyncio.run(_make_topic(target, topic, min(count, _MOST_QUEUES)))
            made[count] = frames.singles(options.folder / f"Bench-{count}", _places(count))
            measure_once(generator, _wide(target, count), loads["as fast as it goes"], made[count])  # warms up
        for number in range(1, options.rounds + 1):
            for how, count in costs:
                options.fill_page_cache()
                costs[how, count].append(measure_once(generator, _wide(target, count), loads[how], made[count]).cpu_us)
                say(f"  round {number}/{options.rounds}  {count:,} queues, {how}: {costs[how, count][-1]:.2f} us")
    finally:
        cpu_at_last(target)
        target.stop()
    return [_queues_row(how, count, costs) for how in loads for count in _QUEUES[1:]]


def _wide(target: Target, count: int) -> Target:
    return target._replace(stored=partial(_stored, places=_places(count)))


def _queues_row(how: str, count: int, costs: dict[tuple[str, int], list[float]]) -> Row:
    work = f"single sends {how} round {len(_places(count)):,} of {count:,} queues, by those of one queue"
    own, least = costs[how, count], statistics.median(costs[how, _QUEUES[0]])
    about = f"{statistics.median(own):.2f} and {least:.2f} us a message"
    return Row(NAME, work, "rmq", "", [cost / least for cost in own], _GOAL, about=about)


def _places(count: int) -> list[tuple[str, int]]:
    """Topics with 1 000 queues at most, and as many of all the queues as `load` has room for."""
    each = min(count, _MOST_QUEUES)
    found = [(f"Bench-{count}-{topic}", queue) for queue in range(each) for topic in range(count // each)]
    return found[:: -(-count // frames.MOST_FRAMES)]


async def _make_topic(target: Target, topic: str, queues: int) -> None:
    fields = {
        "topic": topic, "defaultTopic": "TBW102", "readQueueNums": str(queues), "writeQueueNums": str(queues), "perm": "6",
        "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false",
    }  # fmt: skip
    async with Remote(target.port) as remote:
        code, _, _ = await remote.ask(_MAKE_TOPIC, fields)
        assert code == 0, f"the topic {topic} was refused with code {code}"


def _stored(port: int, places: list[tuple[str, int]]) -> int:
    """Messages ever stored there."""

    async def ask() -> int:
        async with Remote(port) as remote:
            asked = (remote.ask(_MAX_OFFSET, {"topic": topic, "queueId": str(queue)}) for topic, queue in places)
            return sum(int(answer.fields["offset"]) for answer in await asyncio.gather(*asked) if answer.code == 0)

    return asyncio.run(ask())

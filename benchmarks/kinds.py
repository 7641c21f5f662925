"""What messages of other kinds cost a broker, beside Apache RocketMQ, all in its JSON codec: delayed ones until they have come,
transactions until they are committed, popped ones until each is acknowledged by a request of its own.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from itertools import count

from benchmarks import frames, targets
from benchmarks.frames import BODY_BYTES, QUEUES, TOPIC
from benchmarks.measured import Load, compile_load, cpu_at_last, measure as measure_once, stored_at_last, until_warm
from benchmarks.options import Options, say
from benchmarks.remote import Remote
from benchmarks.rows import Goal, Row, beside
from benchmarks.targets import Target

NAME = "kinds"
GOAL = Goal(0.5, of_apache=True)
CONNECTIONS, IN_FLIGHT = 4, 16
_SEND, _POP, _ACK = 310, 200050, 200051
_POPPED_AT_ONCE = 32
_GROUPS = count(1)  # each round pops in a group of its own
Work = Callable[[Target, int], Coroutine[None, None, int]]


async def delayed(target: Target, messages: int) -> int:
    """Of the shortest level, one second: all of them are due while others come in."""
    await _each(target, messages, lambda remote, number: _send(remote, target, number, {"DELAY": "1"}))
    return messages


async def popped(target: Target, messages: int) -> int:
    """Sends that many first, which costs nothing here."""
    group, taken = f"bench-pop-{next(_GROUPS)}", 0

    async def take(remote: Remote) -> None:
        nonlocal taken
        while taken < messages:
            found = await _pop(remote, target, group)
            taken += found

    async with _connected(target) as remotes:
        await asyncio.gather(*(take(remote) for remote in remotes for _ in range(2)))
    return taken


KINDS = {
    "delayed": ("delayed by a second, sent and delivered, 4 x 16 in flight", 20_000),
    "transactional": ("transactions, half and commit, 4 x 16 in flight", 50_000),
    "popped": ("popped 32 at a time by 8, each acknowledged alone", 20_000),
}
"""What it is, and how many messages a round has."""


# --- requests ---------------------------------------------------------------------------------------------------------


class _connected:
    """`async with _connected(target) as remotes`."""

    def __init__(self, target: Target) -> None:
        self._remotes = [Remote(target.port) for _ in range(CONNECTIONS)]

    async def __aenter__(self) -> list[Remote]:
        return [await remote.__aenter__() for remote in self._remotes]

    async def __aexit__(self, *about: object) -> None:
        for remote in self._remotes:
            await remote.__aexit__(None, None, None)


async def _each(target: Target, messages: int, work: Callable[[Remote, int], Awaitable[object]]) -> None:
    numbers = iter(range(messages))

    async def worker(remote: Remote) -> None:
        for number in numbers:
            await work(remote, number)

    async with _connected(target) as remotes:
        await asyncio.gather(*(worker(remote) for remote in remotes for _ in range(IN_FLIGHT)))


async def _send(remote: Remote, target: Target, number: int, more: dict[str, str]) -> dict[str, str]:
    said = {"UNIQ_KEY": f"7F0000010BAD3E8B27C74C0F{number:08X}", "TAGS": "TagA", "KEYS": f"order-{number:010d}", "WAIT": "true"}
    properties = "".join(f"{name}\x01{value}\x02" for name, value in (said | more).items())
    fields = frames.send_fields(number % QUEUES, target.broker_name, properties, False)
    code, answer, _ = await remote.ask(_SEND, fields, bytes(BODY_BYTES))
    assert code == 0, f"{target.name} refuses a send with code {code}"
    return answer


async def _pop(remote: Remote, target: Target, group: str) -> int:
    fields = {
        "consumerGroup": group, "topic": TOPIC, "queueId": "-1", "maxMsgNums": str(_POPPED_AT_ONCE), "invisibleTime": "600000",
        "pollTime": "0", "bornTime": "0", "initMode": "0", "expType": "TAG", "exp": "*", "order": "false",
    }  # fmt: skip
    code, found, _ = await remote.ask(_POP, fields)
    if code:
        assert code in (209, 210), f"{target.name} refuses a pop with code {code}"
        await asyncio.sleep(0.01)
        return 0
    starts = {tuple(part.split()[:2]): part.split()[2] for part in found["startOffsetInfo"].split(";")}
    places = [part.split() for part in found["msgOffsetInfo"].split(";")]
    receipts = [
        (queue, offset, f"{starts[flag, queue]} {found['popTime']} {found['invisibleTime']} {found['reviveQid']} {flag}")
        for flag, queue, offsets in places
        for offset in offsets.split(",")
    ]
    await asyncio.gather(*(_acknowledge(remote, target, group, *receipt) for receipt in receipts))
    return len(receipts)


async def _acknowledge(remote: Remote, target: Target, group: str, queue: str, offset: str, receipt: str) -> None:
    receipt = f"{receipt} {target.broker_name} {queue} {offset}"
    fields = {"consumerGroup": group, "topic": TOPIC, "queueId": queue, "extraInfo": receipt, "offset": offset}
    code, _, _ = await remote.ask(_ACK, fields)
    assert code == 0, f"{target.name} refuses a receipt with code {code}"


# --- measuring --------------------------------------------------------------------------------------------------------


Figure = Callable[[Target, int], float]
"""Of so many messages: broker CPU in us each. Checks that delayed and transactional ones have arrived."""


def figures(options: Options) -> dict[str, Figure]:
    generator, made = compile_load(options.folder), frames.transactions(options.folder / "halves", "broker-a")

    def of_transactions(target: Target, messages: int) -> float:
        return measure_once(generator, target, Load("single", "json", CONNECTIONS, IN_FLIGHT, messages), made).cpu_us

    return {"delayed": partial(_figure, delayed), "transactional": of_transactions, "popped": partial(_figure, popped)}


def _figure(work: Work, target: Target, messages: int) -> float:
    before, cpu = target.stored(target.port), cpu_at_last(target)
    done = asyncio.run(work(target, messages))
    if work is delayed:
        arrived = stored_at_last(target, before + messages) - before
        assert arrived == messages, f"{target.name}: {messages} delayed messages sent, {arrived} came"
    return (cpu_at_last(target) - cpu) / done * 1e6


def measure(options: Options) -> list[Row]:
    of_kind = figures(options)
    running = [targets.start_rmq(options.folder / "rmq", options.sync)]
    found: dict[str, dict[str, list[float]]] = {kind: {} for kind in KINDS}
    try:
        if not options.apache_missing:
            running.append(targets.start_apache(options.folder / "apache", options.cache, say, options.sync))
        for target in running:
            frames.make_topic(target.port, target.broker_name)
        for kind, (title, messages) in KINDS.items():
            for target in running:
                say(f"  warming up {target.name}: {title}")
                until_warm(target, partial(of_kind[kind], target, options.part_of(messages)))
        for number in range(1, options.rounds + 1):
            for kind, (title, messages) in KINDS.items():
                for target in running:
                    cpu_us = of_kind[kind](target, options.part_of(messages))
                    found[kind].setdefault(target.name, []).append(cpu_us)
                    say(f"  round {number}/{options.rounds}  {target.name}: {title}: {cpu_us:.1f} us")
    finally:
        for target in running:
            target.stop()
    unit = "us of broker CPU a message"
    return [row for kind, of in found.items() for row in beside(NAME, KINDS[kind][0], unit, of, targets.APACHE, GOAL)]

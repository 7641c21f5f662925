"""The short form of the campaign of strangers (`python -m tests.faults.strangers` is the long one), and what it covers."""

import asyncio
import gc
from math import inf
from pathlib import Path

from rmq.broker.front.forwardline import Line
from rmq.codes import ResponseCode
from rmq.net.commands import CODES, Goodbye, UpdateTopic
from rmq.net.transport.connection import Connection
from tests.broker.groups import GROUP, LocalGroup
from tests.faults.storming import Fate, Target, storm
from tests.faults.strangers import campaign


async def test_strangers_end_nobody(tmp_path: Path) -> None:
    """S5, D18: mutated frames of every kind; times are measured by the long form only, on a quiet machine."""
    outcome = await campaign(tmp_path, frames=8_000, seed=5, workers=False, p99_ms=inf)
    assert outcome.found == []
    assert outcome.storm.frames >= 8_000
    sent = {fate.code for fate in outcome.storm.fates}
    assert {int(code) for kind, code in CODES.items() if kind is not Goodbye} - sent == set()
    assert _reached(outcome.storm.fates) > 0.5, "most say nothing but 'wrong' (G4)"


def _reached(fates: dict[Fate, int]) -> float:
    """Share of the codes of which at least one frame got through to success, among those that are served there."""
    results: dict[tuple[str, int], set[int]] = {}
    for fate in fates:
        if fate.kind in ("native", "remoting", "nameserver"):
            results.setdefault((fate.kind, fate.code), set()).add(fate.result)
    served = [seen for seen in results.values() if not _is_for_others(seen)]
    return sum(0 in seen for seen in served) / len(served)


def _is_for_others(seen: set[int]) -> bool:
    """Whether no target serves the code: besides frames that were damaged or wrong in themselves, all said so."""
    not_supported = int(ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
    return not_supported in seen and all(one < 0 or one in (not_supported, ResponseCode.INVALID_PARAMETER) for one in seen)


async def test_nothing_is_kept_of_strangers_that_left(tmp_path: Path) -> None:
    """S5: no table, no answered request and no circle of references keeps a connection and its bytes: the cycle collector,
    which would find circles, comes seldom."""
    async with LocalGroup(tmp_path) as group:
        leader = await group.connect(await group.leader())
        await leader.ask(UpdateTopic("T0", read_queue_nums=1, write_queue_nums=1))
        targets = [Target(name, group.address(name), GROUP, kind) for name in group.nodes for kind in ("native", "remoting")]
        targets += [Target(name, group.peer_address(name), GROUP, "peer") for name in group.nodes]
        gc.collect()
        gc.disable()
        try:
            storming = asyncio.create_task(storm(targets, 5, 1_500, 1e9))
            while not storming.done():
                await group.clock.advance(0.02)
            assert not storming.result().found
            async with asyncio.timeout(30):
                while _left():
                    await group.clock.advance(0.1)
        finally:
            gc.enable()


def _left() -> list[object]:
    """Connections that have ended, and lines on which ended ones were forwarded."""
    found = [one for one in gc.get_objects() if isinstance(one, (Connection, Line))]
    return [one for one in found if (one.connection if isinstance(one, Line) else one).closed]

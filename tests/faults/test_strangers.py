"""The short form of the campaign of strangers (`python -m tests.faults.strangers` is the long one), and what it covers."""

from math import inf
from pathlib import Path

from rmq.net.commands import CODES, Goodbye
from tests.faults.storming import Fate
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
    """Share of the codes of which at least one frame got through to success."""
    sent = {(fate.kind, fate.code) for fate in fates if fate.kind in ("native", "remoting", "nameserver")}
    good = {(fate.kind, fate.code) for fate in fates if fate.result == 0}
    return len(sent & good) / len(sent)

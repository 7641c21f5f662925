"""The alerts of `ops/alerts.yml`, evaluated by Prometheus' own promtool on what real nodes told."""

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import orjson
import pytest

from rmq.ops.metrics import Part
from tests.ops.watching import scrape_of

RULES = Path(__file__).parents[2] / "ops" / "alerts.yml"
PHASE_MINUTES = 30
CLOCK = ("rmq_clock_seconds", "rmq_certificate_end_seconds")  # Unix times
Told = dict[str, float]  # by series, spelled as Prometheus does
needs_promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason="needs Prometheus (Debian: prometheus)")


async def told(now_s: float, instances: Mapping[str, Sequence[Part]]) -> Told:
    """What these instances tell now. One without parts is gone. `now_s`: by Prometheus' clock; times become distances to it."""
    found: Told = {}
    for instance, parts in instances.items():
        where = f'instance="{instance}",job="rmq"'
        found[f"up{{{where}}}"] = float(bool(parts))
        for line in (await scrape_of(*parts)).splitlines() if parts else ():
            if not line.startswith("#"):
                series, _, value = line.rpartition(" ")
                name, brace, labels = series.partition("{")
                told_s = now_s if name in CLOCK else 0.0
                found[f"{name}{{{where}{',' if brace else ''}{labels.removesuffix('}')}}}"] = float(value) - told_s
    return found


def firing(folder: Path, phases: Sequence[tuple[Told, Told]], expected: Sequence[set[str]]) -> None:
    """Each phase takes 30 minutes, from the first to the second of what was told; at its end exactly the expected alerts fire."""
    names = sorted({name for phase in phases for one in phase for name in one})
    series = [
        {
            "series": name,
            "values": " ".join(
                _values(begin.get(name), end.get(name), number * name.startswith(CLOCK), name.startswith(CLOCK))
                for number, (begin, end) in enumerate(phases)
            ),
        }
        for name in names
    ]
    expressions = [
        {
            "expr": 'group by (alertname) (ALERTS{alertstate="firing"})',
            "eval_time": f"{(number + 1) * PHASE_MINUTES - 1}m",
            "exp_samples": [{"labels": f'{{alertname="{name}"}}', "value": 1} for name in sorted(names)],
        }
        for number, names in enumerate(expected)
    ]
    test = {"interval": "1m", "input_series": series, "promql_expr_test": expressions}
    whole = {"rule_files": [str(RULES)], "evaluation_interval": "30s", "tests": [test]}
    (folder / "test.yml").write_bytes(orjson.dumps(whole))
    done = subprocess.run(["promtool", "test", "rules", str(folder / "test.yml")], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def _values(begin: float | None, end: float | None, phase: int, is_clock: bool) -> str:
    """One a minute; none where nothing was told. Prometheus' clock begins at 0."""
    if begin is None or end is None:
        return f"_x{PHASE_MINUTES}"
    step = (end - begin) / (PHASE_MINUTES - 1)
    passed_s = [60 * (phase * PHASE_MINUTES + minute) * is_clock for minute in range(PHASE_MINUTES)]
    return " ".join(f"{begin + step * minute + passed_s[minute]!r}" for minute in range(PHASE_MINUTES))

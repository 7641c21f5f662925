"""Every command of mqadmin 5.5.0 prints of our broker what it prints of Apache RocketMQ's, field by field (mqadminsteps.py)."""

import json
import re
from pathlib import Path

import pytest

from tests.interop import java
from tests.interop.mqadmin import RECORDED, at_ours, compared
from tests.interop.mqadminsteps import DIFFERENT, STEPS

ROOT = Path(__file__).parent.parent.parent


def test_the_page_has_each_command() -> None:
    """docs/compatibility.md, command by command: the same, or what differs and why."""
    text = (ROOT / "docs" / "compatibility.md").read_text()
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", text, re.MULTILINE))
    commands = {step.command for step in STEPS if step.kind != "."}
    assert rows.keys() == commands
    for command in commands:
        reasons = {why for line, why in DIFFERENT.items() if line.split()[0] == command}
        assert rows[command] == ("; ".join(sorted(reasons)) or "the same"), command


@pytest.mark.java
@pytest.mark.skipif(bool(java.MISSING), reason=java.MISSING)
async def test_each_command_prints_what_it_prints_of_rocketmq(tmp_path: Path) -> None:
    """Success, refusal, nobody there; what differs is known, and no more than that."""
    java.build()
    ours, exported = await at_ours(tmp_path)
    strange = [
        (step.line, rows)
        for step, rows in compared(ours, json.loads(RECORDED.read_text()))
        if bool(rows) != (step.line in DIFFERENT)
    ]
    assert not strange
    listed = {row.split()[0] for row in ours[0][1:] if len(row.split()) > 1} - {"See"}
    assert {step.command for step in STEPS if step.kind != "."} == listed - {"The"}
    for file, (theirs, mine) in exported.items():
        assert mine == theirs, file

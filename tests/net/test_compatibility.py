"""docs/compatibility.md says what the code does: every code of RocketMQ once, served with a test or refused with the reason."""

import re
from pathlib import Path

import pytest

from rmq.codes import RequestCode
from rmq.net.commands import CODES
from rmq.requests import REQUESTS

ROOT = Path(__file__).parent.parent.parent
ROW = re.compile(r"^\| (\d+) \| (\w+) \| (served|refused) \| (.+) \| (.+) \|$", re.MULTILINE)
ROWS = ROW.findall((ROOT / "docs" / "compatibility.md").read_text())
OURS = range(60_000, 70_000)
COMMANDS = {cls.__name__ for cls in CODES}


def test_every_code_of_ours_is_served_and_no_other() -> None:
    known = {(str(int(code)), code.name) for code in RequestCode if code not in OURS}
    assert {(code, name) for code, name, word, _, _ in ROWS if word == "served"} == known
    assert {int(code) for code, _ in known} == {int(code) for code in REQUESTS if code not in OURS}


def test_each_code_stands_once() -> None:
    codes = [code for code, *_ in ROWS]
    assert len(codes) == len(set(codes)) >= 160


@pytest.mark.parametrize("row", [row for row in ROWS if row[2] == "served"], ids=lambda row: row[0])
def test_the_test_of_a_served_code_is_there(row: tuple[str, ...]) -> None:
    command, file = (part.strip("`") for part in row[3:])
    assert command in COMMANDS
    text = (ROOT / file).read_text()
    assert re.search(rf"\b{command}\b|\b{row[0]}\b", text), f"{file} does not ask {command}"

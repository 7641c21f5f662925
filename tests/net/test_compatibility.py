"""docs/compatibility.md says what the code does: every code of RocketMQ once, served with a test or refused with the reason."""

import re
from pathlib import Path

import pytest

from rmq.codes import RequestCode, ResponseCode
from rmq.errors import Refusal
from rmq.net.commands import CODES
from rmq.net.remoting.headers import write
from rmq.net.remoting.refused import REFUSED
from rmq.requests import REQUESTS
from tests.net.remoting import decode

ROOT = Path(__file__).parent.parent.parent
ROW = re.compile(r"^\| (\d+) \| (\w+) \| (served|refused) \| (.+) \| (.+) \|$", re.MULTILINE)
PAGE = (ROOT / "docs" / "compatibility.md").read_text()
ROWS = ROW.findall(PAGE)
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
    command, named = (part.strip("`") for part in row[3:])
    assert command in COMMANDS
    file, _, test = named.partition("::")
    text = (ROOT / file).read_text()
    assert f"def {test}(" in text, f"{file} has no {test}"
    asked = rf"\b{command}\b|\b{command.lower()}\(|\b{row[0]}\b"
    assert re.search(asked, text), f"{file} does not ask {command}"


def test_refused_codes_are_answered_with_why_and_what_to_use_instead() -> None:
    """In both header forms; a binary one has 16 bits for the code. A number that nothing sends has no such words."""
    rows = [(int(code), plain(why), plain(instead)) for code, _, word, why, instead in ROWS if word == "refused"]
    told = {code: (why, instead) for code, why, instead in rows if instead != "nothing sends it"}
    assert told == REFUSED
    for code, why, instead in rows:
        for binary in (False, True):
            answer = decode(write(binary, code, 0, 1, "", {}))[0]
            assert isinstance(answer, Refusal)
            assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
            assert answer.remark.endswith(f" not supported: {why}; instead: {instead}" if code in told else " not supported")


def test_the_tests_of_flows_and_clients_are_there() -> None:
    programs = [(name.replace(".", "/") + ".py", "") for name in re.findall(r"`python -m (tests[\w.]+)", PAGE)]
    named = {*re.findall(r"`(tests/[\w/.]+)(?:::(\w+))?`", PAGE), *programs}
    assert len(named) > 40
    for file, test in named:
        assert f"def {test}" in (ROOT / file).read_text(), f"{file} has no {test}"


def plain(markdown: str) -> str:
    """Without the marks, and without what stands in a link's brackets."""
    return re.sub(r" \(\[[^)]*\)\)", "", markdown).replace("`", "")

"""Rules have a home: what code and tests cite stands in docs/invariants.md, and tests that name it check it."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
RULE = re.compile(r"\b([RDCNSLG])([1-9]\d?)(?:(?:-| to )(?:\1)?([1-9]\d?))?\b")  # R7, D1-D3, C11 to C13
TIME_RULE = re.compile(r"\b(T)([1-9]\d?)()\b")  # also what tests call their topics, so in docstrings and comments only
STORY = re.compile(r"\b[Ss]tor(?:y|ies) ((?:\d+)(?:(?:, | and |-)\d+)*)")
WORDS_OF_PYTHON = re.compile(r'"""(?:.|\n)*?"""|#.*')


def cited(text: str) -> set[str]:
    """The rules and stories that a text names, ranges written out."""
    words = "\n".join(WORDS_OF_PYTHON.findall(text))
    found = set()
    for kind, first, last in RULE.findall(text) + TIME_RULE.findall(words):
        found |= {f"{kind}{number}" for number in range(int(first), int(last or first) + 1)}
    for numbers in STORY.findall(text):
        for first, last in re.findall(r"(\d+)(?:-(\d+))?", numbers):
            found |= {f"Story {number}" for number in range(int(first), int(last or first) + 1)}
    return found


@cache
def defined() -> dict[str, str]:
    """What the page says of each rule."""
    page = (ROOT / "docs" / "invariants.md").read_text(encoding="utf-8")
    entries = re.findall(r"^- \*\*(Story \d+|[A-Z]\d+)\.((?:.|\n)*?)(?=\n- |\n\n|\Z)", page, re.MULTILINE)
    assert len(dict(entries)) == len(entries), "a rule stands there twice"
    return dict(entries)


@cache
def said_in(path: str, test: str) -> str:
    """What a test says of itself, in its own docstring or that of its file."""
    tree = ast.parse((ROOT / "tests" / path).read_text(encoding="utf-8"))
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == test]
    assert functions, f"{path} has no {test}"
    docs = [ast.get_docstring(tree), ast.get_docstring(functions[0])]
    return "\n".join(f'"""{doc}"""' for doc in docs if doc)


@pytest.mark.parametrize("folder", ["rmq", "analytics", "tests", "docs"])
def test_what_is_cited_is_defined(folder: str) -> None:
    pattern = "*.md" if folder == "docs" else "*.py"
    unknown = [
        f"{path.relative_to(ROOT)}: {sorted(strange)}"
        for path in sorted((ROOT / folder).rglob(pattern))
        if (strange := cited(path.read_text(encoding="utf-8")) - set(defined()))
    ]
    assert not unknown, "\n".join(["not in docs/invariants.md:", *unknown])


@pytest.mark.parametrize("rule", defined())
def test_what_is_defined_is_checked(rule: str) -> None:
    """The tests of a rule exist and name it; a rule without a test says why."""
    entry = defined()[rule]
    tests = re.findall(r"`([\w/]+\.py)::(\w+)`", entry)
    assert tests or re.search(r"\n  Not checked: \w", entry), f"{rule} has no test and does not say why"
    for path, test in tests:
        assert rule in cited(said_in(path, test)), f"{path}::{test} does not name {rule}"


def test_what_counts_as_cited() -> None:
    text = 'x = "T5"  # T2, R1-R3\n"""D9 to D11; stories 2, 65 and story 7-8."""\nassert ok, "too long (C5)"\n'
    stories = {f"Story {number}" for number in (2, 65, 7, 8)}
    assert cited(text) == {"T2", "R1", "R2", "R3", "D9", "D10", "D11", "C5"} | stories
    assert not cited("S0, SHA1, UTF-8, R_1, xD3")

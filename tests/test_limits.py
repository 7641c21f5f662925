"""docs/limits.md says what the code does: its numbers are the code's, its tests exist."""

import ast
import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "limits.md").read_text()
ROWS = [
    tuple(cell.strip() for cell in line.strip("|").split("|"))
    for line in PAGE.splitlines()
    if line.startswith("|") and not line.startswith(("| what |", "|---"))
]
UNITS = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "s": 1}


def code_says(path: str) -> object:
    """The value of `module.NAME`, of a field of a constant, or the default of a class's field."""
    words = path.split(".")
    for at in range(len(words), 0, -1):
        try:
            found = importlib.import_module(".".join(words[:at]))
        except ModuleNotFoundError:
            continue
        for name in words[at:]:
            found = default if (default := _default(found, name)) is not None else getattr(found, name)
        return found
    raise AssertionError(f"there is no {path}")


def _default(owner: object, name: str) -> object:
    if hasattr(owner, "__dataclass_fields__"):
        return owner.__dataclass_fields__[name].default
    return getattr(owner, "_field_defaults", {}).get(name) if isinstance(owner, type) else None


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_the_number_is_that_of_the_code_and_its_test_is_there(row: tuple[str, ...]) -> None:
    _, limit, code, _, test = row
    number, unit = re.fullmatch(r"([\d ]*\d) ?([A-Za-z]*)", limit).groups()  # type: ignore[union-attr]
    assert int(number.replace(" ", "")) * UNITS[unit] == code_says(code.strip("`"))
    path, _, name = test.strip("`").partition("::")
    defined = {node.name for node in ast.walk(ast.parse((ROOT / path).read_text())) if hasattr(node, "name")}
    assert name in defined, test

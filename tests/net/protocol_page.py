"""The tables of docs/protocol.md, made from the commands. Run `python -m tests.net.protocol_page` to write them anew."""

from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

from rmq.net.commands import ANSWERS, CODES

PAGE = Path(__file__).parent.parent.parent / "docs" / "protocol.md"
BEGIN, END = "<!-- tables: made by tests/net/protocol_page.py -->\n", "<!-- end of the tables -->\n"
SCALARS = {str: "text", int: "int", bool: "bool", bytes: "bytes", float: "float"}


def type_text(kind: Any) -> str:
    if get_origin(kind) is list:
        return f"[{type_text(get_args(kind)[0])}]"
    if get_origin(kind) is dict:
        key, value = get_args(kind)
        return f"{{{type_text(key)}: {type_text(value)}}}"
    return SCALARS.get(kind) or str(kind.__name__)


def default_text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return "[" + ", ".join(default_text(part) for part in value) + "]"
    if isinstance(value, bytes):
        return "empty"
    return f'"{value}"' if isinstance(value, str) else str(value)


def fields(cls: type[Any]) -> str:
    hints = get_type_hints(cls)
    shown = []
    for name in cls._fields:
        default = f" = {default_text(cls._field_defaults[name])}" if name in cls._field_defaults else ""
        shown.append(f"`{name}: {type_text(hints[name])}{default}`")
    return "<br>".join(shown) or "-"


def meaning(cls: type[Any]) -> str:
    """The docstring in one line; nothing where Python made it up."""
    text = " ".join((cls.__doc__ or "").split())
    return "" if text.startswith(f"{cls.__name__}(") else text.replace("|", "\\|")


def parts_of(cls: type[Any]) -> list[type[Any]]:
    """The NamedTuples among the types of the fields, in order."""
    found = []
    for kind in get_type_hints(cls).values():
        inner = get_args(kind)[-1] if get_origin(kind) in (list, dict) else kind
        if hasattr(inner, "_fields"):
            found += [inner, *parts_of(inner)]
    return found


def tables() -> str:
    lines = ["| code | request | its fields, in order | answer | |", "|---|---|---|---|---|"]
    for cls, code in sorted(CODES.items(), key=lambda item: item[1]):
        answer = ANSWERS[cls]
        named = answer.__name__ if answer else "-"
        lines.append(f"| {code:d} {code.name} | {cls.__name__} | {fields(cls)} | {named} | {meaning(cls)} |")
    answers = dict.fromkeys(answer for answer in ANSWERS.values() if answer is not None)
    inner = dict.fromkeys(part for cls in (*CODES, *answers) for part in parts_of(cls) if part not in answers)
    for title, classes in (("answer", answers), ("part of others", inner)):
        lines += ["", f"| {title} | its fields, in order | |", "|---|---|---|"]
        lines += [f"| {cls.__name__} | {fields(cls)} | {meaning(cls)} |" for cls in sorted(classes, key=lambda cls: cls.__name__)]
    return "\n".join(lines) + "\n"


def with_tables(page: str) -> str:
    head, _, rest = page.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return head + BEGIN + "\n" + tables() + "\n" + END + tail


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text()))

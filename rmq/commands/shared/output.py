"""How answers are printed: tables on a terminal, plain aligned columns elsewhere, JSON when asked.

Takes finished rows and knows nothing of brokers. rich is imported only for a terminal.
"""

import json
import re
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import click
import orjson

_GAP = 2  # blanks between columns
Cell = str | int | float | bool | datetime | None


class Table(NamedTuple):
    """`columns`: JSON name -> heading. `rows`: one cell per column. `notes`: lines below: JSON name -> (label, value)."""

    columns: Mapping[str, str]
    rows: Sequence[Sequence[Cell]]
    notes: Mapping[str, tuple[str, Cell]] = {}


def show(table: Table, form: str) -> None:
    """Prints a table. `form`: "table" or "json"."""
    if form == "json":
        show_json(as_json(table))
    elif sys.stdout.isatty():
        _show_rich(table)
    else:
        for line in plain_lines(table):
            click.echo(line)


def show_json(value: Any) -> None:
    """Prints one JSON value over several lines."""
    click.echo(json_text(value, orjson.OPT_INDENT_2))


def show_json_line(value: Any) -> None:
    """Prints one JSON value on one line (streams of messages)."""
    click.echo(json_text(value, 0))


def json_text(value: Any, option: int) -> str:
    """`option`: of orjson, of which indentation and sorted keys count. What would steer a terminal is written by its code, as all
    of it may be."""
    try:
        text = orjson.dumps(value, option=option | orjson.OPT_NON_STR_KEYS).decode()
        return _STEERING_IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
    except orjson.JSONEncodeError:  # a sum of more than 64 bits, where a broker tells odd numbers
        indent, in_order = 2 if option & orjson.OPT_INDENT_2 else None, bool(option & orjson.OPT_SORT_KEYS)
        return json.dumps(value, indent=indent, sort_keys=in_order, default=datetime.isoformat)


def report(done: str, addresses: Iterable[str], form: str, absent: Collection[str] = ()) -> None:
    """Prints what was done, and where, for `--output` table or json. `absent`: where there was nothing to delete."""
    if form == "json":
        show_json({"done": done, "addresses": list(addresses)} | ({"absent": sorted(absent)} if absent else {}))
        return
    for address in addresses:
        click.echo(f"{done} at {address}: success{' (it was not there)' if address in absent else ''}")


def as_json(table: Table) -> Any:
    """A list of objects; with notes, an object of `rows` and the notes."""
    rows = [dict(zip(table.columns, row, strict=True)) for row in table.rows]
    return {"rows": rows} | {name: value for name, (_, value) in table.notes.items()} if table.notes else rows


def plain_lines(table: Table) -> list[str]:
    """mqadmin's look: `#Heading` columns, padded with blanks, at least two between."""
    grid = [[f"#{heading}" for heading in table.columns.values()], *[[_text(cell) for cell in row] for row in table.rows]]
    widths = [max(len(row[at]) for row in grid) for at in range(len(table.columns))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in grid]
    return lines + [f"{label}: {_text(value)}" for label, value in table.notes.values()]


def _show_rich(table: Table) -> None:
    from rich.cells import cell_len
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    console = Console()
    texts = [[_text(cell) for cell in row] for row in table.rows]
    columns = list(zip(table.columns.values(), *texts, strict=True))
    least = [max(cell_len(word) for text in column for word in text.split() or [""]) for column in columns]
    room = console.width - _GAP * (len(columns) - 1)
    widths = [min(max(map(cell_len, column)), room) for column in columns]
    if sum(least) > room:  # the terminal breaks the lines itself: a column too narrow for its words could not be read
        for line in plain_lines(table):
            click.echo(line)
        return
    while sum(widths) > room:
        widths[max(range(len(widths)), key=lambda at: (widths[at] > least[at], widths[at]))] -= 1
    drawn = RichTable(box=None, pad_edge=False, header_style="bold")
    for at, heading in enumerate(table.columns.values()):
        is_numeric = bool(table.rows) and all(isinstance(row[at], (int, float)) for row in table.rows)
        drawn.add_column(heading, justify="right" if is_numeric else "left", overflow="fold", width=widths[at])
    for row in texts:
        drawn.add_row(*map(Text, row))
    console.print(drawn)
    for label, value in table.notes.values():
        console.print(Text(f"{label}: {_text(value)}"))


_BEHIND_ASCII = r"\x7f-\x9f\u2028-\u202e\u2066-\u2069"
_STEERING = re.compile(rf"[\x00-\x1f{_BEHIND_ASCII}]")
_STEERING_IN_JSON = re.compile(f"[{_BEHIND_ASCII}]")  # the others stand there by their codes already


def plain(text: str) -> str:
    """The text on one line. What would steer a terminal, or turn the direction of writing, is shown by its code."""
    return _STEERING.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def plain_text(text: str) -> str:
    """The same of a text of several lines, which stay."""
    return "\n".join(plain(line.expandtabs()) for line in text.splitlines())


def _text(cell: Cell) -> str:
    if cell is None:
        return "-"
    if isinstance(cell, bool):
        return "true" if cell else "false"
    if isinstance(cell, datetime):
        return cell.strftime("%Y-%m-%d %H:%M:%S,%f")[:-3]  # as mqadmin has it, in local time; JSON says the zone
    return f"{cell:.2f}" if isinstance(cell, float) else plain(str(cell))

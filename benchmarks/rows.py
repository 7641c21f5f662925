"""A row of the benchmarks' result: a figure, what it was to be, and whether that was reached; printed as Markdown and JSON."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple


class Goal(NamedTuple):
    """`at_most` (else at least). `of_apache`: of Apache RocketMQ's figure in the same run, not of our own."""

    value: float
    at_most: bool = True
    of_apache: bool = False

    def text(self) -> str:
        return f"{'at most' if self.at_most else 'at least'} {self.value:g}{' of Apache RocketMQ' if self.of_apache else ''}"

    def reached(self, figure: float) -> bool:
        return figure <= self.value if self.at_most else figure >= self.value


class Row(NamedTuple):
    """`name`: what `--only` calls its section. `figures`: one a round. `ratio`: of our median to Apache RocketMQ's. `about`: what
    else there is to say: rates, percentiles, memory, causes."""

    name: str
    work: str
    who: str
    unit: str
    figures: Sequence[float]
    goal: Goal | None = None
    ratio: float | None = None
    about: str = ""

    @property
    def median(self) -> float:
        return statistics.median(self.figures)

    @property
    def reached(self) -> bool | None:
        """None: there is no goal, or nothing beside to compare with."""
        if self.goal is None or (self.goal.of_apache and self.ratio is None):
            return None
        return self.goal.reached(self.ratio if self.goal.of_apache and self.ratio is not None else self.median)

    def as_json(self) -> dict[str, object]:
        return self._asdict() | {
            "goal": self.goal.text() if self.goal else None,
            "median": self.median,
            "lowest": min(self.figures),
            "highest": max(self.figures),
            "reached": self.reached,
        }


def beside(name: str, work: str, unit: str, found: Mapping[str, Sequence[float]], apache: str, goal: Goal) -> list[Row]:
    """A row for each broker. The goal is rmq's."""
    theirs = statistics.median(found[apache]) if found.get(apache) else None
    rows = []
    for who, figures in found.items():
        ratio = round(statistics.median(figures) / theirs, 2) if theirs and who != apache else None
        rows.append(Row(name, work, who, unit, figures, goal if who == "rmq" else None, ratio))
    return rows


def show(rows: Iterable[Row]) -> None:
    """Markdown."""
    print("| row | work | broker | median (lowest to highest) | of Apache RocketMQ | goal | reached | |")
    print("|---|---|---|---|---|---|---|---|")
    for row in rows:
        figures = f"{row.median:,.2f} ({min(row.figures):,.2f} to {max(row.figures):,.2f}) {row.unit}"
        reached = {None: "", True: "yes", False: "no"}[row.reached]
        ratio, goal = "" if row.ratio is None else f"{row.ratio:.2f}", row.goal.text() if row.goal else ""
        print(f"| {row.name} | {row.work} | {row.who} | {figures} | {ratio} | {goal} | {reached} | {row.about} |")

"""The results of a comparison: medians and ratios of each figure, as a table and as JSON that later runs complete."""

import json
import statistics
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from benches.kafka.lines import all_lines
from benches.kafka.measuring import LineRuns
from benches.report import aligned, machine, number


class Row(msgspec.Struct, frozen=True):
    """A figure of a line: Penstock's and Kafka's values in the order of the runs."""

    line: str
    title: str
    figure: str
    penstock: list[float]
    kafka: list[float]
    more_is_better: bool
    bound: float | None
    is_ratio: bool
    details: dict[str, float] = {}  # other medians of Penstock

    @property
    def ratio(self) -> float | None:
        """Penstock's median by Kafka's; None if one was not measured."""
        if not self.penstock or not self.kafka or not statistics.median(self.kafka):
            return None
        return statistics.median(self.penstock) / statistics.median(self.kafka)

    @property
    def outcome(self) -> str:
        """ "met", "missed", or "" without a goal or a measurement."""
        own = statistics.median(self.penstock) if self.penstock else None
        value = self.ratio if self.is_ratio else own
        if self.bound is None or value is None:
            return ""
        is_met = value >= self.bound if self.more_is_better else value <= self.bound
        return "met" if is_met else "missed"


def rows_of(measured: LineRuns) -> Iterator[Row]:
    """The rows of a line's figures."""
    line = measured.line
    penstock, kafka = (measured.figures.get(name, []) for name in line.pair)
    shown = {figure.name for figure in line.figures}
    others = {name for run in penstock for name in run} - shown
    details = {name: statistics.median([run.get(name, 0.0) for run in penstock]) for name in sorted(others)}
    for position, figure in enumerate(line.figures):
        yield Row(
            line.name,
            line.title,
            figure.name,
            [run[figure.name] for run in penstock if figure.name in run],
            [run[figure.name] for run in kafka if figure.name in run],
            figure.more_is_better,
            None if figure.goal is None else figure.goal.bound,
            figure.goal is None or figure.goal.is_ratio,
            {} if position else details,
        )


def table(rows: Iterable[Row]) -> str:
    """The rows in aligned columns, with medians."""
    cells = [("line", "figure", "Penstock", "Kafka", "ratio", "goal", "")]
    cells += [(row.line, row.figure, _median(row.penstock), _median(row.kafka), *_goal(row)) for row in rows]
    return aligned(cells)


def _median(values: Sequence[float]) -> str:
    return number(statistics.median(values)) if values else "-"


def _goal(row: Row) -> tuple[str, str, str]:
    ratio = "-" if row.ratio is None else f"{row.ratio:.2f}"
    if row.bound is None:
        return ratio, "", ""
    sign = ">=" if row.more_is_better else "<="
    return ratio, f"{sign} {number(row.bound)}{'x' if row.is_ratio else ''}", row.outcome


def save(rows: Iterable[Row], path: Path) -> None:
    """Write the rows as JSON; lines in the file that were not measured now stay."""
    kept = json.loads(path.read_text())["results"] if path.exists() else []
    new = [_as_json(row) for row in rows]
    measured = {row["line"] for row in new}
    order = list(all_lines())
    merged = [row for row in kept if row["line"] in order and row["line"] not in measured] + new
    merged.sort(key=lambda row: order.index(row["line"]))
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"machine": machine(), "results": merged}, indent=2) + "\n")


def _as_json(row: Row) -> dict[str, Any]:
    built: dict[str, Any] = msgspec.to_builtins(row)
    return built | {"ratio": row.ratio, "outcome": row.outcome}

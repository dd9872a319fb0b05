"""The results of benches: as a table, and as JSON."""

import json
import os
import platform
from collections.abc import Sequence
from pathlib import Path

import msgspec

RESULTS = Path(__file__).parent / "results"


class Result(msgspec.Struct, frozen=True):
    """One figure; `budget` is None without a budget in DESIGN."""

    bench: str
    name: str
    value: float
    unit: str
    budget: float | None = None
    more_is_better: bool = False
    details: dict[str, float] = {}

    # A property of the data, because both outputs have it.
    @property
    def outcome(self) -> str:
        """ "ok", "missed", or "" without a budget."""
        if self.budget is None:
            return ""
        kept = self.value >= self.budget if self.more_is_better else self.value <= self.budget
        return "ok" if kept else "missed"


def table(results: Sequence[Result]) -> str:
    """The results in aligned columns."""
    rows = [("bench", "figure", "measured", "budget", "", "")]
    for result in results:
        sign = ">=" if result.more_is_better else "<="
        budget = "" if result.budget is None else f"{sign} {number(result.budget)} {result.unit}"
        details = ", ".join(f"{name} {number(value)}" for name, value in result.details.items())
        rows.append(
            (result.bench, result.name, f"{number(result.value)} {result.unit}", budget, result.outcome, details)
        )
    return aligned(rows)


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Rows of cells in aligned columns; the first is the head."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])


def save(results: Sequence[Result], name: str) -> Path:
    """Write the results as JSON, and return the file."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    rows = [msgspec.to_builtins(result) | {"outcome": result.outcome} for result in results]
    path.write_text(json.dumps({"machine": machine(), "results": rows}, indent=2) + "\n")
    return path


def machine() -> dict[str, str | int | None]:
    """This machine, as the results describe it."""
    return {"cores": os.cpu_count(), "python": platform.python_version(), "machine": platform.machine()}


def number(value: float) -> str:
    """A figure with three digits, or all digits before the point."""
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"

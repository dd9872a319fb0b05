"""The tables and plots of docs/performance.md, from the results of a bench run that was kept."""

import json
from pathlib import Path
from typing import Any

from tests.testkit.docs.blocks import Maker, table

RESULTS = Path(__file__).parents[3] / "docs" / "benches.json"  # `make bench ARGS="--keep docs/benches.json"` writes it


def read_results() -> dict[str, Any] | None:
    """The results of the last bench run that was kept; None without one."""
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else None


def makers(results: dict[str, Any] | None) -> dict[str, Maker]:
    """A block with a table for every bench, and blocks with plots."""
    return {
        "machine": lambda: _machine(results),
        "budgets": lambda: _budgets(results),
        "latency_plot": lambda: _plot(results, "latency", "Produce to consume, milliseconds", "ms"),
        "cpu_plot": lambda: _plot(results, "produce", "CPU for one MiB of records, milliseconds", "ms/MiB"),
    }


def _machine(results: dict[str, Any] | None) -> list[str]:
    if results is None:
        return ["No bench run was kept."]
    machine = results["machine"]
    return [f"Measured on {machine['cores']} cores ({machine['machine']}) with Python {machine['python']}."]


def _budgets(results: dict[str, Any] | None) -> list[str]:
    rows = [
        [each["bench"], each["name"], f"{_number(each['value'])} {each['unit']}", _budget(each), each["outcome"]]
        for each in (results or {"results": []})["results"]
    ]
    return table(["bench", "figure", "measured", "budget", "result"], rows)


def _budget(row: dict[str, Any]) -> str:
    if row["budget"] is None:
        return ""
    return f"{'at least' if row['more_is_better'] else 'at most'} {_number(row['budget'])}"


def _plot(results: dict[str, Any] | None, bench: str, title: str, unit: str) -> list[str]:
    """A bar chart of a bench's figures in one unit."""
    rows = [each for each in (results or {"results": []})["results"] if each["bench"] == bench and each["unit"] == unit]
    rows = list({each["name"]: each for each in reversed(rows)}.values())[::-1]  # the first of each name
    names = ", ".join(json.dumps(each["name"].strip()) for each in rows)
    values = ", ".join(_number(each["value"]).replace(",", "") for each in rows)
    if not rows:
        return ["No figures were kept."]
    return [
        "```mermaid",
        "xychart-beta horizontal",
        f'    title "{title}"',
        f"    x-axis [{names}]",
        f"    bar [{values}]",
        "```",
    ]


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"

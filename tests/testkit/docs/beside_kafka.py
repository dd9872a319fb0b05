"""The table and the plots of docs/performance.md beside Apache Kafka, from results of `make bench-kafka`."""

import json
import statistics
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.testkit.docs.blocks import Maker, table

RESULTS = (
    Path(__file__).parents[3] / "docs" / "kafka.json"
)  # `make bench-kafka ARGS="--keep docs/kafka.json"` writes it
NOTHING_KEPT = "No comparison was kept."


def read_results() -> dict[str, Any] | None:
    """The kept results; None without any."""
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else None


def makers(results: dict[str, Any] | None) -> dict[str, Maker]:
    """A block with the table, and two with plots of the ratios to Kafka."""
    rows = [] if results is None else results["results"]
    return {
        "kafka_table": lambda: _table(rows),
        "kafka_more_plot": lambda: _plot(rows, "Penstock by Kafka, more is better", more_is_better=True),
        "kafka_less_plot": lambda: _plot(rows, "Penstock by Kafka, less is better", more_is_better=False),
    }


def _table(rows: list[dict[str, Any]]) -> list[str]:
    if not rows:
        return [NOTHING_KEPT]
    cells = [
        [
            row["title"],
            row["figure"],
            _median(row["penstock"]),
            _median(row["kafka"]),
            _ratio(row),
            _goal(row),
            row["outcome"],
        ]
        for row in rows
    ]
    return table(["line", "figure", "Penstock", "Kafka", "ratio", "goal", "result"], cells)


def _ratio(row: dict[str, Any]) -> str:
    return "" if row["ratio"] is None else f"{row['ratio']:.2f}"


def _goal(row: dict[str, Any]) -> str:
    if row["bound"] is None:
        return ""
    return (
        f"{'at least' if row['more_is_better'] else 'at most'} {_number(row['bound'])}{'x' if row['is_ratio'] else ''}"
    )


def _median(values: Iterable[float]) -> str:
    found = list(values)
    return _number(statistics.median(found)) if found else ""


def _plot(rows: list[dict[str, Any]], title: str, *, more_is_better: bool) -> list[str]:
    """A bar chart of the ratios that have a goal."""
    shown = [
        row
        for row in rows
        if row["more_is_better"] == more_is_better and row["ratio"] is not None and row["bound"] is not None
    ]
    if not shown:
        return [NOTHING_KEPT]
    names = ", ".join(json.dumps(f"{row['line']} {row['figure']}") for row in shown)
    ratios = ", ".join(f"{row['ratio']:.2f}" for row in shown)
    return [
        "```mermaid",
        "xychart-beta horizontal",
        f'    title "{title}"',
        f"    x-axis [{names}]",
        f"    bar [{ratios}]",
        "```",
    ]


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"

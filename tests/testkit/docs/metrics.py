"""The tables of docs/operating/metrics.md: every metric that the code makes, found in its source."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.testkit.docs.blocks import Maker, table

ROOT = Path(__file__).parents[3]
KINDS = {
    "counter": "counter",
    "gauge": "gauge",
    "histogram": "histogram",
    "gaugemetricfamily": "gauge",
    "countermetricfamily": "counter",
}
SECTIONS = {
    "gateway": "services/gateway",
    "flusher": "services/flusher",
    "sequencer": "services/sequencer",
    "cacher": "services/cacher",
    "compactor": "services/compactor",
    "janitor": "services/janitor",
    "console": "services/console",
    "shared": "libs",
}


class Metric(NamedTuple):
    """One metric as scrapers see it."""

    name: str
    kind: str
    labels: tuple[str, ...]
    meaning: str


def makers() -> dict[str, Maker]:
    """A block `metrics_SECTION` for each service and one for the metrics that several services have."""
    return {f"metrics_{section}": lambda folder=folder: _rows(folder) for section, folder in SECTIONS.items()}


def metrics_below(folder: str) -> list[Metric]:
    """The metrics that the code of a folder makes, by name."""
    sources = (ROOT / folder).glob("**/src/**/*.py") if folder != "libs" else (ROOT / "libs/src").rglob("*.py")
    return sorted({metric for path in sources for metric in metrics_of(path.read_text())})


def metrics_of(source: str) -> Iterator[Metric]:
    """The metrics that a module makes: calls of `Counter` and the like, or of partials named after them."""
    for call in ast.walk(ast.parse(source)):
        if not isinstance(call, ast.Call) or (kind := KINDS.get(_called(call.func).lower())) is None:
            continue
        match call.args:
            case [ast.Constant(value=str(name)), ast.Constant(value=str(meaning)), *rest] if name.startswith(
                "penstock_"
            ):
                lists = [each for each in (*rest, *(k.value for k in call.keywords)) if isinstance(each, ast.List)]
                labels = tuple(ast.literal_eval(label) for each in lists for label in each.elts)
                yield Metric(f"{name}_total" if kind == "counter" else name, kind, labels, meaning)


def _called(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _rows(folder: str) -> list[str]:
    rows = [
        [f"`{each.name}`", each.kind, ", ".join(f"`{label}`" for label in each.labels), each.meaning]
        for each in metrics_below(folder)
    ]
    return table(["metric", "kind", "labels", "meaning"], rows)

"""The page of metrics has each one that the code makes, and no other."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[3]
ROW = re.compile(r"^\| `(penstock_[a-z_]+)` \| (counter|gauge|histogram) \| (.*?)\|", re.MULTILINE)
KINDS = {"Counter": "counter", "Gauge": "gauge", "Histogram": "histogram", "GaugeMetricFamily": "gauge"}

Row = tuple[str, str, tuple[str, ...]]  # name, kind, labels


def name_of(called: ast.expr) -> str:
    return called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""


def metrics_made(source: str) -> Iterator[Row]:
    for call in ast.walk(ast.parse(source)):
        if not isinstance(call, ast.Call) or name_of(call.func) not in KINDS:
            continue
        match call.args:
            case [ast.Constant(value=str(name)), _, *rest] if name.startswith("penstock_"):
                lists = [each for each in (*rest, *(k.value for k in call.keywords)) if isinstance(each, ast.List)]
                labels = tuple(ast.literal_eval(label) for each in lists for label in each.elts)
                kind = KINDS[name_of(call.func)]
                yield (f"{name}_total" if kind == "counter" else name), kind, labels


def test_every_metric_has_its_row_with_kind_and_labels_and_no_row_is_of_none() -> None:
    sources = [path for folder in ("libs", "services") for path in (ROOT / folder).glob("**/src/**/*.py")]
    made = {row for path in sources for row in metrics_made(path.read_text())}
    page = (ROOT / "docs" / "METRICS.md").read_text()
    told = {(name, kind, tuple(re.findall("`(.*?)`", labels))) for name, kind, labels in ROW.findall(page)}
    assert len(made) > 90, "the search finds them"
    assert told == made

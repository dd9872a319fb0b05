"""The alerts and dashboards of deploy/, and the metrics that they name."""

import functools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from tests.testkit.docs import metrics

ROOT = Path(__file__).parents[2]
ALERTS = ROOT / "deploy" / "prometheus" / "alerts.yaml"
DASHBOARDS = ROOT / "deploy" / "grafana" / "dashboards"

# Scrapers add these labels: the console to its page, deploy/prometheus/prometheus.yaml to each target.
ADDED_LABELS = {"service", "zone", "instance", "job"}

_NAME = re.compile(r"\b(penstock_\w+)(?:\{([^}]*)\})?")
_MATCHER = re.compile(r'(\w+)\s*[=!]~?\s*"')


class Alert(NamedTuple):
    """One alert as Prometheus reads it."""

    name: str
    group: str
    expression: str
    severity: str
    annotations: dict[str, str]

    def labels(self) -> set[str]:
        """The labels that its annotations show."""
        return set(re.findall(r"\$labels\.(\w+)", " ".join(self.annotations.values())))


class Panel(NamedTuple):
    """One panel of a dashboard."""

    dashboard: str
    title: str
    facts: dict[str, Any]

    @property
    def queries(self) -> list[str]:
        """The queries of the panel, with Grafana's variables in them."""
        return [target["expr"] for target in self.facts.get("targets", [])]


class Selector(NamedTuple):
    """A metric in a query, with the labels that it is selected by."""

    metric: str
    labels: frozenset[str]


def alerts() -> list[Alert]:
    """All alerts, in the order of their file."""
    groups = yaml.safe_load(ALERTS.read_text())["groups"]
    return [
        Alert(rule["alert"], group["name"], rule["expr"], rule["labels"]["severity"], rule["annotations"])
        for group in groups
        for rule in group["rules"]
    ]


def dashboards() -> dict[str, dict[str, Any]]:
    """All dashboards, by the names of their files."""
    return {path.stem: json.loads(path.read_text()) for path in sorted(DASHBOARDS.glob("*.json"))}


def panels() -> Iterator[Panel]:
    """The panels of all dashboards, without rows."""
    for name, dashboard in dashboards().items():
        for panel in dashboard["panels"]:
            if panel["type"] != "row":
                yield Panel(name, panel["title"], panel)


def selectors(query: str) -> set[Selector]:
    """The metrics of Penstock in a query."""
    found = _NAME.findall(query)
    return {Selector(name, frozenset(_MATCHER.findall(matchers))) for name, matchers in found}


@functools.cache
def known_metrics() -> dict[str, set[str]]:
    """The labels of each series that processes serve, by its name; a histogram has three names."""
    known: dict[str, set[str]] = {}
    for folder in metrics.SECTIONS.values():
        for metric in metrics.metrics_below(folder):
            labels = set(metric.labels) | ADDED_LABELS
            names = [metric.name]
            if metric.kind == "histogram":
                names = [f"{metric.name}{suffix}" for suffix in ("_bucket", "_sum", "_count")]
                labels |= {"le"}
            known |= dict.fromkeys(names, labels)
    return known

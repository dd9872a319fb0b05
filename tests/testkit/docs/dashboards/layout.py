"""Grafana's JSON of a dashboard: the data source and the filters are variables, and each panel has a unit."""

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

COLUMNS = 24
PER_LINE = 3  # graphs side by side
GRAPH_HEIGHT, STAT_HEIGHT = 8, 4
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
# `@` in a query stands for these matchers.
CHOSEN = 'zone=~"$zone",instance=~"$instance"'


class Query(NamedTuple):
    """One query of a panel. `legend` names its lines, with labels as `{{label}}`."""

    expression: str
    legend: str


class Panel(NamedTuple):
    """One graph, or with `is_stat` one number per line."""

    title: str
    description: str
    unit: str
    queries: tuple[Query, ...]
    is_stat: bool = False
    is_stacked: bool = False


class Row(NamedTuple):
    """Panels under one heading."""

    title: str
    panels: tuple[Panel, ...]


class Variable(NamedTuple):
    """A filter whose values are those of a label, or with `value` a number that users may change."""

    name: str
    label: str
    metric: str = ""
    value: str = ""


class Dashboard(NamedTuple):
    """One dashboard; `name` is that of its file."""

    name: str
    title: str
    description: str
    rows: tuple[Row, ...]
    variables: tuple[Variable, ...] = ()


INSTANCES = (
    Variable("zone", "zone", "penstock_memory_blocks"),
    Variable("instance", "instance", 'penstock_memory_blocks{zone=~"$zone"}'),
)


def rate(metric: str, by: str = "", matchers: str = "@") -> str:
    """The increase of a counter in a second, summed over all processes by these labels."""
    return f"sum{_by(by)}(rate({metric}{{{matchers}}}[$__rate_interval]))"


def quantile(share: float, metric: str, by: str = "", matchers: str = "@") -> str:
    """The value of a histogram that this share of its observations does not exceed."""
    labels = f"le, {by}" if by else "le"
    return f"histogram_quantile({share}, {rate(f'{metric}_bucket', labels, matchers)})"


def quantiles(metric: str, matchers: str = "@") -> tuple[Query, Query]:
    """The median and the 99th percentile of a histogram."""
    return (
        Query(quantile(0.5, metric, matchers=matchers), "p50"),
        Query(quantile(0.99, metric, matchers=matchers), "p99"),
    )


def _by(labels: str) -> str:
    return f" by ({labels}) " if labels else ""


def text_of(dashboard: Dashboard) -> str:
    """The file of a dashboard."""
    facts = {
        "uid": f"penstock-{dashboard.name}",
        "title": dashboard.title,
        "description": dashboard.description,
        "tags": ["penstock"],
        "schemaVersion": 39,
        "editable": True,
        "graphTooltip": 1,  # the same time in all graphs
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "links": [
            {"type": "dashboards", "title": "Penstock", "tags": ["penstock"], "keepTime": True, "includeVars": True}
        ],
        "templating": {"list": [_source(), *map(_variable, dashboard.variables)]},
        "panels": list(_panels(dashboard.rows)),
    }
    return json.dumps(facts, indent=1) + "\n"


def _source() -> dict[str, Any]:
    return {"name": "datasource", "label": "source", "type": "datasource", "query": "prometheus"}


def _variable(variable: Variable) -> dict[str, Any]:
    if variable.value:
        current = {"text": variable.value, "value": variable.value}
        return {
            "name": variable.name,
            "label": variable.label,
            "type": "textbox",
            "query": variable.value,
            "current": current,
        }
    return {
        "name": variable.name,
        "label": variable.label,
        "type": "query",
        "datasource": SOURCE,
        "query": {"query": f"label_values({variable.metric}, {variable.name})", "refId": variable.name},
        "refresh": 2,  # with the time range
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }


def _panels(rows: tuple[Row, ...]) -> Iterator[dict[str, Any]]:
    number, top = 0, 0
    for row in rows:
        number += 1
        place = {"h": 1, "w": COLUMNS, "x": 0, "y": top}
        yield {"id": number, "type": "row", "title": row.title, "collapsed": False, "gridPos": place, "panels": []}
        top += 1
        is_stats = all(panel.is_stat for panel in row.panels)
        per_line = len(row.panels) if is_stats else PER_LINE
        width, height = COLUMNS // per_line, STAT_HEIGHT if is_stats else GRAPH_HEIGHT
        for index, panel in enumerate(row.panels):
            number += 1
            line, column = divmod(index, per_line)
            place = {"h": height, "w": width, "x": column * width, "y": top + line * height}
            yield {"id": number, **_panel(panel), "gridPos": place}
        top += height * -(-len(row.panels) // per_line)


def _panel(panel: Panel) -> dict[str, Any]:
    return {
        "type": "stat" if panel.is_stat else "timeseries",
        "title": panel.title,
        "description": panel.description,
        "datasource": SOURCE,
        "fieldConfig": {"defaults": _defaults(panel), "overrides": []},
        "options": _options(panel),
        "targets": [
            {
                "refId": chr(ord("A") + index),
                "datasource": SOURCE,
                "expr": query.expression.replace("@", CHOSEN),
                "legendFormat": query.legend,
            }
            for index, query in enumerate(panel.queries)
        ],
    }


def _defaults(panel: Panel) -> dict[str, Any]:
    if panel.is_stat:
        return {"unit": panel.unit, "color": {"mode": "fixed", "fixedColor": "text"}}
    custom: dict[str, Any] = {"fillOpacity": 10, "showPoints": "never"}
    if panel.is_stacked:
        custom |= {"fillOpacity": 40, "stacking": {"mode": "normal"}}
    return {"unit": panel.unit, "min": 0, "custom": custom}


def _options(panel: Panel) -> dict[str, Any]:
    if panel.is_stat:
        return {"reduceOptions": {"calcs": ["lastNotNull"]}, "colorMode": "value", "graphMode": "area"}
    return {
        "legend": {"displayMode": "list", "placement": "bottom"},
        "tooltip": {"mode": "multi", "sort": "desc"},
    }

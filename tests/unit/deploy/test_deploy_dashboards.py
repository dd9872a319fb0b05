"""The dashboards: their files are current, and each panel can be understood and has data to show."""

import itertools
import re

import pytest

from tests.testkit import monitoring
from tests.testkit.docs.dashboards import DASHBOARDS
from tests.testkit.docs.dashboards.layout import COLUMNS, Dashboard, text_of

PROCESS_METRICS = {"process_cpu_seconds_total", "process_resident_memory_bytes", "process_open_fds", "ALERTS"}
SOURCE = "${datasource}"
PANELS = list(monitoring.panels())


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda dashboard: dashboard.name)
def test_the_file_of_a_dashboard_is_current(dashboard: Dashboard) -> None:
    path = monitoring.DASHBOARDS / f"{dashboard.name}.json"
    assert path.read_text() == text_of(dashboard), "run `make docs`"


def test_there_is_no_file_without_a_table() -> None:
    assert set(monitoring.dashboards()) == {dashboard.name for dashboard in DASHBOARDS}


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: f"{panel.dashboard}: {panel.title}")
def test_a_panel_has_a_description_a_unit_queries_with_legends_and_the_chosen_source(panel: monitoring.Panel) -> None:
    assert panel.facts["description"].endswith(".")
    assert panel.facts["fieldConfig"]["defaults"]["unit"]
    assert panel.queries
    assert all(target["legendFormat"] for target in panel.facts["targets"])
    assert {target["datasource"]["uid"] for target in panel.facts["targets"]} == {SOURCE}
    assert panel.facts["datasource"]["uid"] == SOURCE


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: f"{panel.dashboard}: {panel.title}")
def test_the_metrics_and_variables_of_a_panel_exist(panel: monitoring.Panel) -> None:
    known = monitoring.known_metrics()
    variables = {each["name"] for each in monitoring.dashboards()[panel.dashboard]["templating"]["list"]}
    for query in panel.queries:
        found = monitoring.selectors(query)
        assert found or any(name in query for name in PROCESS_METRICS), query
        for metric, labels in found:
            assert labels <= known[metric], metric
        assert set(re.findall(r"\$(\w+)", query)) <= variables | {"__rate_interval"}


@pytest.mark.parametrize("name", monitoring.dashboards())
def test_panels_do_not_overlap_and_have_their_own_numbers(name: str) -> None:
    panels = monitoring.dashboards()[name]["panels"]
    taken = list(
        itertools.chain.from_iterable(
            itertools.product(range(place["x"], place["x"] + place["w"]), range(place["y"], place["y"] + place["h"]))
            for place in (panel["gridPos"] for panel in panels)
        )
    )
    assert len(taken) == len(set(taken))
    assert max(column for column, _ in taken) < COLUMNS
    assert len({panel["id"] for panel in panels}) == len(panels)

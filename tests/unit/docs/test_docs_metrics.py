"""The page of metrics has each metric that the code makes, and no other."""

import re

import prometheus_client
import pytest

from penstock_flusher.metrics import FlusherMetrics
from penstock_gateway.metrics import GatewayMetrics
from penstock_sequencer.metrics import SequencerMetrics
from tests.testkit.docs import metrics
from tests.testkit.docs.__main__ import DOCS
from tests.testkit.docs.blocks import fill

PAGE = (DOCS / "operating" / "metrics.md").read_text()
ROW = re.compile(r"^\| `(penstock_[a-z_]+)` \| (counter|gauge|histogram) \| (.*?)\|", re.MULTILINE)


def test_the_tables_of_the_page_are_current() -> None:
    assert fill(PAGE, metrics.makers()) == PAGE, "run `make docs`"


def test_every_metric_has_its_row_with_kind_and_labels_and_no_row_is_of_none() -> None:
    found = [metric for folder in metrics.SECTIONS.values() for metric in metrics.metrics_below(folder)]
    made = {(metric.name, metric.kind, metric.labels) for metric in found}
    rows = {(name, kind, tuple(re.findall("`(.*?)`", labels))) for name, kind, labels in ROW.findall(PAGE)}
    assert len(made) > 90, "the search finds them"
    assert rows == made


@pytest.mark.parametrize(
    ("folder", "make"),
    [
        ("services/gateway", GatewayMetrics),
        ("services/flusher", FlusherMetrics),
        ("services/sequencer", SequencerMetrics),
    ],
)
def test_the_search_finds_every_metric_that_a_service_registers(
    folder: str, make: type[GatewayMetrics] | type[FlusherMetrics] | type[SequencerMetrics]
) -> None:
    registry = prometheus_client.CollectorRegistry()
    make(registry)
    registered = {f"{family.name}_total" if family.type == "counter" else family.name for family in registry.collect()}
    assert registered <= {metric.name for metric in metrics.metrics_below(folder)}

"""The chart as Helm renders it, once for each example."""

import functools
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conformance.provision import Missing
from tests.testkit.helm import EXAMPLES, Chart, Object, helm_program, schemas_wheel

EXAMPLE_NAMES = sorted(path.stem for path in EXAMPLES.glob("*.yaml"))
NATS_CHART = os.environ.get("PENSTOCK_NATS_CHART", "")  # a folder with the official chart; else an empty one stands in

JOBS = {"administrator", "clusters"}

Render = Callable[[str], list[Object]]


@pytest.fixture(scope="session")
def chart(tmp_path_factory: pytest.TempPathFactory) -> Chart:
    try:
        helm_program()
        schemas_wheel()
    except Missing as missing:
        pytest.skip(f"helm cannot be had: {missing}")
    return Chart(tmp_path_factory.mktemp("chart"), Path(NATS_CHART) if NATS_CHART else None)


@pytest.fixture(scope="session")
def rendered(chart: Chart) -> Render:
    """The objects of an example; tests must not change them."""
    return functools.cache(chart.render)


@pytest.fixture(params=EXAMPLE_NAMES)
def objects(request: pytest.FixtureRequest, rendered: Render) -> list[Object]:
    """The objects of each example."""
    return rendered(request.param)

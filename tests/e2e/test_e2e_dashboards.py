"""The dashboards and alerts at a real Prometheus, which scrapes a `penstock up` under load."""

import re
import shutil
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial

import pytest

from tests.testkit import monitoring
from tests.testkit.clusters.cluster import Cluster, running, wait_until
from tests.testkit.clusters.compactors import share_the_processor
from tests.testkit.loads.steady_load import SteadyLoad, SteadyReader, create_topic
from tests.testkit.servers.prometheus import PrometheusServer, running_prometheus

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

TOPIC = "watched"
PARTITIONS = 4
DATA_S = 120.0

# A query that names one of these metrics may have no data, because nothing of that kind happens here.
EMPTY = {
    "penstock_gateway_batches_refused_total": "no batch is rejected",
    "penstock_gateway_throttled_total": "there are no quotas",
    "penstock_gateway_connections_closed_total": "no client fails",
    "penstock_gateway_logins_total": "clients do not log in",
    "penstock_gateway_certificate_expiry_seconds": "listeners have no TLS",
    "penstock_flusher_put_hedges_total": "the store is a folder, whose puts are not hedged",
    "penstock_janitor_deleted_objects_total": "dead segments stay for ten minutes",
}

# The compactor lacks Java here, so it is degraded. Latencies depend on the load of the machine.
FIRES = {"PenstockDegraded"}
MAY_FIRE = FIRES | {alert.name for alert in monitoring.alerts() if "histogram_quantile" in alert.expression}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster with all services, whose reads go through cachers, and that merges early."""
    data = tmp_path_factory.mktemp("dashboards") / "data"
    services = ("--separate", "--compactors", "1", "--janitors", "1")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("JAVA_HOME", str(data.parent))  # a folder without Java
        environment.setenv("PENSTOCK_MERGE_FLUSHED_AGE_MS", "1000")
        share_the_processor(environment, data.parent)
        environment.setenv("PENSTOCK_REAP_INTERVAL_MS", "1000")
        store = f"file://{data}/objects?local_reads=off"
        with running(data, *services, "--store", store) as cluster:
            create_topic(cluster.kafka, TOPIC, PARTITIONS)
            with (
                SteadyLoad(cluster.kafka, TOPIC, PARTITIONS, record_pause_s=0.005),
                SteadyReader(cluster.kafka, TOPIC, "watchers"),
            ):
                assert get(f"http://{cluster.http}/")  # the first page starts the console
                yield cluster


@pytest.fixture(scope="module")
def prometheus(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrometheusServer]:
    with running_prometheus(tmp_path_factory.mktemp("prometheus"), cluster.http) as server:
        yield server


def get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=DATA_S) as answer:
        page: bytes = answer.read()
        return page


def replaced(query: str, dashboard: str) -> str:
    """The query as Grafana sends it with the first values of all variables."""
    values = {"__rate_interval": "30s"}
    for variable in monitoring.dashboards()[dashboard]["templating"]["list"]:
        values[variable["name"]] = variable.get("allValue") or variable["query"]
    return re.sub(r"\$(\w+)", lambda found: str(values[found[1]]), query)


def may_be_empty(query: str) -> bool:
    return any(selector.metric in EMPTY for selector in monitoring.selectors(query))


def has_data(prometheus: PrometheusServer, query: str) -> bool:
    """Whether a series has a number; a quotient of nothing is none."""
    return any(series["value"][1] != "NaN" for series in prometheus.query(query))


@pytest.mark.parametrize("dashboard", monitoring.dashboards())
def test_every_query_of_a_dashboard_returns_data(prometheus: PrometheusServer, dashboard: str) -> None:
    queries = {
        replaced(query, dashboard): panel.title
        for panel in monitoring.panels()
        if panel.dashboard == dashboard
        for query in panel.queries
    }
    for query, title in queries.items():
        if may_be_empty(query):
            prometheus.query(query)  # it is correct
        else:
            wait_until(partial(has_data, prometheus, query), DATA_S, f"data of {title}: {query}", 0.2)


def test_no_alert_fires_or_is_about_to_in_a_healthy_cluster(prometheus: PrometheusServer) -> None:
    def found() -> set[str]:
        return {series["metric"]["alertname"] for series in prometheus.query("ALERTS")}

    wait_until(lambda: prometheus.query("penstock_janitor_extents"), DATA_S, "the metrics of all services")
    wait_until(lambda: FIRES <= found() <= MAY_FIRE, DATA_S, "all other alerts to end", 0.2)


@contextmanager
def lost_store(cluster: Cluster) -> Iterator[None]:
    """The folder of the objects is gone for a while, as a disk that is not mounted."""
    objects, away = cluster.data / "objects", cluster.data / "away"
    objects.rename(away)

    def is_replaced() -> bool:
        """Put a file in its place. A put that was under way makes the folder again, without objects."""
        shutil.rmtree(objects, ignore_errors=True)
        with suppress(IsADirectoryError):
            objects.write_text("no folder")
        return objects.is_file()

    wait_until(is_replaced, DATA_S, "the folder to be away")
    try:
        yield
    finally:
        objects.unlink()
        away.rename(objects)


@contextmanager
def paused(cluster: Cluster, name: str) -> Iterator[None]:
    cluster.pause(name)
    try:
        yield
    finally:
        cluster.resume(name)


@pytest.mark.parametrize(
    ("breaking", "alert", "label"),
    [
        (partial(paused, name="janitor-1"), "PenstockHelperDown", {"kind": "janitor"}),
        (partial(paused, name="sequencer-1"), "PenstockServiceDown", {"kind": "sequencer"}),
        (lost_store, "PenstockStoreFails", {"verb": "put"}),
    ],
    ids=["helper", "service", "store"],
)
def test_an_alert_fires_when_what_it_watches_breaks(
    cluster: Cluster,
    prometheus: PrometheusServer,
    breaking: Callable[[Cluster], AbstractContextManager[None]],
    alert: str,
    label: dict[str, str],
) -> None:
    def fires() -> bool:
        found = [series["metric"] for series in prometheus.query(f'ALERTS{{alertname="{alert}",alertstate="firing"}}')]
        return any(label.items() <= each.items() for each in found)

    # A process that another test paused may be away from the metrics for some seconds more.
    wait_until(lambda: not fires(), DATA_S, f"{alert} not to fire", 0.2)
    with breaking(cluster):
        wait_until(fires, DATA_S, f"{alert} to fire", 0.2)

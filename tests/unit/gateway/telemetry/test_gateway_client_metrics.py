"""Pushed metrics as Prometheus metrics: names, labels, sums, limits and expiry."""

import math
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from penstock_gateway.metrics import GatewayMetrics
from penstock_gateway.telemetry.client_metrics import ClientMetrics, Summary, add_point, metric_name
from penstock_gateway.telemetry.limits import TelemetryLimits
from penstock_gateway.telemetry.otlp import Kind, Point
from tests.testkit.fakes.clock import ManualClock

ONE, TWO = b"\x01" * 16, b"\x02" * 16
ONE_TEXT = "AQEBAQEBAQEBAQEBAQEBAQ"
INTERVAL_S = 30.0
LENGTH_MAX = 128


class Shown:
    """The metrics of clients in a registry of their own."""

    def __init__(self, **limits: int) -> None:
        self.clock = ManualClock()
        self.registry = CollectorRegistry()
        self._metrics = ClientMetrics(GatewayMetrics(self.registry), self.clock.monotonic_s, TelemetryLimits(**limits))

    def push(self, instance_id: bytes = ONE, client_id: str = "app", **numbers: tuple[Kind, float]) -> None:
        summaries = {name: Summary(kind, value) for name, (kind, value) in numbers.items()}
        self._metrics.record(instance_id, client_id, INTERVAL_S, summaries)

    def value(self, name: str, client_id: str = "app", instance: str = ONE_TEXT) -> Any:
        labels = {"client_id": client_id, "client_instance_id": instance}
        return self.registry.get_sample_value(f"penstock_client_{name}", labels)

    def series(self) -> int:
        families = text_string_to_metric_families(generate_latest(self.registry).decode())
        return sum(len(each.samples) for each in families if each.name.startswith("penstock_client_"))

    def dropped(self, limit: str) -> float:
        found = self.registry.get_sample_value("penstock_gateway_client_metrics_dropped_total", {"limit": limit})
        return found or 0.0


@pytest.mark.parametrize(
    ("name", "here"),
    [
        ("org.apache.kafka.producer.connection.creation.total", "producer_connection_creation"),
        ("org.apache.kafka.consumer.fetch.manager.records.lag.max", "consumer_fetch_manager_records_lag_max"),
        ("Weird--näme.", "weird_n_me"),
        ("x" * 500, "x" * 128),
        ("...", ""),
    ],
)
def test_names_become_names_of_prometheus(name: str, here: str) -> None:
    assert metric_name(name, LENGTH_MAX) == here


def test_sums_are_added_up_over_topics_and_of_gauges_the_largest_counts() -> None:
    summaries: dict[str, Summary] = {}
    numbers = [("lag", Kind.GAUGE, 3.0), ("lag", Kind.GAUGE, 9.0), ("lag", Kind.GAUGE, 5.0)]
    for name, kind, value in [*numbers, ("sent", Kind.DELTA, 2.0), ("sent", Kind.DELTA, 3.0)]:
        add_point(summaries, Point(name, kind, value), LENGTH_MAX)
    assert summaries == {"lag": Summary(Kind.GAUGE, 9.0), "sent": Summary(Kind.DELTA, 5.0)}


def test_numbers_that_are_none_and_names_without_letters_are_left_out() -> None:
    summaries: dict[str, Summary] = {}
    add_point(summaries, Point("average", Kind.GAUGE, math.nan), LENGTH_MAX)
    add_point(summaries, Point("...", Kind.GAUGE, 1.0), LENGTH_MAX)
    assert summaries == {}


def test_a_gauge_has_the_last_value_and_a_sum_grows() -> None:
    shown = Shown()
    shown.push(lag=(Kind.GAUGE, 7.0), sent=(Kind.DELTA, 2.0), bytes=(Kind.TOTAL, 100.0))
    shown.push(lag=(Kind.GAUGE, 4.0), sent=(Kind.DELTA, 3.0), bytes=(Kind.TOTAL, 250.0))
    assert (shown.value("lag"), shown.value("sent_total"), shown.value("bytes_total")) == (4.0, 5.0, 250.0)


def test_a_client_that_is_silent_for_three_intervals_is_removed() -> None:
    shown = Shown()
    shown.push(lag=(Kind.GAUGE, 7.0))
    shown.clock.now_s += 3 * INTERVAL_S - 1
    assert shown.value("lag") == 7.0
    shown.clock.now_s += 1
    assert shown.value("lag") is None
    assert shown.series() == 0


def test_after_short_intervals_a_client_is_removed_after_a_minute() -> None:
    shown = Shown(kept_s_min=100)
    shown.push(lag=(Kind.GAUGE, 7.0))
    shown.clock.now_s += 99
    assert shown.value("lag") == 7.0
    shown.clock.now_s += 1
    assert shown.value("lag") is None


def test_the_labels_are_the_client_id_and_the_id_of_the_instance() -> None:
    shown = Shown(client_id_length_max=8)
    shown.push(client_id='a"\n{}\\' + "x" * 100, lag=(Kind.GAUGE, 7.0))
    assert shown.value("lag", client_id='a"\n{}\\xx') == 7.0
    assert shown.series() == 1


def test_beyond_the_limit_of_clients_new_ones_are_dropped_and_known_ones_stay() -> None:
    shown = Shown(clients_max=1)
    shown.push(lag=(Kind.GAUGE, 7.0))
    shown.push(TWO, lag=(Kind.GAUGE, 8.0))
    shown.push(lag=(Kind.GAUGE, 9.0))
    assert (shown.series(), shown.value("lag"), shown.dropped("clients")) == (1, 9.0, 1)


def test_beyond_the_limit_of_names_or_series_more_are_dropped() -> None:
    names = Shown(metrics_max=2)
    names.push(a=(Kind.GAUGE, 1.0), b=(Kind.GAUGE, 1.0), c=(Kind.GAUGE, 1.0))
    assert (names.series(), names.dropped("metrics")) == (2, 1)
    series = Shown(series_max=3)
    series.push(a=(Kind.GAUGE, 1.0), b=(Kind.GAUGE, 1.0))
    series.push(TWO, a=(Kind.GAUGE, 1.0), b=(Kind.GAUGE, 1.0))
    assert (series.series(), series.dropped("series")) == (3, 1)


def test_after_silent_clients_their_names_and_series_are_free_again() -> None:
    shown = Shown(metrics_max=1, series_max=1, clients_max=1)
    shown.push(a=(Kind.GAUGE, 1.0))
    shown.clock.now_s += 3 * INTERVAL_S
    shown.push(TWO, b=(Kind.DELTA, 1.0))
    assert (shown.value("b_total", instance="AgICAgICAgICAgICAgICAg"), shown.series()) == (1.0, 1)


def test_a_name_has_one_kind_so_that_scrapes_stay_valid() -> None:
    shown = Shown()
    shown.push(sent=(Kind.DELTA, 1.0))
    shown.push(TWO, sent=(Kind.GAUGE, 5.0))
    shown.push(sent=(Kind.GAUGE, 6.0))
    assert (shown.value("sent_total"), shown.series(), shown.dropped("kind")) == (1.0, 1, 2)

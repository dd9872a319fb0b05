"""Traces of a running cluster: one for a Produce request with its segment and its commit, and one for a Fetch."""

from pathlib import Path

import pytest

from tests.testkit.clusters.cluster import Cluster, running, wait_until
from tests.testkit.loads.ledger import idempotent_producer, read_everything
from tests.testkit.loads.steady_load import create_topic
from tests.testkit.servers.trace_collector import CollectedSpan, TraceCollector, running_trace_collector

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

TOPIC = "traced"
PRODUCERS = 3
SENT_S = 60.0
SLACK_NS = 5_000_000  # processes read the wall clock in milliseconds
PRODUCE_STAGES = {
    "segment": "produce",
    "segment fill": "segment",
    "segment put": "segment",
    "segment commit": "segment",
    "journal commit": "segment commit",
    "journal append": "journal commit",
}
SERVICE_OF = {"produce": "gateway", "segment": "flusher", "journal commit": "sequencer", "chunk load": "cacher"}
FETCH_STAGES = {
    "fetch plan": "fetch",
    "fetch read": "fetch",
    "cache read": "fetch read",
    "chunk load": "cache read",
}


def produce_until_two_share_a_segment(cluster: Cluster, collector: TraceCollector) -> int:
    """Send records of several connections at the same time, again and again; return the number of records."""
    producers = [idempotent_producer(cluster.kafka) for _ in range(PRODUCERS)]
    sent = 0

    def is_shared() -> bool:
        nonlocal sent
        for producer in producers:
            producer.produce(TOPIC, b"a record")
            sent += 1
        assert [producer.flush(SENT_S) for producer in producers] == [0] * PRODUCERS
        return any(len(segment.links) >= 2 for segment in collector.named("segment"))

    wait_until(is_shared, SENT_S, "two requests in one segment")
    return sent


def check_stages(collector: TraceCollector, root: CollectedSpan, stages: dict[str, str]) -> None:
    """Every stage is under the right one, in the right process, and within its time."""
    spans = collector.trace_of(root)
    for name, parent in stages.items():
        assert spans[name].parent == spans[parent].span, f"{name} is not under {parent}"
        assert spans[name].end_ns <= spans[parent].end_ns + SLACK_NS, f"{name} ends after {parent}"
    for name, service in SERVICE_OF.items():
        assert name not in spans or spans[name].service == f"penstock-{service}"


def test_a_record_can_be_followed_from_its_request_to_the_journal_and_to_its_readers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "data"
    with running_trace_collector() as collector:
        monkeypatch.setenv("PENSTOCK_TRACES_RATIO", "1")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "100")
        store = f"file://{data / 'objects'}?local_reads=off"
        with running(data, "--separate", "--flush-ms", "300", "--store", store) as cluster:
            create_topic(cluster.kafka, TOPIC, 1)
            sent = produce_until_two_share_a_segment(cluster, collector)
            assert sum(map(len, read_everything(cluster.kafka, TOPIC).values())) == sent
            assert cluster.stop() == 0  # processes send their last spans
        roots = {span.span: span for span in collector.named("produce")}
        assert {span.parent for span in roots.values()} == {b""}
        segments = collector.named("segment")
        linked = [link for segment in segments for link in segment.links]
        assert set(linked) <= set(roots)
        assert len(set(linked)) == len(linked) >= sent, "each request is in one segment"
        for segment in segments:
            assert segment.links[0] == segment.parent
            check_stages(collector, roots[segment.parent], PRODUCE_STAGES)
        loads = collector.named("chunk load")
        fetches = {span.trace: span for span in collector.named("fetch")}
        assert loads
        check_stages(collector, fetches[loads[0].trace], FETCH_STAGES)
        assert loads[0].facts["penstock.segment"] in {span.facts["penstock.segment"] for span in segments}

"""`penstock up` with its compactor, end to end."""

from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.testkit.clusters.cluster import running, wait_until
from tests.testkit.clusters.compactors import EAGER, POLL_S, SPARK_CONF, START_S, is_running, share_the_processor

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1200)]


def test_it_serves_clients_before_its_compactor_starts_and_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for flag, value in {**EAGER, "spark-conf": SPARK_CONF, "spark-master": "local[1]"}.items():
        monkeypatch.setenv(f"PENSTOCK_{flag.replace('-', '_').upper()}", value)
    share_the_processor(monkeypatch, tmp_path)
    with running(tmp_path / "data", "--compactors", "1", "--flush-ms", "5") as cluster:
        wait_until(lambda: "compactor-1" in cluster.processes(), START_S, "the compactor to be started", POLL_S)
        producer = Producer({"bootstrap.servers": cluster.kafka})
        for number in range(40):
            producer.produce("small", str(number))
            assert producer.flush(START_S) == 0  # each a segment of its own
        wait_until(
            lambda: cluster.metric("penstock_compactor_jobs_total", kind="flushed", result="done"),
            START_S,
            "segments to be merged",
            POLL_S,
        )
        pids = [each["pid"] for each in cluster.processes().values()]
        cluster.kill("compactor-1")
        wait_until(lambda: cluster.processes()["compactor-1"]["restarts"] == 1, START_S, "it to be restarted", POLL_S)
        pids += [each["pid"] for each in cluster.processes().values() if each["pid"]]
        wait_until(cluster.is_ready, START_S, "the console to report ready", POLL_S)
        assert cluster.stop() == 0
        assert not any(map(is_running, pids))

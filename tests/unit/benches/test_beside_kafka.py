"""The comparison with Apache Kafka: ratios, goals, kept results, and the frames of its raw clients."""

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benches.kafka.comparison import rows_of, save, table
from benches.kafka.lines import EXPRESS, PENSTOCK, SLOW, all_lines
from benches.kafka.loads.load import Load
from benches.kafka.loads.raw_fetch import end_offsets
from benches.kafka.loads.raw_produce import batch_of, error_position
from benches.kafka.measuring import LineRuns
from benches.kafka.usage import memory_mb, tree
from penstock.kafkawire.api import encode_response
from penstock.kafkawire.api.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from penstock.kafkawire.records import check_batch
from tests.testkit.docs import beside_kafka


def runs_of(name: str, figure: str, own: list[float], kafka: list[float]) -> LineRuns:
    line = all_lines()[name]
    sides = zip(line.pair, (own, kafka), strict=True)
    return LineRuns(line, {system: [{figure: value} for value in values] for system, values in sides})


@pytest.mark.parametrize(("own", "outcome"), [(60.0, "met"), (59.0, "missed")])
def test_the_median_ratio_decides_whether_a_goal_is_met(own: float, outcome: str) -> None:
    row = next(rows_of(runs_of("raw-produce-16k", "MiB/s", [0, own, 900], [1, 100, 100])))
    assert row.outcome == outcome


def test_a_ratio_of_costs_is_met_below_its_bound() -> None:
    rows = list(rows_of(runs_of("latency-20", "p50 ms", [14.9], [10])))
    assert (rows[0].ratio, rows[0].outcome) == (pytest.approx(1.49), "met")


def test_a_goal_without_a_ratio_needs_no_kafka() -> None:
    row = next(rows_of(runs_of("s3-java-stock", "MiB/s", [25.0], [])))
    assert (row.ratio, row.outcome) == (None, "met")


def test_a_line_that_was_not_measured_has_no_outcome() -> None:
    row = next(rows_of(runs_of("raw-produce-1m", "MiB/s", [], [10.0])))
    assert row.outcome == ""
    assert " - " in table([row])


def test_kept_results_of_other_lines_stay(tmp_path: Path) -> None:
    """A second run replaces its own lines, and the order is that of the table."""
    path = tmp_path / "kafka.json"
    for name, own in (("raw-produce-16k", 1.0), ("java-tuned-plain", 2.0), ("raw-produce-16k", 3.0)):
        save(list(rows_of(runs_of(name, "MiB/s", [own], [1.0]))), path)
    kept = [(row["line"], row["penstock"]) for row in json.loads(path.read_text())["results"] if row["penstock"]]
    assert kept == [("java-tuned-plain", [2.0]), ("raw-produce-16k", [3.0])]


def test_the_page_shows_kept_results(tmp_path: Path) -> None:
    path = tmp_path / "kafka.json"
    save(list(rows_of(runs_of("raw-produce-16k", "MiB/s", [30.0], [60.0]))), path)
    makers = beside_kafka.makers(json.loads(path.read_text()))
    assert "| MiB/s | 30 | 60 | 0.50 | at least 0.6x | missed |" in "\n".join(makers["kafka_table"]())
    assert "    bar [0.50]" in makers["kafka_more_plot"]()


def test_lines_of_a_group_follow_each_other() -> None:
    """Otherwise the systems of a group would start twice."""
    groups = [(line.group, line.pair) for line in all_lines().values()]
    changes = 1 + sum(one != other for one, other in itertools.pairwise(groups))
    assert changes == len(set(groups))
    assert {line.pair[0] for line in all_lines().values()} == {PENSTOCK, SLOW, EXPRESS}


@pytest.mark.parametrize("error", [0, 87])
def test_the_error_of_a_produce_answer_is_found(error: int) -> None:
    partition = PartitionProduceResponse(index=3, error_code=error, base_offset=2**40)
    answer = ProduceResponse(responses=[TopicProduceResponse(name="bench-12", partition_responses=[partition])])
    frame = b"\0\0\0\1\0" + b"".join(bytes(each) for each in encode_response(0, 9, answer))
    assert int.from_bytes(frame[error_position("bench-12") :][:2]) == error


@pytest.mark.parametrize("batch_bytes", [2**14, 2**20])
def test_raw_batches_are_valid_and_within_their_size(batch_bytes: int) -> None:
    batch, records = batch_of(Load(client="raw", kind="produce", batch_bytes=batch_bytes))
    assert check_batch(batch, batch_bytes_max=batch_bytes, zstd_allowed=True).record_count == records
    assert len(batch) > 0.9 * batch_bytes


def test_a_batch_that_the_server_has_cut_is_read_again() -> None:
    batch, records = batch_of(Load(client="raw", kind="produce", batch_bytes=2**14))
    assert list(end_offsets(batch + batch[:-1])) == [records]


def test_the_descendants_of_a_process_belong_to_the_system() -> None:
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'print(1, flush=True); input()'])"
    with subprocess.Popen([sys.executable, "-c", code], stdin=-1, stdout=-1) as parent:
        assert parent.stdout is not None
        assert parent.stdin is not None
        parent.stdout.readline()  # the child runs
        found = list(tree(parent.pid))
        assert (len(found), found[0]) == (2, parent.pid)
        assert os.getpid() not in found
        assert memory_mb(parent.pid) > memory_mb(found[1]) > 0
        parent.stdin.close()

"""Hostile clients take no process down, and an ordinary client beside them gets all its answers, and right ones.

`make fuzz MINUTES=n SEED=n` runs the same for longer, and also fails if an answer is late.
"""

import random
from pathlib import Path

import pytest

from tests.testkit.clusters.cluster import running
from tests.testkit.fuzz.run import run_fuzzer, table

pytestmark = pytest.mark.e2e

SECONDS = 60.0


def test_hostile_clients_stop_no_process_and_no_other_client(tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    with running(tmp_path / "data", "--flush-ms", "20", "--separate") as cluster:
        report = run_fuzzer(cluster, SECONDS, seed)
    print(table(report))
    assert report.findings == []
    assert report.canary.rounds > 0

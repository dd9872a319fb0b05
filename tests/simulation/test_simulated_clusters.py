"""A deployment creates, deletes, undeletes and removes clusters under faults: none loses a record, or has another's."""

import os
from collections import Counter

import pytest

from tests.testkit.sim.run import run_clusters

SEEDS = int(os.environ.get("PENSTOCK_SIM_SEEDS", "200")) // 60  # each takes three seconds

pytestmark = pytest.mark.simulation


def test_clusters_keep_their_records_come_back_in_time_and_leave_nothing_behind() -> None:
    happened: Counter[str] = Counter()
    for seed in range(SEEDS):
        outcome = run_clusters(seed)
        assert not outcome.failures, outcome.report()
        happened.update(outcome.happened)
    assert all(happened.values()), happened

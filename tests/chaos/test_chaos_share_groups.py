"""Chaos under a share group: for minutes, processes and members of the group are killed or paused at random.

`make chaos MINUTES=10 SEED=n SHAPE=agents`, as for the other chaos tests; writer and members are stock clients.
"""

import os
import random
from pathlib import Path

import pytest

from tests.chaos.nemesis import SHAPES_RUN, Nemesis, flags, plan
from tests.chaos.share_load import share_load, wait_for_share_groups
from tests.testkit.clusters.cluster import running, wait_until

MINUTES = float(os.environ.get("PENSTOCK_CHAOS_MINUTES") or "10")
SEED = int(os.environ.get("PENSTOCK_CHAOS_SEED") or random.SystemRandom().randrange(2**32))
SETTLE_TIMEOUT_S = 180.0
# So that also a run of one minute has snapshots, purges of the journal, and sequencers that start from snapshots.
ENVIRONMENT = {"PENSTOCK_SNAPSHOT_ENTRIES": "200", "PENSTOCK_SHARE_GROUPS": "true"}
RECORDS_MIN = 200  # after the last fault

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(MINUTES * 60 + 1200)]


@pytest.mark.parametrize("shape", SHAPES_RUN)
def test_each_record_is_processed_once_and_none_is_lost_while_all_processes_are_killed_and_paused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shape: str
) -> None:
    print(f"\nseed {SEED}, {MINUTES:g} minutes, {shape}", flush=True)
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    with running(tmp_path / "data", "--flush-ms", "50", *flags(shape)) as cluster:
        wait_for_share_groups(cluster)
        with share_load(cluster.kafka, SEED) as load:
            nemesis = Nemesis(cluster)
            try:
                nemesis.carry_out(plan(SEED, MINUTES * 60, shape))
            finally:
                nemesis.end()
            wait_until(cluster.is_ready, SETTLE_TIMEOUT_S, "everything to be ready again")
            load.wait_for_more(RECORDS_MIN)
            load.settle()
            print(f"{load.counts}, killed {dict(nemesis.killed)}, paused {dict(nemesis.paused)}", flush=True)

"""Chaos under load: for minutes, processes of every kind are killed and paused at random, and all promises hold.

`make chaos MINUTES=10 SEED=n SHAPE=agents`; without SHAPE, each shape has its run. The seed is printed first. It
repeats the order of the faults, but not the timing of the processes. Idempotent, plain and transactional clients run
side by side.
"""

import json
import os
import random
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.chaos.nemesis import SHAPES, SHAPES_RUN, Nemesis, flags, plan
from tests.testkit.clusters.cluster import Cluster, running, wait_until
from tests.testkit.loads.plain_load import plain_account
from tests.testkit.loads.steady_load import steady_account
from tests.testkit.loads.transaction_load import transaction_load, wait_for_transactions

MINUTES = float(os.environ.get("PENSTOCK_CHAOS_MINUTES") or "10")
SEED = int(os.environ.get("PENSTOCK_CHAOS_SEED") or random.SystemRandom().randrange(2**32))
SETTLE_TIMEOUT_S = 180.0
# So that also a run of one minute has snapshots, purges of the journal, and sequencers that start from snapshots.
ENVIRONMENT = {"PENSTOCK_SNAPSHOT_ENTRIES": "200"}
# The text of a replica that was paused while the others purged entries that it needs. It restarts with a snapshot.
LEFT_BEHIND = "are gone. If this replica was away while they were purged, start it again"
HOUSEKEEPING = ("custody_taken", "snapshot_taken", "journal_trimmed", "snapshot_loaded")
# The loads keep all that they wrote and read. A long run has a slower load, so that its memory stays below 4 GB.
SLOWNESS = max(MINUTES / 10, 1.0)
LOAD = {"record_bytes": 100, "record_pause_s": 0.003 * SLOWNESS}
REST_S_MAX = 0.1 * SLOWNESS  # between two transactions of a client
COMMITS_MIN = 20  # after the last fault

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(MINUTES * 60 + 1200)]


def sequencers(cluster: Cluster, name: str) -> dict[str, float]:
    """One metric of all sequencers, by labels."""
    found = cluster.metrics().items()
    return {sample.partition("{")[2]: value for sample, value in found if sample.partition("{")[0] == name}


def agree(cluster: Cluster, count: int) -> bool:
    """Whether all `count` sequencers have applied the same entries; fails if two at the same sequence differ."""
    applied = sequencers(cluster, "penstock_sequencer_applied_sequence")
    checks = sequencers(cluster, "penstock_sequencer_chain_check")
    places = {
        applied[labels]: {checks[each] for each in checks if applied[each] == applied[labels]} for labels in checks
    }
    assert all(len(found) == 1 for found in places.values()), f"replicas differ: {applied} {checks}"
    return len(checks) == count and len(places) == 1


def check_logs(cluster: Cluster) -> Counter[str]:
    """Assert that no sequencer halted and no process failed unexpectedly; return the sequencers' events, counted."""
    events: Counter[str] = Counter()
    for log in sorted((cluster.data / "logs").glob("*.log")):
        for line in log.read_text(errors="replace").splitlines():
            assert "sequencer halted" not in line or LEFT_BEHIND in line, f"{log.name}: {line}"
            assert "Traceback" not in line, f"{log.name}: {line}"
            if log.name.startswith("sequencer") and line.startswith("{"):
                events[json.loads(line)["event"]] += 1
    assert not events["snapshot_damaged"]
    assert not events["archive_object_skipped"]
    return events


def check_archive(cluster: Cluster) -> None:
    """Assert that the archive has every entry from its first to its last."""
    folder = cluster.data / "objects" / "default" / "journal"
    spans = sorted(tuple(map(int, path.name.split("-"))) for path in folder.iterdir())
    assert spans, "the archive is empty"
    reached = spans[0][0] - 1
    for first, last in spans:
        assert first <= reached + 1, f"entries {reached + 1} to {first - 1} are not in the archive: {spans}"
        reached = max(reached, last)


def all_restarted(cluster: Cluster, kills: Mapping[str, int]) -> bool:
    """Whether each process was restarted as often as it was killed."""
    processes = cluster.processes()
    return all(processes[victim]["restarts"] >= count for victim, count in kills.items())


@pytest.mark.parametrize("shape", SHAPES_RUN)
def test_nothing_is_lost_doubled_reordered_or_torn_while_everything_is_killed_and_paused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shape: str
) -> None:
    print(f"\nseed {SEED}, {MINUTES:g} minutes, {shape}", flush=True)
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    sequencer_count = SHAPES[shape]["sequencer"]
    with running(tmp_path / "data", "--flush-ms", "50", *flags(shape)) as cluster:
        wait_for_transactions(cluster)
        nemesis = Nemesis(cluster)
        run_loads(cluster, nemesis, shape)
        wait_until(lambda: agree(cluster, sequencer_count), SETTLE_TIMEOUT_S, "equal sequencers")
        events = check_logs(cluster)
        check_archive(cluster)
        print({name: events[name] for name in HOUSEKEEPING}, flush=True)
        assert all(events[name] for name in HOUSEKEEPING), f"the run did not cover all of {HOUSEKEEPING}: {events}"
        # The last process may still be starting: the cluster is ready also without a cacher.
        wait_until(
            lambda: all_restarted(cluster, nemesis.killed), SETTLE_TIMEOUT_S, "the restart of all killed processes"
        )
        restarts = {name: process["restarts"] for name, process in cluster.processes().items()}
        print(f"killed {dict(nemesis.killed)}, paused {dict(nemesis.paused)}, restarts {restarts}", flush=True)


def run_loads(cluster: Cluster, nemesis: Nemesis, shape: str) -> None:
    """All loads during all faults, and then the check of each."""
    with (
        steady_account(cluster.kafka, "first", **LOAD) as first,
        steady_account(cluster.kafka, "second", **LOAD) as second,
        plain_account(cluster.kafka, "plain") as plain,
        transaction_load(cluster.kafka, SEED, writers=4, rest_s_max=REST_S_MAX) as transactions,
    ):
        try:
            nemesis.carry_out(plan(SEED, MINUTES * 60, shape))
        finally:
            nemesis.end()
        wait_until(cluster.is_ready, SETTLE_TIMEOUT_S, "everything to be ready again")
        transactions.wait_for_more(COMMITS_MIN)
        print(f"idempotent {[account.settle() for account in (first, second)]}", flush=True)
        print(f"plain {plain.settle()}", flush=True)
        transactions.settle()
        print(f"transactions {transactions.counts}, crashes of their clients {transactions.deaths}", flush=True)

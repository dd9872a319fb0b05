"""Transactions of stock clients while gateways and sequencers are killed: checks all answers and all reads."""

import random
from pathlib import Path

import pytest

from tests.testkit.clusters.cluster import Cluster, running, wait_until
from tests.testkit.loads.transaction_load import transaction_load, wait_for_transactions

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

VICTIMS = ["gateway-1", "sequencer-1"]
COMMITS_MAX = 15  # before the next victim is chosen
COMMITS_AFTER = 10
RESTART_S = 60.0


def all_restarted(cluster: Cluster) -> bool:
    processes = cluster.processes()
    return all(processes[victim]["restarts"] for victim in VICTIMS)


def test_committed_transactions_are_read_once_and_whole_when_services_are_killed(tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    with running(tmp_path / "data", "--flush-ms", "20", "--separate") as cluster:
        wait_for_transactions(cluster)
        with transaction_load(cluster.kafka, seed) as load:
            for victim in chance.sample(VICTIMS, len(VICTIMS)):
                load.wait_for_more(chance.randint(1, COMMITS_MAX))
                cluster.kill(victim)
                load.wait_for_more(COMMITS_AFTER)
            load.settle()
            print(load.counts)
        wait_until(lambda: all_restarted(cluster), RESTART_S, "the last victim to come back")

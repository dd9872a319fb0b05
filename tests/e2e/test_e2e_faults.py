"""Every process is killed at random moments under load, and no acknowledged record is lost, doubled or reordered."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.testkit.clusters.cluster import Cluster, running, wait_until
from tests.testkit.loads.ledger import check_nothing_lost_twice_or_reordered
from tests.testkit.loads.steady_load import SteadyLoad, create_topic

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

TOPIC = "steady"
PARTITIONS = 4
VICTIMS = ["gateway-1", "flusher-1", "sequencer-1", "cacher-1", "nats-server"]
MORE_RECORDS = 300  # acknowledged after a kill before the next victim is chosen
RESTART_S = 60.0


@pytest.fixture
def seed() -> int:
    """The seed, printed first, so that a failing order of kills can be repeated."""
    chosen = random.SystemRandom().randrange(2**32)
    print(f"seed {chosen}")
    return chosen


def shuffled(seed: int, rounds: int) -> Iterator[str]:
    chance = random.Random(seed)
    for _ in range(rounds):
        yield from chance.sample(VICTIMS, len(VICTIMS))


def all_restarted(cluster: Cluster, times: int) -> bool:
    processes = cluster.processes()
    return all(processes[victim]["restarts"] >= times for victim in VICTIMS)


def test_killing_each_process_in_turn_loses_doubles_and_reorders_nothing(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    with running(tmp_path / "data", "--flush-ms", "50", "--separate") as cluster:
        create_topic(cluster.kafka, TOPIC, PARTITIONS)
        with SteadyLoad(cluster.kafka, TOPIC, PARTITIONS) as load:
            for victim in shuffled(seed, rounds=2):
                load.wait_for_more(chance.randrange(1, MORE_RECORDS))
                cluster.kill(victim)
                load.wait_for_more(MORE_RECORDS)
            load.finish()
            assert load.ledger.failures == []
            stored = check_nothing_lost_twice_or_reordered(load.ledger, cluster.kafka, TOPIC)
        assert stored == load.ledger.count
        # The last process may still be starting: clients work also without a cacher.
        wait_until(lambda: all_restarted(cluster, times=2), RESTART_S, "the last victim to come back")


def test_killing_everything_at_once_loses_nothing_acknowledged(tmp_path: Path) -> None:
    with running(tmp_path / "data", "--flush-ms", "50", "--separate") as cluster:
        create_topic(cluster.kafka, TOPIC, PARTITIONS)
        with SteadyLoad(cluster.kafka, TOPIC, PARTITIONS) as load:
            load.wait_for_more(1000)
            for victim in VICTIMS:
                cluster.kill(victim)
            load.wait_for_more(1000)
            load.finish()
            assert check_nothing_lost_twice_or_reordered(load.ledger, cluster.kafka, TOPIC) == load.ledger.count


def test_with_two_of_each_service_one_of_each_may_die(tmp_path: Path) -> None:
    twos = ["--gateways", "2", "--flushers", "2", "--sequencers", "2", "--cachers", "2"]
    with running(tmp_path / "data", "--flush-ms", "50", *twos) as cluster:
        create_topic(cluster.kafka, TOPIC, PARTITIONS)
        with SteadyLoad(cluster.kafka, TOPIC, PARTITIONS) as load:
            for victim in ("gateway-1", "flusher-2", "sequencer-1", "cacher-2", "sequencer-2"):
                load.wait_for_more(MORE_RECORDS)
                cluster.kill(victim)
            load.wait_for_more(MORE_RECORDS)
            load.finish()
            assert load.ledger.failures == []
            assert check_nothing_lost_twice_or_reordered(load.ledger, cluster.kafka, TOPIC) == load.ledger.count

"""`penstock journal move` under load: from one nats-server to three and back; clients see only a pause."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.contracts.levels import LANES_LEVEL
from tests.testkit.clusters.cluster import wait_until
from tests.testkit.clusters.services import Services, running_services
from tests.testkit.loads.ledger import QUIET
from tests.testkit.loads.steady_load import Account, SteadyLoad, SteadyReader, create_topic
from tests.testkit.servers.nats import running_nats_server
from tests.testkit.servers.nats_cluster import running_nats_cluster

pytestmark = [pytest.mark.upgrades, pytest.mark.timeout(600)]

TOPIC = "records"
LANE = "express"
PARTITIONS = 2
END_TIMEOUT_S = 60.0
RECORD_PAUSE_S = 0.005
COUNTS = {"sequencer": 2, "flusher": 1, "cacher": 1, "gateway": 1}


@pytest.fixture
def services(tmp_path: Path) -> Iterator[Services]:
    store_url = f"file://{tmp_path}/objects?landing=jetstream:"
    settings = {"STORE_URL": store_url, "JOURNAL_ASSURANCE": "sync-always", "LOG_LEVEL": "info"}
    with running_services(tmp_path, COUNTS, **settings) as made:
        yield made


def move(services: Services, target: str, *flags: str) -> subprocess.CompletedProcess[str]:
    """Run the command with the settings of the services, as in the container of a sequencer."""
    environ = os.environ | {f"PENSTOCK_{name}": value for name, value in services.settings.items()}
    command = [sys.executable, "-m", "penstock.cli", "journal", "move", "--to", target, *flags]
    return subprocess.run(command, env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)


def move_under_load(services: Services, account: Account, target: str, replicas: int, *flags: str) -> float:
    """Move the journal while the load runs, and start all services at the new servers; the time without them."""
    account.load.wait_for_more(100)
    began_s = time.monotonic()
    done = move(services, target, "--yes", *flags)
    assert done.returncode == 0, done.stderr
    assert f"Set PENSTOCK_NATS_URL={target} for all services, and PENSTOCK_JOURNAL_REPLICAS={replicas}" in done.stdout
    print(done.stdout)
    for sequencer in services.of("sequencer"):
        wait_until(sequencer.has_ended, END_TIMEOUT_S, f"{sequencer.name} to halt")
        assert f"the journal was moved to {target}" in sequencer.log()
    print(f"halted after {time.monotonic() - began_s:.1f} s")
    services.stop()
    print(f"stopped after {time.monotonic() - began_s:.1f} s")
    services.settings |= {"NATS_URL": target, "JOURNAL_REPLICAS": str(replicas)}
    services.start()
    print(f"ready after {time.monotonic() - began_s:.1f} s")
    account.load.wait_for_more(100)
    return time.monotonic() - began_s


def test_the_journal_moves_under_load_from_one_server_to_three_and_back(tmp_path: Path, services: Services) -> None:
    (tmp_path / "one").mkdir()
    with running_nats_server(tmp_path / "one") as one, running_nats_cluster(tmp_path / "three") as three:
        services.settings["NATS_URL"] = one.url
        services.start()
        kafka = services.kafka
        create_topic(kafka, TOPIC, PARTITIONS)
        create_express_topic(services)
        with (
            SteadyReader(kafka, TOPIC, "group") as reader,
            SteadyLoad(kafka, TOPIC, PARTITIONS, record_pause_s=RECORD_PAUSE_S) as load,
            SteadyReader(kafka, LANE, "express-group") as express_reader,
            SteadyLoad(kafka, LANE, PARTITIONS, record_pause_s=RECORD_PAUSE_S) as express_load,
        ):
            account = Account(kafka, TOPIC, load, reader)
            express = Account(kafka, LANE, express_load, express_reader)
            asked = move(services, three.url)  # there is no terminal
            assert asked.returncode == 1
            assert f"Move the journal to {three.url}? Confirm it with --yes" in asked.stderr
            print(f"one to three: {move_under_load(services, account, three.url, 3):.1f} s")
            print(f"three to one: {move_under_load(services, account, one.url, 1, '--remove-old'):.1f} s")
            express.load.wait_for_more(100)
            print(f"{account.settle()} records, {express.settle()} express records; {reader.errors}")
        again = move(services, one.url, "--yes")
        assert again.returncode == 0
        assert "is at" in again.stdout


def create_express_topic(services: Services) -> None:
    sequencer = services.of("sequencer")[0]
    wait_until(lambda: sequencer.metric("penstock_sequencer_level") >= LANES_LEVEL, END_TIMEOUT_S, "the level")
    admin = AdminClient({"bootstrap.servers": services.kafka, **QUIET})
    new = NewTopic(LANE, PARTITIONS, config={"penstock.lane": "express"})
    admin.create_topics([new], operation_timeout=30)[LANE].result(END_TIMEOUT_S)

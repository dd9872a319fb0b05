"""Services of the previous version are replaced one by one under load; the level rises, clients only retry."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.contracts.levels import NEWEST_LEVEL
from tests.testkit import previous
from tests.testkit.clusters.cluster import wait_until
from tests.testkit.clusters.services import Service, Services, running_services
from tests.testkit.loads.ledger import Ledger
from tests.testkit.loads.steady_load import Account, steady_account
from tests.testkit.servers.nats import running_nats_server

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

TOPIC = "records"
PARTITIONS = 2
RECORD_PAUSE_S = 0.005
MORE_RECORDS = 50
LEVEL_TIMEOUT_S = 60.0
SAMPLE_S = 0.02
COUNTS = {"sequencer": 2, "flusher": 1, "gateway": 1}


class Pauses:
    """A thread that measures the longest time without an acknowledged record."""

    def __init__(self, ledger: Ledger) -> None:
        self.longest_s = 0.0
        self._ledger = ledger
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pauses")

    def __enter__(self) -> "Pauses":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def taken(self) -> float:
        """The longest time since the last call."""
        longest_s, self.longest_s = self.longest_s, 0.0
        return longest_s

    def _run(self) -> None:
        count, since_s = -1, time.monotonic()
        while not self._stop.wait(SAMPLE_S):
            now_s, found = time.monotonic(), self._ledger.count
            self.longest_s = max(self.longest_s, now_s - since_s)
            if found != count:
                count, since_s = found, now_s


@pytest.fixture
def old_release(tmp_path: Path) -> Path:
    return previous.take_out(tmp_path / "previous")


@pytest.fixture
def services(tmp_path: Path) -> Iterator[Services]:
    (tmp_path / "nats").mkdir()
    with running_nats_server(tmp_path / "nats") as server:
        settings = {"NATS_URL": server.url, "NATS_MONITOR_URL": server.monitor_url}
        with running_services(tmp_path, COUNTS, STORE_URL=f"file://{tmp_path}/objects", **settings) as made:
            yield made


def level(service: Service) -> float:
    return service.metric("penstock_sequencer_level")


def test_a_rolling_upgrade_loses_nothing_and_the_level_rises_after_the_last_sequencer(
    services: Services, old_release: Path
) -> None:
    old_code, old_level = previous.pythonpath(old_release), previous.level_of(old_release)
    assert old_level < NEWEST_LEVEL
    first, last = services.of("sequencer")
    services.start(pythonpath=old_code)
    wait_until(lambda: level(last) == old_level, LEVEL_TIMEOUT_S, "the level of the previous version")
    with (
        steady_account(services.kafka, TOPIC, PARTITIONS, record_pause_s=RECORD_PAUSE_S) as account,
        Pauses(account.load.ledger) as pauses,
    ):
        account.load.wait_for_more(MORE_RECORDS)
        began_s = time.monotonic()

        def step(service: Service, name: str, pythonpath: str = "") -> None:
            pauses.taken()
            services.replace(service, pythonpath)
            account.load.wait_for_more(MORE_RECORDS)
            print(
                f"{time.monotonic() - began_s:5.1f} s {service.name} {name}: {account.load.ledger.count} acknowledged, "
                f"{account.reader.count} read, longest pause {pauses.taken():.1f} s, "
                f"{len(account.load.ledger.failures)} failed, {len(account.reader.errors)} errors of the reader"
            )

        step(first, "new")
        step(first, "back to the previous version", old_code)  # as long as the level has not risen
        step(first, "new")
        assert level(last) == old_level
        step(last, "new")
        wait_until(lambda: level(first) == level(last) == NEWEST_LEVEL, LEVEL_TIMEOUT_S, "the new level")
        print(f"{time.monotonic() - began_s:5.1f} s level {NEWEST_LEVEL}")
        for service in (*services.of("flusher"), *services.of("gateway")):
            step(service, "new")
        print(f"{settled(account)} records in all")


def settled(account: Account) -> int:
    """Every acknowledged record is there once and in order, and the group has read all."""
    count = account.settle()
    assert account.reader.errors == []
    return count

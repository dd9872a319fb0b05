"""Cachers die, hang and join while clients read: readers see no error and no wrong byte."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.testkit.clusters.cluster import Cluster, running, wait_until
from tests.testkit.loads.steady_load import Account, steady_account

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

TOPIC = "steady"
MORE_RECORDS = 300
RECORD_BYTES = 2_000  # so that segments have something to cache
HERE_S = 60.0


def store_of(data: Path) -> str:
    """A folder that is read through cachers, as a folder on a slow network should be."""
    return f"file://{data / 'objects'}?local_reads=off"


@contextlib.contextmanager
def another_cacher(cluster: Cluster, instance: str) -> Iterator[None]:
    """Run one more cacher than `penstock up` started, in the same zone."""
    settings = {
        "PENSTOCK_NATS_URL": cluster.nats_url,
        "PENSTOCK_STORE_URL": store_of(cluster.data),
        "PENSTOCK_ZONE": "local",
        "PENSTOCK_INSTANCE": instance,
    }
    with (cluster.data / "logs" / f"{instance}.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "penstock_cacher"], env=os.environ | settings, stdout=log, stderr=log
        )
        try:
            yield
        finally:
            process.terminate()
            process.wait()


def served_bytes(cluster: Cluster, **labels: str) -> float:
    return cluster.metric("penstock_cacher_served_bytes_total", **labels)


def read_more(account: Account) -> None:
    """Return when also records acknowledged from now on are read."""
    account.load.wait_for_more(MORE_RECORDS)
    account.reader.wait_for(account.load.ledger)


def test_readers_go_on_while_cachers_die_hang_join_and_leave(tmp_path: Path) -> None:
    with (
        running(
            tmp_path / "data", "--flush-ms", "50", "--cachers", "2", "--store", store_of(tmp_path / "data")
        ) as cluster,
        steady_account(cluster.kafka, TOPIC, record_bytes=RECORD_BYTES) as account,
    ):
        read_more(account)
        cluster.kill("cacher-1")
        read_more(account)
        cluster.pause("cacher-2")
        read_more(account)
        cluster.resume("cacher-2")
        with another_cacher(cluster, "newcomer"):
            wait_until(lambda: served_bytes(cluster, instance="newcomer"), HERE_S, "the new cacher to serve bytes")
            read_more(account)
        read_more(account)
        wait_until(lambda: served_bytes(cluster), HERE_S, "the other cachers to report their served bytes")
        account.settle()
        assert account.reader.errors == []
        assert cluster.metric("penstock_gateway_cacher_failures_total", cause="corrupt") == 0

"""A sequencer whose shared tables have few places, and a cluster with it: one user can fill its share in seconds."""

import contextlib
import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from penstock.runtime.process.config import read_config
from penstock.runtime.process.life import run_app
from penstock_sequencer.app import SequencerApp
from penstock_sequencer.config import SequencerConfig
from penstock_sequencer.core.state.limits import GroupLimits, Limits, ProducerLimits, TransactionLimits
from penstock_sequencer.custodian.fork_capture import capture_inline
from penstock_sequencer.limits import SequencerLimits
from tests.testkit.clusters.cluster import READY_TIMEOUT_S, Cluster, logs_after_failure, wait_until
from tests.testkit.servers.nats import NatsServer, running_nats_server
from tests.testkit.servers.ports import free_port

PLACES = 8  # of each table; one principal ends at seven
GROUPS_MAX = 2 * PLACES  # the tests of members make some, too
MEMBER_BYTES_MAX = 1_000  # a heartbeat that joins needs so many free bytes
# A principal at its share leaves an eighth of them, less the part of its last member beyond MEMBER_BYTES_MAX. The
# memory of MEMBER_BYTES_MAX and more must be free then, so that another principal can join.
MEMBERS_BYTES_MAX = 24 * MEMBER_BYTES_MAX
LIMITS = Limits(
    producers=ProducerLimits(producers_per_partition_max=PLACES),
    transactions=TransactionLimits(transactions_max=PLACES, transactions_pressure_min=PLACES),
    groups=GroupLimits(groups_max=GROUPS_MAX, member_bytes_max=MEMBER_BYTES_MAX, members_bytes_max=MEMBERS_BYTES_MAX),
)


class SmallTables(Cluster):
    """One sequencer with small tables, and a flusher; gateways come beside it."""

    def __init__(self, folder: Path, server: NatsServer) -> None:
        super().__init__(folder)
        self._nats_url = server.url
        self._sequencer_http = f"127.0.0.1:{free_port()}"
        (folder / "logs").mkdir()
        port = self._sequencer_http.rpartition(":")[2]
        of_sequencer = {"http-port": port, "nats-monitor-url": server.monitor_url}
        usual = {"nats-url": server.url, "store-url": f"file://{folder}/objects", "zone": "local"}
        self._processes = [
            self._spawn(__spec__.name, usual | of_sequencer),
            self._spawn("penstock_flusher", usual | {"http-port": str(free_port()), "flush-interval-ms": "20"}),
        ]

    def _spawn(self, module: str, settings: dict[str, str]) -> "subprocess.Popen[bytes]":
        flags = [f"--{name}={value}" for name, value in settings.items()]
        with (self.data / "logs" / f"{module}.log").open("ab") as output:
            return subprocess.Popen([sys.executable, "-m", module, *flags], stdout=output, stderr=output)

    @property
    def nats_url(self) -> str:
        return self._nats_url

    def metrics(self) -> dict[str, float]:
        """The metrics of the sequencer; none while it does not answer."""
        with contextlib.suppress(OSError):
            lines = [line for line in self._page("metrics").splitlines() if not line.startswith("#")]
            return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}
        return {}

    def degraded(self) -> str:
        """Why the sequencer is degraded by its tables; empty if it is not."""
        with contextlib.suppress(OSError):
            return str(json.loads(self._page("ready")).get("degraded", {}).get("tables", ""))
        return ""

    def _page(self, name: str) -> str:
        assert all(each.poll() is None for each in self._processes), "a service has ended"
        with urllib.request.urlopen(f"http://{self._sequencer_http}/{name}", timeout=10) as answer:
            return str(answer.read().decode())

    def close(self) -> None:
        """Kill the processes that still run."""
        for each in self._processes:
            each.kill()
            each.wait()


@contextlib.contextmanager
def small_tables(folder: Path) -> Iterator[SmallTables]:
    """The cluster, killed at the end; after a failure the ends of its logs are printed."""
    folder.mkdir()
    with (
        running_nats_server(folder) as server,
        contextlib.closing(SmallTables(folder, server)) as cluster,
        logs_after_failure(folder / "logs"),
    ):
        wait_until(lambda: bool(cluster.metrics()), READY_TIMEOUT_S, "the sequencer to answer")
        yield cluster


def main() -> int:
    """Run the sequencer until a signal stops it; the exit code."""
    config = read_config(SequencerConfig, sys.argv[1:], os.environ, program="sequencer")
    limits = SequencerLimits(core=LIMITS)
    return run_app("sequencer", config, lambda: SequencerApp(config, capture=capture_inline, limits=limits))


if __name__ == "__main__":
    sys.exit(main())

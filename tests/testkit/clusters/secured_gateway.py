"""A gateway process with listeners that demand a login, beside the gateways of a running cluster."""

import asyncio
import contextlib
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from penstock.contracts.commands import Command, PerItem
from penstock.contracts.commands.security import AlterScramCredentials, ScramDeletion, ScramMechanism, ScramUpsertion
from penstock.contracts.levels import SECURITY_LEVEL
from penstock.contracts.scram_keys import verifier_of_password
from penstock.runtime.bus.sequencer_client import SequencerClient
from penstock.runtime.clock import SystemClock
from tests.testkit.clusters.cluster import Cluster, wait_for_level, wait_until
from tests.testkit.metrics import samples, total
from tests.testkit.servers.connections import connect_nats
from tests.testkit.servers.ports import free_port

START_S = 120.0
ITERATIONS = 4_096


class SecuredGateway:
    """One gateway; `settings` are its flags with underscores. `{name}://127.0.0.1:port` is made for each listener."""

    def __init__(self, cluster: Cluster, name: str, *listeners: str, **settings: str) -> None:
        self._cluster = cluster
        self.log = cluster.data / "logs" / f"{name}.log"
        self._http = f"127.0.0.1:{free_port()}"
        self.addresses = {listener: f"127.0.0.1:{free_port()}" for listener in listeners}
        flags = {
            "instance": name,
            "zone": "local",
            "nats-url": cluster.nats_url,
            "store-url": f"file://{cluster.data}/objects",
            "http-port": self._http.rpartition(":")[2],
            "listeners": ",".join(f"{listener}://{address}" for listener, address in self.addresses.items()),
            **{key.replace("_", "-"): value for key, value in settings.items()},
        }
        command = [sys.executable, "-m", "penstock_gateway"]
        command += [part for key in flags for part in (f"--{key}", flags[key])]
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(command, stdout=output, stderr=output)

    def is_ready(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()
        with contextlib.suppress(OSError), urllib.request.urlopen(f"http://{self._http}/ready", timeout=10) as answer:
            return bool(answer.status == 200)
        return False

    def metric(self, name: str, **labels: str) -> float:
        """The sum of a metric's samples whose labels include `labels`; 0 while the process does not answer."""
        assert self.process.poll() is None, self.log.read_text()
        with (
            contextlib.suppress(OSError),
            urllib.request.urlopen(f"http://{self._http}/metrics", timeout=10) as answer,
        ):
            return total(samples(answer.read().decode()), name, **labels)
        return 0.0

    def resident_bytes(self) -> int:
        """The memory of the process."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS:"))

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


@contextlib.contextmanager
def secured_gateway(cluster: Cluster, name: str, *listeners: str, **settings: str) -> Iterator[SecuredGateway]:
    """A gateway that is ready, killed at the end."""
    gateway = SecuredGateway(cluster, name, *listeners, **settings)
    try:
        wait_until(gateway.is_ready, START_S, "the gateway to be ready")
        yield gateway
    finally:
        gateway.close()


def add_user(cluster: Cluster, name: str, password: str) -> None:
    """Give a user verifiers of both mechanisms."""
    verifiers = [
        verifier_of_password(each, password.encode(), name.encode() * 3, ITERATIONS) for each in ScramMechanism
    ]
    upsertions = [ScramUpsertion(name, verifier) for verifier in verifiers]
    _send(cluster, AlterScramCredentials(SystemClock().now_ms(), upsertions, []))


def remove_user(cluster: Cluster, name: str) -> None:
    """Take all verifiers from a user."""
    deletions = [ScramDeletion(name, each) for each in ScramMechanism]
    _send(cluster, AlterScramCredentials(SystemClock().now_ms(), [], deletions))


def _send(cluster: Cluster, command: Command) -> None:
    wait_for_level(cluster, SECURITY_LEVEL)
    (outcome,) = asyncio.run(_outcomes(cluster, command))
    assert isinstance(outcome, PerItem), outcome
    assert not any(outcome.rejections), outcome


async def _outcomes(cluster: Cluster, command: Command) -> list[object]:
    connection = await connect_nats(cluster.nats_url, name="test")
    try:
        return list(await SequencerClient(connection.bus, "default", SystemClock()).command([command], deadline_s=30))
    finally:
        await connection.close()

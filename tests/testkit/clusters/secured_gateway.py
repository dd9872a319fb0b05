"""A gateway process with listeners that have TLS or demand a login, beside the gateways of a running cluster."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from penstock.contracts.acls import (
    CLUSTER_NAME,
    WILDCARD,
    AclBinding,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)
from penstock.contracts.commands import Command, PerItem
from penstock.contracts.commands.security import (
    AlterScramCredentials,
    CreateAcls,
    ScramDeletion,
    ScramMechanism,
    ScramUpsertion,
)
from penstock.contracts.levels import SECURITY_LEVEL
from penstock.contracts.scram_keys import verifier_of_password
from penstock.runtime.bus.sequencer_client import SequencerClient
from penstock.runtime.clock import SystemClock
from tests.testkit.clusters.cluster import READY_TIMEOUT_S, STOP_TIMEOUT_S, Cluster, wait_for_level, wait_until
from tests.testkit.metrics import samples, total
from tests.testkit.servers.connections import connect_nats
from tests.testkit.servers.ports import free_port

ITERATIONS = 4_096
ANSWER_TIMEOUT_S = 10.0  # of the gateway's HTTP address; the callers ask again


class SecuredGateway:
    """The process; `addresses` has that of each listener, by name."""

    def __init__(self, cluster: Cluster, name: str, *listeners: str, **settings: object) -> None:
        """Start it. A listener has the protocol of its name; `settings` are flags with underscores."""
        self._log = cluster.data / "logs" / f"{name}.log"
        self._http = f"127.0.0.1:{free_port()}"
        self.addresses = {listener: f"127.0.0.1:{free_port()}" for listener in listeners}
        given: dict[str, object] = {
            "instance": name,
            "zone": "local",
            "nats_url": cluster.nats_url,
            "store_url": f"file://{cluster.data}/objects",
            "http_port": self._http.rpartition(":")[2],
            "listeners": ",".join(f"{listener}://{address}" for listener, address in self.addresses.items()),
            **settings,
        }
        flags = [f"--{key.replace('_', '-')}={value}" for key, value in given.items()]
        with self._log.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "penstock_gateway", *flags], stdout=output, stderr=output
            )

    def is_ready(self) -> bool:
        """Whether it serves clients."""
        assert self.process.poll() is None, self.log()
        with contextlib.suppress(OSError), self._page("ready") as answer:
            return bool(answer.status == 200)
        return False

    def metric(self, name: str, **labels: str) -> float:
        """The sum of a metric's samples whose labels include `labels`; 0 while the process does not answer."""
        assert self.process.poll() is None, self.log()
        with contextlib.suppress(OSError), self._page("metrics") as answer:
            return total(samples(answer.read().decode()), name, **labels)
        return 0.0

    def log(self) -> str:
        """All its lines so far."""
        return self._log.read_text()

    def cpu_s(self) -> float:
        """Its CPU time so far, user and system, in seconds."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def resident_bytes(self) -> int:
        """The memory of the process."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS:"))

    def stop(self) -> int:
        """Stop it as an operator does, and return the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(STOP_TIMEOUT_S)

    def close(self) -> None:
        """Kill it if it still runs."""
        self.process.kill()
        self.process.wait()

    def _page(self, name: str) -> Any:
        return urllib.request.urlopen(f"http://{self._http}/{name}", timeout=ANSWER_TIMEOUT_S)


@contextlib.contextmanager
def secured_gateway(cluster: Cluster, name: str, *listeners: str, **settings: object) -> Iterator[SecuredGateway]:
    """A gateway that is ready, killed at the end."""
    gateway = SecuredGateway(cluster, name, *listeners, **settings)
    try:
        wait_until(gateway.is_ready, READY_TIMEOUT_S, "the gateway to be ready")
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


def allow_everything(
    cluster: Cluster,
    *principals: str,
    topics: Sequence[str] = (WILDCARD,),
    groups: Sequence[str] = (WILDCARD,),
    administers: bool = False,
) -> None:
    """Allow these principals every operation on these topics and groups, or on all that there is."""
    resources = [(ResourceType.TOPIC, name) for name in topics] + [(ResourceType.GROUP, name) for name in groups]
    if administers:
        resources += [(ResourceType.CLUSTER, CLUSTER_NAME), (ResourceType.TRANSACTIONAL_ID, WILDCARD)]
    bindings = [
        AclBinding(kind, name, PatternType.LITERAL, principal, WILDCARD, AclOperation.ALL, AclPermission.ALLOW)
        for principal in principals
        for kind, name in resources
    ]
    _send(cluster, CreateAcls(SystemClock().now_ms(), bindings))


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

"""Many virtual clusters on one sequencer process: `python -m benches.clusters idle|neighbour` prints JSON.

`idle` measures the memory and CPU of a process that hosts clusters without clients. `neighbour` measures the produce
latency of one cluster alone and beside a loaded one. That one is on the same sequencer, then in another deployment.
Each cluster has an agent of its own. The last case shows the part of the effect that comes from shared cores and disk.
"""

import argparse
import asyncio
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic

from penstock.clusters import ClusterRecord, ClusterRegistry
from penstock.objectstore import open_store
from tests.testkit.clusters.cluster import wait_until
from tests.testkit.clusters.sequencers import Processes
from tests.testkit.servers.nats import NatsServer, running_nats_server
from tests.testkit.servers.ports import free_port

TOPIC = "bench"
PARTITIONS = 4
QUIET = ["--rate", "20", "--record-bytes", "1000", "--depth", "5"]
FULL = ["--connections", "4", "--record-bytes", "16000", "--depth", "5", "--partitions", str(PARTITIONS)]
READY_S = 60.0


def main() -> None:
    """Run one measurement and print its figures."""
    parser = argparse.ArgumentParser(prog="benches.clusters")
    parser.add_argument("what", choices=("idle", "neighbour"))
    parser.add_argument("--clusters", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=20.0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run = idle if arguments.what == "idle" else neighbour
        json.dump(run(Path(folder), arguments), sys.stdout, indent=2)
    print()


def idle(folder: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """One hosting sequencer without clients, without clusters and with many."""
    found = {}
    for count in (0, arguments.clusters):
        with deployment(folder / str(count), [f"c{number}" for number in range(count)]) as (_, pid):
            before_s, started_s = cpu_s(pid), time.monotonic()
            time.sleep(arguments.seconds)
            found[f"{count}_clusters"] = {
                "private_mib": round(private_mib(pid), 1),
                "cpu_percent": round(100 * (cpu_s(pid) - before_s) / (time.monotonic() - started_s), 2),
            }
    return found


def neighbour(folder: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """The latency of the cluster `b` at a low rate, in three surroundings."""
    found = {}
    with deployment(folder / "shared", ["a", "b"]) as (server, _), agent(server, folder / "shared", "b") as b:
        found["alone"] = load(b, arguments.seconds, QUIET)
        with agent(server, folder / "shared", "a") as a:
            found["loaded_neighbour_on_the_same_sequencer"] = beside(a, b, arguments.seconds)
        with (
            deployment(folder / "other", ["a"]) as (other, _),
            agent(other, folder / "other", "a") as a,
        ):
            found["loaded_neighbour_in_another_deployment"] = beside(a, b, arguments.seconds)
        found["alone_again"] = load(b, arguments.seconds, QUIET)
    return found


def beside(a: str, b: str, seconds: float) -> dict[str, Any]:
    """The figures of the quiet cluster while the other one is at full load, and those of the load."""
    with started_load(a, seconds + 4, FULL) as loaded:
        time.sleep(2)
        quiet = load(b, seconds, QUIET)
    return {**quiet, "neighbour_requests_per_s": loaded["requests_per_s"]}


@contextlib.contextmanager
def deployment(folder: Path, clusters: list[str]) -> Iterator[tuple[NatsServer, int]]:
    """A nats-server and one sequencer that hosts the clusters; the process id of the sequencer."""
    (folder / "nats").mkdir(parents=True)
    asyncio.run(register(folder, clusters))
    with running_nats_server(folder / "nats") as server:
        processes = Processes(folder, server, clusters="*")
        try:
            yield server, asyncio.run(processes.start("sequencer")).process.pid
        finally:
            processes.end()


async def register(folder: Path, clusters: list[str]) -> None:
    """Create the records of the clusters."""
    store = await open_store(f"file://{folder}/objects")
    for name in clusters:
        await ClusterRegistry(store).create(ClusterRecord(name=name, created_id=name, created_ms=1))
    await store.close()


@contextlib.contextmanager
def agent(server: NatsServer, folder: Path, cluster: str) -> Iterator[str]:
    """A gateway, flusher and cacher of one cluster in one process, with a topic; the address of the gateway."""
    address = f"127.0.0.1:{free_port()}"
    settings = {
        "cluster": cluster,
        "nats-url": server.url,
        "store-url": f"file://{folder}/objects",
        "listeners": f"PLAINTEXT://{address}",
    }
    flags = [part for name, value in settings.items() for part in (f"--{name}", value)]
    with (folder / f"agent-{cluster}.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "penstock.cli", "agent", "--", *flags], stdout=log, stderr=log
        )
    try:
        wait_until(lambda: has_topic(address), READY_S, f"the topic of {cluster}", 0.2)
        yield address
    finally:
        process.terminate()
        process.wait()


def has_topic(address: str) -> bool:
    """Whether the topic exists now; it is created if the gateway answers."""
    admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
    created = admin.create_topics([NewTopic(TOPIC, PARTITIONS)], request_timeout=2)[TOPIC]
    return created.exception(5) is None or TOPIC in admin.list_topics(timeout=5).topics


@contextlib.contextmanager
def started_load(address: str, seconds: float, flags: list[str]) -> Iterator[dict[str, Any]]:
    """A load that runs beside the block and ends after it; its figures are there after the block."""
    found: dict[str, Any] = {}
    words = ["--bootstrap", address, "--topic", TOPIC, "--seconds", str(seconds), *flags]
    with subprocess.Popen([sys.executable, "-m", "benches.raw_load", *words], stdout=subprocess.PIPE) as process:
        yield found
        assert process.stdout is not None
        found |= figures(process.stdout.read())


def load(address: str, seconds: float, flags: list[str]) -> dict[str, Any]:
    """Run a load to its end."""
    with started_load(address, seconds, flags) as found:
        pass
    return found


def figures(output: bytes) -> dict[str, Any]:
    """The figures of a load that ended."""
    found = json.loads(output)
    return {
        "p50_ms": round(found["request_p50_ms"], 1),
        "p99_ms": round(found["request_p99_ms"], 1),
        "requests_per_s": round(found["requests"] / found["seconds"], 1),
    }


def cpu_s(pid: int) -> float:
    """The CPU seconds that a process used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def private_mib(pid: int) -> float:
    """The memory that only this process uses."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_")) / 1024


if __name__ == "__main__":
    main()

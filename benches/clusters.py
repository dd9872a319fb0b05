"""Many virtual clusters on one sequencer process: `python -m benches.clusters idle|busy|neighbour` prints JSON.

`idle` measures the memory and CPU of a process that hosts clusters without clients. `busy` measures the same while a
client produces to each cluster, and the gateway and flusher that host them all. `neighbour` measures the produce
latency of one cluster alone and beside a loaded one. That one is on the same sequencer, without and with a quota, then
in another deployment. Each cluster has an agent of its own. The last case shows the part of the effect that comes from
shared cores and disk.
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
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.clusters import ClusterQuotas, ClusterRecord, ClusterRegistry
from penstock.objectstore import open_store
from tests.testkit.clusters.cluster import wait_until
from tests.testkit.clusters.sequencers import Processes
from tests.testkit.servers.nats import NatsServer, running_nats_server
from tests.testkit.servers.ports import free_port

TOPIC = "bench"
PARTITIONS = 4
QUIET = ["--rate", "20", "--record-bytes", "1000", "--depth", "5"]
FULL = ["--connections", "4", "--record-bytes", "16000", "--depth", "5", "--partitions", str(PARTITIONS)]
QUOTA = ClusterQuotas(produced_bytes_per_s=4_000_000)
READY_S = 60.0


def main() -> None:
    """Run one measurement and print its figures."""
    parser = argparse.ArgumentParser(prog="benches.clusters")
    runs = {"idle": idle, "busy": busy, "neighbour": neighbour}
    parser.add_argument("what", choices=runs)
    parser.add_argument("--clusters", type=int, default=50)
    parser.add_argument("--rate", type=float, default=5.0, help="records that a client of `busy` sends per second")
    parser.add_argument("--seconds", type=float, default=20.0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        json.dump(runs[arguments.what](Path(folder), arguments), sys.stdout, indent=2)
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


def busy(folder: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """Every cluster with one client, which sends single records of 1 kB; all through one gateway and one flusher."""
    clusters = [f"c{number}" for number in range(arguments.clusters)]
    with deployment(folder, clusters) as (server, sequencer), hosting(server, folder, clusters) as (pids, addresses):
        pids = {"sequencer": sequencer, **pids}
        producers = [Producer({"bootstrap.servers": address, "linger.ms": 0, "log_level": 0}) for address in addresses]
        latencies_s: list[float] = []
        produce_evenly(producers, arguments.rate, 3.0, [])
        before_s, started_s = {name: cpu_s(pid) for name, pid in pids.items()}, time.monotonic()
        produce_evenly(producers, arguments.rate, arguments.seconds, latencies_s)
        elapsed_s = time.monotonic() - started_s
        latencies_s.sort()
        return {
            "records_per_s": round(len(latencies_s) / elapsed_s, 1),
            "p50_ms": round(latencies_s[len(latencies_s) // 2] * 1000, 1),
            "p99_ms": round(latencies_s[len(latencies_s) * 99 // 100] * 1000, 1),
        } | {
            name: {
                "private_mib": round(private_mib(pid), 1),
                "cpu_percent": round(100 * (cpu_s(pid) - before_s[name]) / elapsed_s, 1),
            }
            for name, pid in pids.items()
        }


def produce_evenly(producers: list[Producer], rate: float, seconds: float, latencies_s: list[float]) -> None:
    """Send `rate` records per second with each producer, one producer after the other; add the latencies."""
    interval_s = 1 / (rate * len(producers))
    due_s = time.monotonic()
    end_s = due_s + seconds
    while due_s < end_s:
        for producer in producers:
            time.sleep(max(0.0, due_s - time.monotonic()))
            sent_s = time.monotonic()

            def delivered(error: Any, _: Any, sent_s: float = sent_s) -> None:
                assert error is None, error
                latencies_s.append(time.monotonic() - sent_s)

            producer.produce(TOPIC, bytes(1000), on_delivery=delivered)
            for each in producers:
                each.poll(0)
            due_s += interval_s
    for producer in producers:
        assert producer.flush(READY_S) == 0


@contextlib.contextmanager
def hosting(server: NatsServer, folder: Path, clusters: list[str]) -> Iterator[tuple[dict[str, int], list[str]]]:
    """A gateway and a flusher that host all clusters, each with a topic; their process ids, and the addresses."""
    ports = {cluster.upper(): free_port() for cluster in clusters}
    common = {"clusters": "*", "nats-url": server.url, "store-url": f"file://{folder}/objects"}
    settings = {
        "gateway": common
        | {
            "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items()),
            "listener-security-protocol-map": ",".join(f"{name}:PLAINTEXT" for name in ports),
            "listener-clusters": ",".join(f"{name}={name.lower()}" for name in ports),
        },
        "flusher": common,
    }
    addresses = [f"127.0.0.1:{port}" for port in ports.values()]
    with contextlib.ExitStack() as running:
        pids = {}
        for service, its in settings.items():
            process = started(
                folder / f"{service}.log", [f"penstock_{service}"], {"http-port": str(free_port()), **its}
            )
            pids[service] = running.enter_context(process)
        for address in addresses:
            wait_until(lambda address=address: has_topic(address), READY_S, f"the topic at {address}", 0.2)  # type: ignore[misc]
        yield pids, addresses


@contextlib.contextmanager
def started(log: Path, module: list[str], settings: dict[str, str]) -> Iterator[int]:
    """A process of a module until the end of the block; its id."""
    flags = [part for name, value in settings.items() for part in (f"--{name}", value)]
    with log.open("wb") as output:
        process = subprocess.Popen([sys.executable, "-m", *module, *flags], stdout=output, stderr=output)
    try:
        yield process.pid
    finally:
        process.terminate()
        process.wait()


def neighbour(folder: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """The latency of the cluster `b` at a low rate, in four surroundings."""
    found = {}
    shared = folder / "shared"
    with deployment(shared, ["a", "b"], limited=["c"]) as (server, _), agent(server, shared, "b") as b:
        found["alone"] = load(b, arguments.seconds, QUIET)
        for cluster, limit in (("a", ""), ("c", "_with_a_quota")):
            with agent(server, shared, cluster) as loaded:
                found[f"loaded_neighbour_on_the_same_sequencer{limit}"] = beside(loaded, b, arguments.seconds)
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
def deployment(folder: Path, clusters: list[str], limited: Sequence[str] = ()) -> Iterator[tuple[NatsServer, int]]:
    """A nats-server and one sequencer that hosts the clusters, some `limited` by the quota; its process id."""
    (folder / "nats").mkdir(parents=True)
    asyncio.run(register(folder, dict.fromkeys(clusters, ClusterQuotas()) | dict.fromkeys(limited, QUOTA)))
    with running_nats_server(folder / "nats") as server:
        processes = Processes(folder, server, clusters="*")
        try:
            yield server, asyncio.run(processes.start("sequencer")).process.pid
        finally:
            processes.end()


async def register(folder: Path, clusters: dict[str, ClusterQuotas]) -> None:
    """Create the records of the clusters."""
    store = await open_store(f"file://{folder}/objects")
    for name, quotas in clusters.items():
        await ClusterRegistry(store).create(ClusterRecord(name=name, created_id=name, created_ms=1, quotas=quotas))
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
    with started(folder / f"agent-{cluster}.log", ["penstock.cli", "agent", "--"], settings):
        wait_until(lambda: has_topic(address), READY_S, f"the topic of {cluster}", 0.2)
        yield address


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

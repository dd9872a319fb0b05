"""The memory of each process, and the part of its growth that only a leak explains.

Resident memory alone shows no leak. Caches fill up to their limits. Python frees an arena of 1 MiB only when no object
is left in it. So a process keeps freed memory after large requests. The number of blocks in use does not show that.
"""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from tests.testkit.clusters.cluster import Cluster, wait_until
from tests.testkit.metrics import total

BLOCKS = "penstock_memory_blocks"
CACHES = {"flusher": "penstock_flusher_recent_bytes", "cacher": "penstock_cacher_held_bytes"}
GROWTH_MAX = 0.1
BLOCKS_GROWTH_MAX = 0.2  # the fuzzer creates some 1,000 topics, which gateways keep
# Freed memory that a process may keep. A gateway reserves 128 MiB for large requests. A sequencer answers long queries.
# The heap of a Go program doubles between two collections.
KEPT_BYTES_MAX = {"gateway": 128 << 20, "sequencer": 32 << 20, "nats": 32 << 20}
COUNTED = ("gateway", "sequencer")  # services whose blocks are compared
# Its state grows with every request that creates something. So it is compared with a new process of the same state.
HAS_STATE = "sequencer-1"
METRICS_TIMEOUT_S = 60.0
SERVED_TIMEOUT_S = 400.0  # a Fetch whose client has left waits up to 300 s


class Memory(msgspec.Struct, frozen=True):
    """Resident bytes of a process, bytes of its cache with overhead, and blocks of its Python objects."""

    resident_bytes: int
    cached_bytes: int = 0
    blocks: int = 0  # 0 for a process that is not counted: one with a cache, or without Python

    @property
    def own_bytes(self) -> int:
        """Resident bytes without the cache."""
        return self.resident_bytes - self.cached_bytes


def until_served(cluster: Cluster) -> None:
    """Wait until the gateway has no connection except the canary's: its requests in progress need memory."""
    wait_until(
        lambda: cluster.metric("penstock_gateway_connections") <= 1,
        SERVED_TIMEOUT_S,
        "the requests of hostile clients to end",
        poll_s=1.0,
    )


def restart_with_state(cluster: Cluster) -> None:
    """Kill the process with the state, and wait until a new one has all of it."""
    restarts = cluster.processes()[HAS_STATE]["restarts"]
    cluster.kill(HAS_STATE)
    wait_until(
        lambda: cluster.processes()[HAS_STATE]["restarts"] > restarts and cluster.is_ready(),
        SERVED_TIMEOUT_S,
        "the sequencer to have its state again",
    )


def measure(cluster: Cluster) -> dict[str, Memory]:
    """The memory of each process of a cluster with one process of each service."""
    wait_until(
        lambda: all(cluster.metric(BLOCKS, service=service) for service in (*COUNTED, *CACHES)),
        METRICS_TIMEOUT_S,
        "the metrics of all services",
    )
    found = cluster.metrics()
    measured = {}
    for name, process in cluster.processes().items():
        service = name.rpartition("-")[0]
        if process["pid"] is not None:
            measured[name] = Memory(
                _resident_bytes(process["pid"]),
                int(total(found, CACHES[service])) if service in CACHES else 0,
                int(total(found, BLOCKS, service=service)) if service in COUNTED else 0,
            )
    return measured


def _resident_bytes(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS"))


def grown(references: Mapping[str, Memory], after: Mapping[str, Memory]) -> list[str]:
    """The processes whose memory is too much beside that of their references."""
    found = []
    for name in references.keys() & after.keys():
        first, last = references[name], after[name]
        bytes_max = first.own_bytes * (1 + GROWTH_MAX) + KEPT_BYTES_MAX.get(name.rpartition("-")[0], 0)
        if last.own_bytes > bytes_max:
            found.append(f"{name} grew from {first.own_bytes} to {last.own_bytes} bytes without its cache")
        if last.blocks > first.blocks * (1 + BLOCKS_GROWTH_MAX):
            found.append(f"{name} grew from {first.blocks} to {last.blocks} blocks in use")
    return sorted(found)

"""The start of `penstock up` and of `penstock up --small`: time, memory of all processes, and CPU without clients."""

import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benches.report import Result
from tests.testkit.clusters.cluster import Cluster

STARTS = 5
SETTLE_S = 8.0  # the helpers start after the services
IDLE_S = 60.0
MIB = 2**20
# The arguments, and the budgets of seconds until ready, of MiB, and of percent of a core.
SHAPES = {
    "up": (("--agents=1", "--sequencers=0", "--janitors=1", "--compactors=1"), 3.0, 400.0, 2.0),
    "up --small": (("--small",), 1.0, 200.0, 2.0),
}


def starts() -> Iterator[Result]:
    """The median time until ready on a folder with data, then memory, then CPU."""
    for name, (arguments, ready_s, memory_mib, idle_percent) in SHAPES.items():
        with tempfile.TemporaryDirectory() as folder:
            cluster = Cluster(Path(folder) / "data", *arguments)
            taken_s = []
            try:
                for _ in range(STARTS + 1):  # the first one makes the journal
                    cluster.close()
                    began_s = time.perf_counter()
                    cluster.start()
                    taken_s.append(time.perf_counter() - began_s)
                cpu_s = sum(map(_cpu_s, _tree(cluster.pid)))
                found = sorted(taken_s[1:])
                details = {"fastest s": found[0], "CPU s": cpu_s}
                yield Result("starts", f"{name}: until ready", found[len(found) // 2], "s", ready_s, details=details)
                yield from _at_rest(name, cluster.pid, memory_mib, idle_percent)
            finally:
                cluster.close()


def _at_rest(name: str, parent: int, memory_mib: float, idle_percent: float) -> Iterator[Result]:
    time.sleep(SETTLE_S)
    processes = _tree(parent)
    pss, rss = (sum(_memory_bytes(pid, kind) for pid in processes) / MIB for kind in ("Pss", "Rss"))
    details = {"RSS MiB": rss, "processes": len(processes)}
    yield Result("starts", f"{name}: memory (PSS)", pss, "MiB", memory_mib, details=details)
    before_s, began_s = sum(map(_cpu_s, processes)), time.perf_counter()
    time.sleep(IDLE_S)
    percent = (sum(map(_cpu_s, processes)) - before_s) / (time.perf_counter() - began_s) * 100
    yield Result("starts", f"{name}: CPU without clients", percent, "% of a core", idle_percent)


def _tree(parent: int) -> list[int]:
    """A process and its descendants."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int(_stat(int(entry.name))[1])
            except OSError:  # it has just ended
                continue
    found = [parent]
    for each in found:
        found += [pid for pid, its_parent in parents.items() if its_parent == each]
    return found


def _stat(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def _cpu_s(pid: int) -> float:
    user, system = _stat(pid)[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def _memory_bytes(pid: int, kind: str) -> int:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{kind}:"))

"""The workloads of the comparison, as data: each measures a target once, and returns its figures by name."""

from typing import Protocol

import msgspec

from benches.kafka.loads.load import Load
from benches.kafka.workloads.target import OLD_PARTITIONS, WRITE, Measured, Span, Target

CPU_SHOWN_MIN_S = 0.05  # a process that used less has no figure of its own
READ = Load(client="raw", kind="consume", clients=4)


class Workload(Protocol):
    """A workload."""

    def measure(self, target: Target, span: Span) -> dict[str, float]:
        """Measure once."""
        ...


class Produce(msgspec.Struct, frozen=True):
    """Produce to a new topic: MiB/s, records/s, and the server's CPU seconds per GiB."""

    load: Load
    partitions: int

    def measure(self, target: Target, span: Span) -> dict[str, float]:
        """Measure once."""
        with target.new_topic(self.partitions) as topic:
            measured = target.measure(span, (self.load, topic))
        (counts,) = measured.counts
        return {
            "MiB/s": measured.mib_per_s,
            "records/s": counts.records / counts.seconds,
            **_cpu(measured, measured.mib_per_s),
        }


class CatchUp(msgspec.Struct, frozen=True):
    """Read old data from the start, again and again: MiB/s, and the server's CPU seconds per GiB."""

    load: Load

    def measure(self, target: Target, span: Span) -> dict[str, float]:
        """Measure once."""
        measured = target.measure(span, (self.load, target.old_data))
        return {"MiB/s": measured.mib_per_s, **_cpu(measured, measured.mib_per_s)}


class WriteAndRead(msgspec.Struct, frozen=True):
    """Read all records while they are written: MiB/s of each, also for each core that the server uses."""

    write: Load
    read: Load

    def measure(self, target: Target, span: Span) -> dict[str, float]:
        """Measure once."""
        with target.new_topic(OLD_PARTITIONS) as topic:
            measured = target.measure(span, (self.write, topic), (self.read, topic))
        of_each = measured.mib_per_s / 2
        return {"MiB/s per core": of_each / measured.cores, "MiB/s of each": of_each, **_cpu(measured, of_each)}


class Latency(msgspec.Struct, frozen=True):
    """Send to receipt at a steady rate, in ms; records/s shows a system that falls behind."""

    load: Load
    partitions: int

    def measure(self, target: Target, span: Span) -> dict[str, float]:
        """Measure once."""
        with target.new_topic(self.partitions) as topic:
            measured = target.measure(span, (self.load, topic))
        (counts,) = measured.counts
        records = counts.records / counts.seconds
        return {"p50 ms": counts.p50_ms, "p99 ms": counts.p99_ms, "records/s": records, "cores": measured.cores}


class AfterLoad(msgspec.Struct, frozen=True):
    """The memory after full writes and catch-up reads, in MB."""

    def measure(self, target: Target, span: Span) -> dict[str, float]:
        """Measure once."""
        topic = target.old_data
        with target.new_topic(OLD_PARTITIONS) as written:
            target.measure(span, (WRITE, written))
        target.measure(span, (READ, topic))
        return {"MB": target.memory_mb()}


class Rest(msgspec.Struct, frozen=True):
    """The cost of a system without clients: CPU in % of a core, and memory in MB."""

    def measure(self, target: Target, span: Span) -> dict[str, float]:
        """Measure once."""
        measured = target.measure(span)
        return {"% of a core": measured.cores * 100, "MB": target.memory_mb()}


def _cpu(measured: Measured, mib_per_s: float) -> dict[str, float]:
    """Server CPU per GiB at this throughput, in total and by process."""
    gib = mib_per_s * measured.seconds / 1024
    if not gib:
        return {}
    by_process = {f"{name} CPU-s/GiB": used / gib for name, used in measured.cpu_s.items() if used > CPU_SHOWN_MIN_S}
    return {"CPU-s/GiB": sum(measured.cpu_s.values()) / gib, **by_process}

"""Rates and times between two readings of metrics."""

from collections.abc import Mapping

import msgspec

from penstock.cli.diagnosis.processes import Samples

BUCKET_END = "le"


class Times(msgspec.Struct, frozen=True):
    """The times of a stage between two readings, in milliseconds."""

    count: int
    mean_ms: float
    p50_ms: float
    p99_ms: float


def grown(before: Samples, after: Samples, name: str, **labels: str) -> float:
    """The growth of a counter, summed over all samples that have these labels."""
    wanted = set(labels.items())
    return sum(
        max(value - before.get((each, found), 0.0), 0.0)
        for (each, found), value in after.items()
        if each == name and wanted <= set(found)
    )


def total(samples: Samples, name: str, **labels: str) -> float:
    """The sum of a gauge over all samples that have these labels."""
    wanted = set(labels.items())
    return sum(value for (each, found), value in samples.items() if each == name and wanted <= set(found))


def times(before: Samples, after: Samples, name: str, **labels: str) -> Times | None:
    """The times of a histogram between two readings; None if it got none."""
    wanted = set(labels.items())
    buckets: dict[float, float] = {}
    for (each, found), value in after.items():
        if each == f"{name}_bucket" and wanted <= set(found):
            end = float(dict(found)[BUCKET_END])
            buckets[end] = buckets.get(end, 0.0) + max(value - before.get((each, found), 0.0), 0.0)
    count = grown(before, after, f"{name}_count", **labels)
    if count <= 0:
        return None
    mean_s = grown(before, after, f"{name}_sum", **labels) / count
    return Times(int(count), mean_s * 1000, quantile(buckets, 0.5) * 1000, quantile(buckets, 0.99) * 1000)


def quantile(buckets: Mapping[float, float], share: float) -> float:
    """A quantile of cumulative buckets, interpolated as Prometheus does; the last finite end if it is above that."""
    ends = sorted(buckets)
    if not ends:
        return 0.0
    wanted = buckets[ends[-1]] * share
    start, below = 0.0, 0.0
    for end in ends:
        if buckets[end] >= wanted:
            if end == float("inf"):
                return start
            inside = buckets[end] - below
            return start + (end - start) * ((wanted - below) / inside if inside else 1.0)
        start, below = end, buckets[end]
    return start

"""Where the time of records goes: the mean and the p99 of each stage between two looks at the metrics, with advice."""

import asyncio
from collections.abc import Mapping

import msgspec

from penstock.cli.diagnosis.processes import Samples, find_processes, opened_pages
from penstock.cli.output import Report
from penstock.cli.running import connected_bus
from penstock.contracts.errors import Invalid
from penstock.spark.config import ClusterAddress

P99 = 0.99
# Of all produce requests. A stock producer that gets five answers at once sends five requests, of which one counts.
AT_LIMIT_SHARE = 0.15
BUCKET_END = "le"


class Stage(msgspec.Struct, frozen=True):
    """A stage of a record, and the histogram of its times."""

    name: str
    metric: str
    labels: tuple[tuple[str, str], ...] = ()


# In the order of a record's life. A produce answer comes after the commit.
FLUSH = Stage("flusher: wait until the segment closes", "penstock_flusher_wait_seconds", (("for", "flush"),))
UPLOAD = Stage("flusher: wait for an upload", "penstock_flusher_wait_seconds", (("for", "upload"),))
PUT = Stage("flusher: upload", "penstock_flusher_put_seconds")
TURN = Stage("flusher: wait for older segments", "penstock_flusher_wait_seconds", (("for", "turn"),))
COMMIT = Stage("flusher: commit", "penstock_flusher_commit_seconds")
APPEND = Stage("sequencer: append to the journal", "penstock_sequencer_append_seconds")
APPLY = Stage("sequencer: apply an entry", "penstock_sequencer_apply_seconds")
PRODUCE = Stage("gateway: whole produce request", "penstock_gateway_request_seconds", (("api", "Produce"),))
ANNOUNCED = Stage("gateway: from segment to announcement", "penstock_gateway_announced_seconds")
TAIL = Stage("gateway: from announcement to fetch answer", "penstock_gateway_tail_answer_seconds")
STAGES = (FLUSH, UPLOAD, PUT, TURN, COMMIT, APPEND, APPLY, PRODUCE, ANNOUNCED, TAIL)


class Times(msgspec.Struct, frozen=True):
    """The times of a stage in the window."""

    count: int
    mean_ms: float
    p99_ms: float  # the upper end of the bucket that has the p99


async def explain_latency(cluster: ClusterAddress, seconds: float) -> Report:
    """The stages between two looks `seconds` apart; `Invalid` if nothing was produced or read meanwhile."""
    async with connected_bus(cluster, "penstock-explain") as bus:
        processes = await find_processes(bus, cluster.cluster)
    async with opened_pages() as pages:
        before = await pages.metrics(processes)
        await asyncio.sleep(seconds)
        after = await pages.metrics(processes)
    times = {stage: found for stage in STAGES if (found := times_of(stage, before, after)) is not None}
    if not times:
        raise Invalid(f"no records were written or read within {seconds:g} s: start a load, or give more --seconds")
    share = at_limit_share(before, after)
    return Report(
        {
            "measured_seconds": seconds,
            "stages": [
                {"stage": stage.name, "count": each.count, "mean_ms": each.mean_ms, "p99_ms": each.p99_ms}
                for stage, each in times.items()
            ],
            "requests_at_limit_share": share,
            "advice": [
                {"advice": text}
                for text in advice(times, is_slow_store=_is_remote(cluster.store_url), at_limit_share=share)
            ],
        }
    )


def _is_remote(store_url: str) -> bool:
    return not store_url.startswith(("file://", "memory://"))


def times_of(stage: Stage, before: Samples, after: Samples) -> Times | None:
    """The times of a stage between two looks, None if it did not happen."""

    def grown(suffix: str) -> dict[tuple[tuple[str, str], ...], float]:
        name = f"{stage.metric}{suffix}"
        return {
            labels: value - before.get((each, labels), 0.0)
            for (each, labels), value in after.items()
            if each == name and set(stage.labels) <= set(labels)
        }

    count = sum(grown("_count").values())
    if count <= 0:
        return None
    buckets: dict[float, float] = {}
    for labels, value in grown("_bucket").items():
        end = float(dict(labels)[BUCKET_END])
        buckets[end] = buckets.get(end, 0.0) + value
    end_s = next((end for end, value in sorted(buckets.items()) if value >= P99 * count), float("inf"))
    return Times(int(count), sum(grown("_sum").values()) / count * 1000, end_s * 1000)


def at_limit_share(before: Samples, after: Samples) -> float:
    """The share of produce requests that came as the fifth or a later one without an answer."""

    def grown(name: str, **labels: str) -> float:
        key = (name, tuple(labels.items()))
        return after.get(key, 0.0) - before.get(key, 0.0)

    requests = grown("penstock_gateway_request_seconds_count", api="Produce")
    return grown("penstock_gateway_requests_at_limit_total") / requests if requests else 0.0


def advice(times: Mapping[Stage, Times], *, is_slow_store: bool, at_limit_share: float = 0.0) -> list[str]:
    """Possible changes, the largest effect first; a sentence also if there is none."""
    mean: dict[Stage, float] = {stage: each.mean_ms for stage, each in times.items()}
    found: list[tuple[float, str]] = []

    def add(stage: Stage, least_ms: float, text: str) -> None:
        if mean.get(stage, 0.0) >= least_ms:
            found.append((mean[stage], text))

    if at_limit_share >= AT_LIMIT_SHARE:
        add(
            PRODUCE,
            20,
            f"The round trip limits producers: {at_limit_share:.0%} of their requests were the fifth or a later one "
            "without an answer. So producers fall behind if they have more to send. Larger batches help: "
            "linger.ms=100, batch.size=1000000. So do topics with penstock.lane=express.",
        )
    if is_slow_store:
        add(
            PUT,
            20,
            "The upload to the store takes most of a round trip. Topics with penstock.lane=express are stored in NATS "
            "first: see express topics in docs/operating/deploy.md.",
        )
    else:
        add(PUT, 20, "The disk of the store is slow: check its load, and whether other programs call fsync on it.")
    add(FLUSH, 100, "Segments wait long for more data: lower flush_interval_ms if more PUTs are acceptable.")
    add(UPLOAD, 5, "Segments wait for a free upload: raise upload_parallel_max, or start more flushers.")
    add(TURN, 20, "Segments wait for older ones: some uploads are much slower than others. See put_hedge_share.")
    add(COMMIT, 25, "Commits are slow: check the disk of the nats-server, and the CPU of the sequencers.")
    add(APPLY, 5, "Sequencers need long for an entry: give them more CPU.")
    add(TAIL, 50, "Gateways need long to answer waiting fetches: start more gateways, or look at their CPU.")
    if not found:
        return ["No stage is unusually long."]
    return [text for _, text in sorted(found, reverse=True)]

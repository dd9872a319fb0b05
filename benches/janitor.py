"""The store requests of a janitor with default settings, counted in virtual time over the real state machine."""

import asyncio
from collections import Counter
from collections.abc import Iterator

from benches.report import Result
from penstock.runtime.process.logs import configure_logs
from tests.testkit.fakes.virtual_time import VirtualLoop
from tests.unit.janitor.janitor_world import Running, World, world

TOPIC = "expiring"
RETENTION_S = 600
WARM_S = 1_800.0  # until deletions match writes: after retention, the grace and the interval of the janitor
MEASURED_S = 1_800.0
DAY_S = 86_400.0
GIB = 2**30
FULL_BYTES, FULL_PER_S = 8 * 2**20, 12  # segments at 100 MB/s
SMALL_BYTES, SMALL_PER_S = 2**18, 4  # a flush every 250 ms at 1 MB/s
REQUESTS_PER_GIB = 5.0
LISTED = ("list shard", "list")
OBJECTS = 5_000


def costs() -> Iterator[Result]:
    """The requests for expired data, and for the sweep of one day."""
    configure_logs("bench", "bench", "error", "auto")
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        full = runner.run(_requests_per_gib(FULL_BYTES, FULL_PER_S))
        yield Result("janitor", "DELETEs and GETs at 100 MB/s", full, "per GiB expired", REQUESTS_PER_GIB)
        small = runner.run(_requests_per_gib(SMALL_BYTES, SMALL_PER_S))
        yield Result("janitor", "DELETEs and GETs at 1 MB/s, where a GiB takes 4,096 PUTs", small, "per GiB expired")
        day = runner.run(_requests_of_a_day())
        listed = sum(day[verb] for verb in LISTED)
        yield Result("janitor", f"LISTs for {OBJECTS:,} objects that stay", listed, "per day", 1_010)
        yield Result("janitor", "other requests meanwhile", day.total() - listed, "per day", 100)


async def _requests_per_gib(segment_bytes: int, per_s: int) -> float:
    """The requests of one janitor per GiB, without the listings of the sweep, which do not depend on the load."""
    async with world() as built:
        built.create_topic(TOPIC, retention_ms=str(RETENTION_S * 1000))
        janitor = built.start()
        flushing = asyncio.create_task(_flush(built, per_s))
        await built.go_on(WARM_S)
        before, gone = store_requests(janitor), janitor.metric("deleted_objects_total", reason="condemned")
        await built.go_on(MEASURED_S)
        asked = store_requests(janitor) - before
        gone_gib = (janitor.metric("deleted_objects_total", reason="condemned") - gone) * segment_bytes / GIB
        flushing.cancel()
        return sum(count for verb, count in asked.items() if verb not in LISTED) / gone_gib


async def _requests_of_a_day() -> Counter[str]:
    async with world() as built:
        built.create_topic(TOPIC)
        for _ in range(OBJECTS):
            await built.flush(TOPIC)
        janitor = built.start()
        await built.go_on(DAY_S)
        before = store_requests(janitor)
        await built.go_on(DAY_S)
        return store_requests(janitor) - before


async def _flush(built: World, per_s: int) -> None:
    while True:
        await built.flush(TOPIC)
        await asyncio.sleep(1 / per_s)


def store_requests(janitor: Running) -> Counter[str]:
    """The store requests of the janitor so far, by verb."""
    verbs = ("get", "delete", "unfinished", "abort_unfinished", *LISTED)
    return Counter({verb: janitor.plan.calls[verb] for verb in verbs})

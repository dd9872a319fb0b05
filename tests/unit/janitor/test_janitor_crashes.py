"""A janitor may crash at any of its calls, before or after the effect. Another janitor then finishes the work."""

import pytest

from penstock.contracts.commands import TO_HIGH_WATERMARK, DeleteRecords, LogOffset
from penstock.objectstore.store import PART_BYTES_MIN
from penstock_janitor.app import JanitorLimits
from penstock_janitor.coordination.guard import marker_key
from penstock_janitor.deletion.sweep import SweepLimits
from penstock_janitor.rules.classification import ORPHAN_AGE_MIN_MS
from penstock_sequencer.core.state.limits import Limits, LogLimits
from tests.testkit.fakes.virtual_time import in_virtual_time
from tests.unit.janitor.janitor_world import CLUSTER, GRACE_S, HOUR_MS, CrashPlan, World, world

# All calls of a janitor by name: queries, commands by their kinds, and calls of the store.
CRASH_POINTS = (
    "journal",
    "usage",
    "retention",
    "condemned",
    "known_segments",
    "TakeTaskLease",
    "EndTaskLease",
    "ExpireLogs",
    "DropExtents",
    "LeaseJob",
    "RemoveSegments+ReleaseJob",
    "get",
    "list shard",
    "list",
    "unfinished",
    "abort_unfinished",
    "delete",
)
LIMITS = JanitorLimits(sweep=SweepLimits(shard_digits=1, tasks_at_once=5))  # so that a sweep is short
AGE_S = ORPHAN_AGE_MIN_MS / 1000
SETTINGS = {"sweep_interval_ms": 300_000, "reap_interval_ms": 10_000}
STEP_BY_STEP = Limits(log=LogLimits(extents_dropped_per_command_max=1))
A_WHILE_S = 3 * GRACE_S  # enough for all the work


async def prepare(built: World) -> set[str]:
    """Prepare work for each loop; return the keys that must stay."""
    built.limits = LIMITS
    for name, configs in {"stays": {}, "expires": {"retention_ms": "600000"}, "trimmed": {}, "deleted": {}}.items():
        built.create_topic(name, **{"retention_ms": "-1", **configs})
    kept = {await built.flush("stays"), await built.flush("stays", "deleted")}
    for name in ("expires", "expires", "trimmed", "deleted"):
        await built.flush(name)
    await built.flush("trimmed", "deleted")
    await built.put(built.new_id(built.clock.now_ms()))
    await built.put(built.new_id(built.clock.now_ms() - HOUR_MS), level=1)
    for name in ("abandoned", "given-up"):
        await built.store.objects.begin_parts(f"{CLUSTER}/segments/003/1-{name}", PART_BYTES_MIN)
    await built.go_on(AGE_S)
    young = await built.put(built.new_id(built.clock.now_ms() + 24 * HOUR_MS))
    strange = f"{CLUSTER}/strange"
    await built.store.objects.put(strange, [b"?"])
    built.delete_topic("deleted")
    log = LogOffset(built.state.topics["trimmed"].topic_id, 0, TO_HIGH_WATERMARK)
    built.apply(DeleteRecords(0, [log]))
    kept.add(await built.flush("stays", "trimmed"))
    return {*kept, young, strange, marker_key(CLUSTER)}


async def check_all_is_done(built: World, left: set[str]) -> None:
    assert set(await built.store.keys()) == left
    assert not await built.store.objects.unfinished("")
    assert built.state.segments.dead_count == 0
    assert set(built.live()) <= left
    assert not built.state.leases
    assert not built.state.task_leases


@in_virtual_time
async def test_the_crash_points_are_all_calls_of_a_janitor() -> None:
    async with world(core_limits=STEP_BY_STEP) as built:
        left = await prepare(built)
        running = built.start(**SETTINGS)
        await built.go_on(A_WHILE_S)
        await built.stop("janitor-1")
        await check_all_is_done(built, left)
        assert set(running.plan.calls) == set(CRASH_POINTS)
        assert min(running.plan.calls.values()) >= 2


@pytest.mark.parametrize("occurrence", [1, 2])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("point", CRASH_POINTS)
def test_after_a_crash_another_janitor_finishes(point: str, after: bool, occurrence: int) -> None:
    @in_virtual_time
    async def run() -> None:
        async with world(core_limits=STEP_BY_STEP) as built:
            left = await prepare(built)
            built.start(plan=CrashPlan(point, occurrence, after=after), **SETTINGS)
            await built.until_crashed("janitor-1")
            built.start("janitor-2", **SETTINGS)
            await built.go_on(A_WHILE_S)
            await built.stop("janitor-2")
            await check_all_is_done(built, left)

    run()


@pytest.mark.parametrize("seed", range(10))
def test_janitors_that_crash_repeatedly_finish_the_work(seed: int) -> None:
    @in_virtual_time
    async def run() -> None:
        async with world(core_limits=STEP_BY_STEP) as built:
            left = await prepare(built)
            for life in range(20):
                point = CRASH_POINTS[(seed * 7 + life * 5) % len(CRASH_POINTS)]
                name = f"janitor-{life}"
                built.start(name, plan=CrashPlan(point, 1 + life % 3, after=bool((seed + life) % 2)), **SETTINGS)
                await built.pass_by(1.3 * GRACE_S)
                await built.kill(name)
            built.start("last", **SETTINGS)
            await built.go_on(A_WHILE_S)
            await built.stop("last")
            await check_all_is_done(built, left)

    run()

"""The sweep and the store maintenance: they delete orphans and unfinished uploads, and leave unknown keys."""

import asyncio
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from penstock.contracts.commands import MAINTENANCE_TASK, SHARD_TASKS, TakeTaskLease
from penstock.contracts.queries.janitor import JournalView
from penstock.objectstore.memory import MemoryStore
from penstock.objectstore.store import PART_BYTES_MIN
from penstock.segment.keys import cleanup_key
from penstock_janitor.app import JanitorLimits
from penstock_janitor.coordination.guard import Guard, marker_key
from penstock_janitor.coordination.task_leases import LeasedTasks, TaskKind
from penstock_janitor.deletion.deleter import Deleter
from penstock_janitor.deletion.maintenance import LOGGED_MAX, StoreMaintenance
from penstock_janitor.deletion.sweep import Sweep, SweepLimits
from penstock_janitor.metrics import JanitorMetrics
from penstock_janitor.rules.classification import ORPHAN_AGE_MIN_MS, Rules
from penstock_janitor.rules.journal import REBUILT_SEQUENCE_MIN, Identity
from tests.testkit.fakes.clock import ManualClock
from tests.testkit.fakes.memory_bus import MemorySubscription
from tests.testkit.fakes.virtual_time import START_MS, in_virtual_time
from tests.unit.janitor.janitor_world import CLUSTER, GRACE_S, HOUR_MS, SEGMENT_BYTES, World, world

AGE_S = ORPHAN_AGE_MIN_MS / 1000
INTERVAL_S = 1_200.0
QUICK = {"sweep_interval_ms": int(INTERVAL_S * 1000)}
DAY_S = 86_400.0


async def orphan(built: World, age_ms: int = 2 * ORPHAN_AGE_MIN_MS, level: int = 0) -> str:
    """Store an object without a commit; return its key."""
    return await built.put(built.new_id(START_MS + int(built.clock.monotonic_s() * 1000) - age_ms), level)


@in_virtual_time
async def test_an_orphan_is_deleted_when_it_is_old_and_not_before() -> None:
    async with world() as built:
        running = built.start(**QUICK)
        old, young = await orphan(built), await orphan(built, ORPHAN_AGE_MIN_MS - 2 * int(INTERVAL_S) * 1000)
        await built.go_on(INTERVAL_S)
        assert old not in await built.store.keys()
        assert young in await built.store.keys()
        assert running.metric("deleted_objects_total", reason="orphan") == 1
        assert running.metric("bytes", state="orphaned") == SEGMENT_BYTES
        await built.go_on(4 * INTERVAL_S)
        assert young not in await built.store.keys()


@in_virtual_time
async def test_the_whole_bucket_is_listed_once_in_an_interval() -> None:
    async with world() as built:
        running = built.start(retention_interval_ms=HOUR_MS, reap_interval_ms=HOUR_MS)
        await built.go_on(0.9 * DAY_S)
        assert running.plan.calls["list shard"] == SHARD_TASKS
        await built.go_on(1.1 * DAY_S)
        assert running.plan.calls["list shard"] == 2 * SHARD_TASKS


@in_virtual_time
async def test_several_janitors_share_a_sweep() -> None:
    async with world() as built:
        janitors = [built.start(f"janitor-{number}", **QUICK) for number in range(3)]
        await built.go_on(0.9 * INTERVAL_S)
        listed = [running.plan.calls["list shard"] for running in janitors]
        assert sum(listed) == SHARD_TASKS
        assert min(listed) > 0


@in_virtual_time
async def test_a_shard_with_many_objects_is_listed_page_by_page() -> None:
    async with world() as built:
        built.limits = JanitorLimits(sweep=SweepLimits(shard_digits=1))
        built.shards = range(100)  # the shards of the first task
        orphans = [await orphan(built) for _ in range(2_400)]
        built.create_topic("stays", retention_ms="-1")
        live = [await built.flush("stays") for _ in range(100)]
        running = built.start(**QUICK)
        await built.go_on(INTERVAL_S)
        left = set(await built.store.keys())
        assert not left.intersection(orphans)
        assert left >= set(live)
        assert running.plan.calls["delete"] == 3


@in_virtual_time
async def test_after_a_rebuild_orphans_stay_for_a_day() -> None:
    async with world() as built:
        made = datetime.fromtimestamp(START_MS / 1000, UTC).isoformat()
        built.identity = Identity(built.identity.stream, made)
        await built.write_marker(built.identity)
        built.state.sequence = REBUILT_SEQUENCE_MIN
        built.start(sweep_interval_ms=HOUR_MS)
        key = await orphan(built)
        await built.go_on(DAY_S - 1)
        assert key in await built.store.keys()
        await built.go_on(2 * HOUR_MS / 1000)
        assert key not in await built.store.keys()


@pytest.mark.parametrize("ahead_ms", [-7 * HOUR_MS, 7 * HOUR_MS])
@pytest.mark.parametrize("whose", ["janitor", "journal"])
def test_one_wrong_clock_deletes_no_orphan_early(whose: str, ahead_ms: int) -> None:
    @in_virtual_time
    async def run() -> None:
        async with world() as built:
            built.journal_ahead_ms = ahead_ms if whose == "journal" else 0
            own_ahead_ms = ahead_ms if whose == "janitor" else 0
            built.start(ahead_ms=own_ahead_ms, sweep_interval_ms=HOUR_MS, retention_interval_ms=HOUR_MS)
            key = await orphan(built, age_ms=0)
            await built.go_on(AGE_S - 1)
            assert key in await built.store.keys()
            await built.go_on(max(-ahead_ms, 0) / 1000 + 2 * HOUR_MS / 1000)
            assert key not in await built.store.keys()

    run()


@in_virtual_time
async def test_a_sweep_leaves_live_and_dead_segments() -> None:
    async with world() as built:
        built.create_topic("stays", retention_ms="-1")
        built.create_topic("goes", retention_ms="-1")
        live, dead = await built.flush("stays"), await built.flush("goes")
        await built.go_on(2 * AGE_S)
        built.takes_snapshots = False  # so that the reaper waits
        built.delete_topic("goes")
        running = built.start(**QUICK)
        await built.go_on(2 * INTERVAL_S)
        assert {live, dead} <= set(await built.store.keys())
        assert running.plan.calls["delete"] == 0


@in_virtual_time
async def test_an_object_at_another_level_than_its_segment_is_an_orphan() -> None:
    async with world() as built:
        built.create_topic("stays", retention_ms="-1")
        key = await built.flush("stays")
        (segment_id,) = (built.state.segments.id(slot) for slot in built.state.segments.by_number)
        other = await built.put(segment_id, level=1)
        built.start(**QUICK)
        await built.go_on(AGE_S - 10)
        assert {key, other} <= set(await built.store.keys())
        await built.go_on(2 * INTERVAL_S)
        assert key in await built.store.keys()
        assert other not in await built.store.keys()


@in_virtual_time
async def test_a_flusher_that_slept_cannot_commit_a_deleted_orphan() -> None:
    async with world() as built:
        built.create_topic("t", retention_ms="-1")
        built.start(**QUICK)
        command = await built.upload("t")
        await built.go_on(AGE_S + 2 * INTERVAL_S)
        assert not [key for key in await built.store.keys() if "/segments/" in key]
        (outcome,) = built.apply(command)
        assert "SEGMENT_TOO_OLD" in repr(outcome)


@in_virtual_time
async def test_unknown_keys_are_counted_and_stay() -> None:
    async with world() as built:
        strange = [
            f"{CLUSTER}/aaa",
            f"{CLUSTER}/journal/notes.txt",
            f"{CLUSTER}/segments/backup/1",
            f"{CLUSTER}/zzz/1",
        ]
        in_shard = f"{CLUSTER}/segments/003/0-not-a-ulid"
        elsewhere = ["other/segments/003/x", "tess/1", "tesu/1"]
        own = [f"{CLUSTER}/snapshots/{7:020}", f"{CLUSTER}/journal/{1:020}-{7:020}"]
        for key in (*strange, in_shard, *elsewhere, *own):
            await built.store.objects.put(key, [b"?"])
        running = built.start(**QUICK)
        await built.go_on(2 * AGE_S)
        assert {*strange, in_shard, *elsewhere, *own} <= set(await built.store.keys())
        assert running.metric("unknown_objects", where="elsewhere") == len(strange)
        assert running.metric("unknown_objects", where="segments") == 1
        assert running.plan.calls["delete"] == 0


@in_virtual_time
async def test_a_copy_of_a_segment_deeper_in_a_shard_is_unknown_and_stays() -> None:
    async with world() as built:
        copy = f"{CLUSTER}/segments/003/backup/{await orphan(built)}"
        await built.store.objects.put(copy, [b"?"])
        running = built.start(**QUICK)
        await built.go_on(INTERVAL_S)
        assert copy in await built.store.keys()
        assert running.metric("unknown_objects", where="segments") == 1


@in_virtual_time
async def test_an_orphan_that_cannot_be_deleted_does_not_end_the_sweep() -> None:
    async with world() as built:
        built.shards = range(1)  # of the first task
        stuck = await orphan(built)
        built.store.rejected = {stuck}
        built.shards = range(500, 501)
        other = await orphan(built)
        running = built.start(**QUICK)
        await built.go_on(INTERVAL_S)
        left = await built.store.keys()
        assert stuck in left
        assert other not in left
        assert running.metric("failures_total", loop="sweep") >= 1


@in_virtual_time
async def test_many_segments_do_not_hide_unknown_keys_after_them() -> None:
    async with world() as built:
        built.create_topic("t", retention_ms="-1")
        for _ in range(1_200):
            await built.flush("t")
        await built.store.objects.put(f"{CLUSTER}/tmp", [b"?"])
        running = built.start(**QUICK)
        await built.go_on(INTERVAL_S)
        assert running.metric("unknown_objects", where="elsewhere") == 1


@in_virtual_time
async def test_an_object_that_a_cleanup_left_before_the_cluster_came_back_is_deleted_when_it_is_old() -> None:
    async with world() as built:
        left = cleanup_key("", CLUSTER, "8f")
        await built.store.objects.put(left, [b"?"])
        running = built.start(**QUICK)
        await built.go_on(AGE_S - INTERVAL_S)
        assert left in await built.store.keys()
        assert running.metric("unknown_objects", where="elsewhere") == 0
        await built.go_on(2 * INTERVAL_S)
        assert left not in await built.store.keys()
        assert running.metric("deleted_objects_total", reason="orphan") == 1


@in_virtual_time
async def test_abandoned_uploads_are_aborted_when_they_are_old() -> None:
    async with world() as built:
        ours = f"{CLUSTER}/segments/003/1-abandoned"
        await built.store.objects.begin_parts(ours, PART_BYTES_MIN)
        await built.store.objects.begin_parts("other/segments/003/1-abandoned", PART_BYTES_MIN)
        running = built.start(**QUICK)
        await built.go_on(AGE_S - 10)
        assert len(await built.store.objects.unfinished(f"{CLUSTER}/")) == 1
        await built.go_on(2 * INTERVAL_S)
        assert not await built.store.objects.unfinished(f"{CLUSTER}/")
        assert len(await built.store.objects.unfinished("other/")) == 1
        assert running.metric("deleted_objects_total", reason="unfinished") == 1


@in_virtual_time
async def test_an_upload_that_cannot_be_aborted_does_not_end_the_maintenance() -> None:
    async with world() as built:
        kept, other = (f"{CLUSTER}/segments/003/1-{name}" for name in ("kept", "other"))
        for key in (kept, other):
            await built.store.objects.begin_parts(key, PART_BYTES_MIN)
        built.store.kept_uploads.add(kept)
        await built.store.objects.put(f"{CLUSTER}/zzz", [b"?"])
        running = built.start(**QUICK)
        with capture_logs() as logs:
            await built.go_on(AGE_S + 2 * INTERVAL_S)
        assert [upload.key for upload in await built.store.objects.unfinished(f"{CLUSTER}/")] == [kept]
        assert running.metric("unknown_objects", where="elsewhere") == 1
        reported = [each for each in logs if each["event"] == "upload_not_aborted"]
        assert reported
        assert {each["key"] for each in reported} == {kept}
        assert running.metric("failures_total", loop="house") == len(reported)


@in_virtual_time
async def test_a_sweep_continues_where_a_janitor_died() -> None:
    async with world() as built:
        first = built.start("janitor-1", **QUICK)
        await built.go_on(INTERVAL_S / 4)
        before = first.plan.calls["list shard"]
        assert 0 < before < SHARD_TASKS
        await built.kill("janitor-1")
        second = built.start("janitor-2", **QUICK)
        await built.go_on(0.7 * INTERVAL_S)
        assert SHARD_TASKS <= before + second.plan.calls["list shard"] <= SHARD_TASKS + 50


@in_virtual_time
async def test_a_drained_janitor_returns_its_shards_at_once() -> None:
    async with world() as built:
        built.start("janitor-1", **QUICK)
        await built.go_on(1)
        await built.stop("janitor-1")
        assert not built.state.task_leases
        assert any(isinstance(command, TakeTaskLease) for command in built.applied)


@in_virtual_time
async def test_a_drain_does_not_wait_for_sequencers_that_are_gone() -> None:
    async with world() as built:
        running = built.start("janitor-1", **QUICK)
        await built.go_on(1)
        built.is_down = True
        while not running.plan.in_flight:
            await built.go_on(0.1)
        began_s = built.clock.monotonic_s()
        await built.stop("janitor-1")
        assert built.clock.monotonic_s() - began_s <= 5


@in_virtual_time
async def test_a_drain_does_not_wait_for_servers_that_hang() -> None:
    async def hang(_subscription: MemorySubscription) -> None:
        await asyncio.Event().wait()

    async with world() as built:
        built.start("janitor-1", **QUICK)
        await built.go_on(1)
        began_s = built.clock.monotonic_s()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(MemorySubscription, "unsubscribe", hang)
            async with asyncio.timeout(60):
                await built.stop("janitor-1")
        assert built.clock.monotonic_s() - began_s <= 5


@pytest.mark.parametrize("wrong", ["another journal", "no marker", "another prefix"])
def test_in_a_wrong_bucket_a_janitor_does_nothing(wrong: str) -> None:
    @in_virtual_time
    async def run() -> None:
        async with world() as built:
            keys = await _orphan_and_dead_segment(built)
            if wrong == "another journal":
                await built.write_marker(Identity(built.identity.stream, "2025-05-05T05:05:05Z"))
            else:
                await built.store.objects.delete([marker_key(CLUSTER)])
            if wrong == "another prefix":
                await built.store.objects.put(f"backup/{marker_key(CLUSTER)}", [b"{}"])
            running = built.start(**QUICK)
            await built.go_on(2 * AGE_S)
            assert set(keys) <= set(await built.store.keys())
            assert not running.plan.calls["delete"]
            assert not [command for command in built.applied if isinstance(command, TakeTaskLease)]
            for loop in ("reaper", "retention", "sweep", "house"):
                assert "this is not the store of cluster test, and nothing in it is touched" in running.degraded[loop]
            await built.write_marker(built.identity)
            await built.go_on(GRACE_S + 2 * INTERVAL_S)
            assert not set(keys) & set(await built.store.keys())
            assert not any(running.degraded.values())

    run()


@in_virtual_time
async def test_after_the_marker_names_another_journal_nothing_is_deleted() -> None:
    async with world() as built:
        running = built.start(**QUICK)
        await built.go_on(10)
        await built.write_marker(Identity(built.identity.stream, "2027-07-07T07:07:07Z"))
        keys = await _orphan_and_dead_segment(built)
        await built.go_on(2 * AGE_S)
        assert set(keys) <= set(await built.store.keys())
        assert "nothing in it is touched" in running.degraded["sweep"]


@in_virtual_time
async def test_with_a_damaged_marker_nothing_is_deleted() -> None:
    async with world() as built:
        await built.store.objects.delete([marker_key(CLUSTER)])
        await built.store.objects.put(marker_key(CLUSTER), [b"?"])
        keys = await _orphan_and_dead_segment(built)
        running = built.start(**QUICK)
        await built.go_on(2 * AGE_S)
        assert set(keys) <= set(await built.store.keys())
        assert "does not name a journal" in running.degraded["reaper"]


@in_virtual_time
async def test_a_dry_run_logs_all_deletions_and_changes_nothing() -> None:
    async with world() as built:
        keys = await _orphan_and_dead_segment(built)
        built.applied.clear()
        running = built.start(dry_run=True, **QUICK)
        with capture_logs() as lines:
            await built.go_on(2 * AGE_S)
        assert set(keys) <= set(await built.store.keys())
        assert built.applied == []
        assert not running.plan.calls["delete"]
        logged = [line["key"] for line in lines if line["event"] == "object_would_be_deleted"]
        assert sorted(logged) == sorted(keys), "each key must be logged once"
        assert running.metric("bytes", state="orphaned") == SEGMENT_BYTES


@in_virtual_time
async def test_beside_a_dry_run_another_janitor_deletes() -> None:
    async with world() as built:
        keys = await _orphan_and_dead_segment(built)
        built.start("janitor-1", dry_run=True, **QUICK)
        await built.go_on(INTERVAL_S)
        built.start("janitor-2", **QUICK)
        await built.go_on(GRACE_S + 2 * INTERVAL_S)
        assert not set(keys) & set(await built.store.keys())


async def _orphan_and_dead_segment(built: World) -> list[str]:
    """Make an orphan and a dead segment; return their keys."""
    old = await orphan(built)
    built.create_topic("gone")
    dead = await built.flush("gone")
    built.delete_topic("gone")
    await built.go_on(2)
    built.tick()
    return [old, dead]


class OneLease:
    """The leases of a janitor that gets one task. Then another janitor has all tasks."""

    def __init__(self, number: int) -> None:
        self._numbers = [number]

    async def take(self, kind: TaskKind, count: int = 1) -> LeasedTasks:
        numbers, self._numbers = self._numbers, []
        return LeasedTasks(kind, numbers, START_MS, START_MS)

    async def renew(self, leased: LeasedTasks) -> None:
        """Nothing takes the task."""

    async def end(self, leased: LeasedTasks, *, done: bool) -> None:
        """The task ends."""


class AnsweringSequencers:
    """Sequencers with one answer to all questions."""

    def __init__(self, view: JournalView) -> None:
        self._view = view

    async def query(self, *_: object) -> JournalView:
        return self._view


async def lone(store: MemoryStore, registry: CollectorRegistry, clock: ManualClock, task: int) -> dict[str, Any]:
    """The parts of a loop that gets one task, without a janitor around it."""
    metrics, marked = JanitorMetrics(registry), Identity("journal", "2026-01-01T00:00:00Z")
    sequencers: Any = AnsweringSequencers(JournalView(1, marked.stream, marked.created))
    await store.put(marker_key(CLUSTER), [msgspec.json.encode(marked)])
    return {
        "cluster": CLUSTER,
        "store": store,
        "guard": Guard(store, sequencers, CLUSTER),
        "tasks": OneLease(task),
        "deleter": Deleter(store=store, metrics=metrics, set_degraded=lambda _name, _reason: None, dry_run=False),
        "rules": Rules(0),
        "clock": clock,
        "metrics": metrics,
        "interval_s": INTERVAL_S,
    }


async def lone_sweep(store: MemoryStore, registry: CollectorRegistry, clock: ManualClock) -> Sweep:
    parts = await lone(store, registry, clock, 3)
    sequencers: Any = None  # only suspects need it
    return Sweep(**parts, sequencers=sequencers, draining=asyncio.Event(), limits=SweepLimits())


def unknown(registry: CollectorRegistry, where: str) -> float | None:
    return registry.get_sample_value("penstock_janitor_unknown_objects", {"where": where})


@pytest.mark.parametrize(("where", "key"), [("segments", "segments/003/strange"), ("elsewhere", "strange")])
async def test_unknown_objects_leave_the_metric_when_another_janitor_may_count_them(where: str, key: str) -> None:
    store, registry, clock = MemoryStore(), CollectorRegistry(), ManualClock()
    await store.put(f"{CLUSTER}/{key}", [b"?"])
    loop: Sweep | StoreMaintenance
    if where == "segments":
        loop = await lone_sweep(store, registry, clock)
    else:
        loop = StoreMaintenance(**await lone(store, registry, clock, MAINTENANCE_TASK))
    counts = []
    for _ in range(4):
        await loop.step()
        counts.append(unknown(registry, where))
        clock.now_s += INTERVAL_S
    assert counts == [1, 1, 1, 0]


async def test_a_sweep_logs_some_of_many_unknown_keys_and_counts_all() -> None:
    store, registry = MemoryStore(), CollectorRegistry()
    for number in range(LOGGED_MAX + 10):
        await store.put(f"{CLUSTER}/segments/003/strange-{number:02}", [b"?"])
    sweep = await lone_sweep(store, registry, ManualClock())
    with capture_logs() as logs:
        await sweep.step()
    assert unknown(registry, "segments") == LOGGED_MAX + 10
    assert len([each for each in logs if each["event"] == "object_unknown"]) == LOGGED_MAX

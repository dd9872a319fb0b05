"""Dead segments: they stay for a grace by two clocks, then janitors delete them in batches and remove them."""

import itertools

from structlog.testing import capture_logs

from penstock.contracts.commands import RemoveSegments
from penstock_janitor.rules.journal import Identity
from tests.testkit.fakes.virtual_time import in_virtual_time
from tests.unit.janitor.janitor_world import GRACE_S, HOUR_MS, MINUTE_MS, World, world

SLACK_S = 130.0  # two searches of the reaper


async def mark_dead(built: World, count: int = 1, name: str = "gone") -> list[str]:
    """Make segments of a topic, and delete the topic; return the keys."""
    built.create_topic(name)
    keys = [await built.flush(name) for _ in range(count)]
    built.delete_topic(name)
    await built.go_on(1)
    built.tick()
    assert built.state.segments.dead_count >= count
    return keys


@in_virtual_time
async def test_a_dead_segment_is_deleted_after_the_grace_and_then_removed() -> None:
    async with world() as built:
        running = built.start()
        (key,) = await mark_dead(built)
        await built.go_on(GRACE_S - 5)
        assert key in await built.store.keys()
        await built.go_on(SLACK_S)
        assert key not in await built.store.keys()
        assert len(built.state.segments) == 0
        assert running.metric("deleted_objects_total", reason="condemned") == 1


@in_virtual_time
async def test_a_rejected_removal_is_reported_and_sent_again() -> None:
    async with world() as built:
        running = built.start()
        built.rejects = (RemoveSegments,)
        await mark_dead(built)
        await built.go_on(GRACE_S + SLACK_S)
        assert "INVALID_REQUEST" in running.degraded["reaper"]
        assert len(built.state.segments) == 1
        built.rejects = ()
        await built.go_on(SLACK_S)
        assert running.degraded["reaper"] == ""
        assert len(built.state.segments) == 0


@in_virtual_time
async def test_live_segments_stay() -> None:
    async with world() as built:
        built.start()
        built.create_topic("stays", retention_ms="-1")
        kept = await built.flush("stays")
        built.create_topic("goes")
        shared = await built.flush("stays", "goes")
        built.delete_topic("goes")
        await built.go_on(GRACE_S + 3 * HOUR_MS / 1000)
        assert {kept, shared} <= set(await built.store.keys())


@in_virtual_time
async def test_a_new_janitor_waits_for_a_grace_by_its_monotonic_clock() -> None:
    async with world() as built:
        (key,) = await mark_dead(built)
        await built.go_on(2 * GRACE_S)
        built.start()
        await built.go_on(GRACE_S - 5)
        assert key in await built.store.keys()
        await built.go_on(SLACK_S)
        assert key not in await built.store.keys()


@in_virtual_time
async def test_a_journal_clock_that_jumps_ahead_deletes_nothing_early() -> None:
    async with world() as built:
        built.start()
        await built.go_on(GRACE_S + 10)
        (key,) = await mark_dead(built)
        built.journal_ahead_ms = 5 * HOUR_MS
        await built.go_on(GRACE_S - 70)
        assert key in await built.store.keys()
        await built.go_on(SLACK_S + 70)
        assert key not in await built.store.keys()


@in_virtual_time
async def test_while_the_journal_clock_stands_still_a_dead_segment_stays() -> None:
    async with world() as built:
        built.start()
        built.journal_ahead_ms = 3 * HOUR_MS
        (key,) = await mark_dead(built)
        built.journal_ahead_ms = 0
        await built.go_on(2 * GRACE_S)
        assert key in await built.store.keys()
        await built.go_on(3 * HOUR_MS / 1000)
        assert key not in await built.store.keys()


@in_virtual_time
async def test_a_wrong_wall_clock_of_a_janitor_changes_no_deletion() -> None:
    for ahead_ms in (-7 * HOUR_MS, 7 * HOUR_MS):
        async with world() as built:
            built.start(ahead_ms=ahead_ms)
            (key,) = await mark_dead(built)
            await built.go_on(GRACE_S - 5)
            assert key in await built.store.keys()
            await built.go_on(SLACK_S)
            assert key not in await built.store.keys()


@in_virtual_time
async def test_a_dead_segment_waits_until_two_snapshots_include_its_last_change() -> None:
    async with world() as built:
        built.start()
        built.takes_snapshots = False
        (key,) = await mark_dead(built)
        await built.go_on(3 * GRACE_S)
        assert key in await built.store.keys()
        built.takes_snapshots = True
        await built.go_on(SLACK_S)
        assert key not in await built.store.keys()


@in_virtual_time
async def test_dead_segments_are_deleted_a_thousand_at_a_time() -> None:
    async with world() as built:
        built.start()
        keys = await mark_dead(built, 2_300)
        await built.go_on(GRACE_S + SLACK_S)
        assert not set(keys) & set(await built.store.keys())
        assert sorted(built.store.deleted) == sorted(keys)
        assert len(built.store.delete_times_s) == 3


@in_virtual_time
async def test_a_dry_run_logs_all_dead_segments_a_thousand_at_a_time() -> None:
    async with world() as built:
        built.start(dry_run=True)
        keys = await mark_dead(built, 2_300)
        with capture_logs() as logs:
            await built.go_on(GRACE_S + 3 * SLACK_S)
        logged = [line["key"] for line in logs if line["event"] == "object_would_be_deleted"]
        assert sorted(logged) == sorted(keys)
        assert built.store.deleted == []


@in_virtual_time
async def test_without_failures_several_janitors_delete_no_key_twice() -> None:
    async with world() as built:
        janitors = [built.start(f"janitor-{number}", reap_interval_ms=10_000) for number in range(3)]
        keys = await mark_dead(built, 1_500)
        await built.go_on(GRACE_S + SLACK_S)
        more = await mark_dead(built, 700, "gone-too")
        await built.go_on(GRACE_S + SLACK_S)
        assert sorted(built.store.deleted) == sorted(keys + more)
        assert sum(each.metric("deleted_objects_total", reason="condemned") for each in janitors) == 2_200


@in_virtual_time
async def test_after_a_partial_failure_deleted_segments_are_removed_and_the_others_retried() -> None:
    async with world() as built:
        running = built.start()
        keys = await mark_dead(built, 10)
        built.store.rejected = {keys[0], keys[7]}
        await built.go_on(GRACE_S + SLACK_S)
        assert set(keys) & set(await built.store.keys()) == built.store.rejected
        assert len(built.state.segments) == 2
        assert "access denied" in running.degraded["deletion"]
        built.store.rejected = set()
        await built.go_on(2 * SLACK_S)
        assert not set(keys) & set(await built.store.keys())
        assert len(built.state.segments) == 0
        assert running.degraded["deletion"] == ""


@in_virtual_time
async def test_keys_that_cannot_be_deleted_do_not_block_others() -> None:
    async with world() as built:
        built.start()
        stuck = await mark_dead(built, 1_000, "stuck")
        built.store.rejected = set(stuck)
        keys = await mark_dead(built, 20)
        await built.go_on(GRACE_S + 4 * SLACK_S)
        assert not set(keys) & set(await built.store.keys())


@in_virtual_time
async def test_a_throttling_store_gets_requests_at_growing_intervals() -> None:
    async with world() as built:
        built.start(reap_interval_ms=1_000)
        keys = await mark_dead(built)
        built.store.throttled = 8
        await built.go_on(GRACE_S + 2_000)
        assert not set(keys) & set(await built.store.keys())
        times_s = built.store.delete_times_s
        pauses_s = [later - sooner for sooner, later in itertools.pairwise(times_s)]
        assert len(times_s) == 9
        assert min(pauses_s) >= 0.5
        assert max(pauses_s) >= 60


@in_virtual_time
async def test_another_journal_begins_the_grace_again() -> None:
    async with world() as built:
        built.start()
        await built.go_on(GRACE_S + 10)
        (key,) = await mark_dead(built)
        built.identity = Identity(built.identity.stream, "2026-02-02T00:00:00Z")
        await built.write_marker(built.identity)
        built.journal_ahead_ms = HOUR_MS
        await built.go_on(GRACE_S - 10)
        assert key in await built.store.keys()
        await built.go_on(SLACK_S)
        assert key not in await built.store.keys()


@in_virtual_time
async def test_the_marker_is_checked_before_each_batch() -> None:
    async with world() as built:
        running = built.start(sweep_interval_ms=24 * HOUR_MS)  # so that no other loop checks the marker in between
        (key,) = await mark_dead(built)
        await built.go_on(GRACE_S - 10)
        await built.write_marker(Identity(built.identity.stream, "2026-02-02T00:00:00Z"))
        await built.go_on(SLACK_S)
        assert key in await built.store.keys()
        assert "nothing in it is touched" in running.degraded["reaper"]
        assert not built.state.leases


@in_virtual_time
async def test_without_sequencers_deletion_waits() -> None:
    async with world() as built:
        running = built.start()
        (key,) = await mark_dead(built)
        built.is_down = True
        await built.go_on(GRACE_S + SLACK_S)
        assert "no sequencer answered" in running.degraded["reaper"]
        assert key in await built.store.keys()
        built.is_down = False
        await built.go_on(GRACE_S + SLACK_S)
        assert key not in await built.store.keys()


@in_virtual_time
async def test_the_metrics_are_the_figures_of_the_journal() -> None:
    async with world() as built:
        running = built.start(reap_interval_ms=1_000)
        built.create_topic("stays")
        built.create_topic("goes")
        await built.flush("stays", "goes")
        await built.flush("goes")
        built.delete_topic("goes")
        await built.go_on(5)
        assert running.metric("bytes", state="live") == 100
        assert running.metric("bytes", state="dead") == 100
        assert running.metric("bytes", state="condemned") == 100
        assert running.metric("segments", state="live") == 1
        assert running.metric("segments", state="condemned") == 1
        await built.go_on(MINUTE_MS / 1000)
        assert 60 <= running.metric("condemned_seconds") <= 70

"""Retention: one janitor at a time expires records that are too old or too many, in bounded commands."""

import pytest
from structlog.testing import capture_logs

from penstock.contracts.commands import DropExtents, ExpireLogs, TakeTaskLease
from penstock_janitor import retention
from penstock_sequencer.core.state.limits import AnswerLimits, Limits, LogLimits
from tests.testkit.fakes.virtual_time import in_virtual_time
from tests.unit.janitor.janitor_world import GRACE_S, HOUR_MS, MINUTE_MS, CrashPlan, World, world

SEARCH_S = 30.0
TWO_LOGS = Limits(log=LogLimits(logs_per_command_max=2))  # in one answer


@in_virtual_time
async def test_old_records_expire_within_one_search_and_their_object_is_deleted_after_the_grace() -> None:
    async with world() as built:
        running = built.start()
        topic_id = built.create_topic("t", retention_ms=str(HOUR_MS))
        first, second = await built.flush("t"), await built.flush("t", timestamp_ms=built.clock.now_ms() + HOUR_MS)
        await built.go_on(HOUR_MS / 1000 - 1)
        assert _log_start(built, topic_id) == 0
        await built.go_on(2 + SEARCH_S)
        assert _log_start(built, topic_id) == 1
        assert running.metric("dropped_extents_total") == 1
        assert running.metric("dropped_bytes_total") == 100
        await built.go_on(GRACE_S + 120)
        assert first not in await built.store.keys()
        assert second in await built.store.keys()


@in_virtual_time
async def test_a_rejected_expiry_is_reported_and_sent_again() -> None:
    async with world() as built:
        running = built.start()
        built.rejects = (ExpireLogs,)
        topic_id = built.create_topic("t", retention_bytes="100")
        for _ in range(2):
            await built.flush("t")
        await built.go_on(SEARCH_S)
        assert "INVALID_REQUEST" in running.degraded["retention"]
        assert _log_start(built, topic_id) == 0
        built.rejects = ()
        await built.go_on(2 * SEARCH_S)
        assert running.degraded["retention"] == ""
        assert _log_start(built, topic_id) == 1


@in_virtual_time
async def test_records_beyond_the_byte_limit_expire_from_the_start_of_the_log() -> None:
    async with world() as built:
        built.start()
        topic_id = built.create_topic("t", retention_bytes="300")
        for _ in range(10):
            await built.flush("t")
        await built.go_on(SEARCH_S)
        assert _log_start(built, topic_id) == 7


@in_virtual_time
async def test_a_changed_configuration_counts_at_the_next_search() -> None:
    async with world() as built:
        built.start()
        topic_id = built.create_topic("t", retention_ms="-1")
        await built.flush("t")
        await built.go_on(2 * HOUR_MS / 1000)
        assert _log_start(built, topic_id) == 0
        built.alter("t", retention_ms="1000")
        await built.go_on(SEARCH_S)
        assert _log_start(built, topic_id) == 1


@in_virtual_time
async def test_a_janitor_whose_clock_is_ahead_expires_nothing_early() -> None:
    async with world() as built:
        built.start(ahead_ms=24 * HOUR_MS)
        topic_id = built.create_topic("t", retention_ms=str(HOUR_MS))
        await built.flush("t")
        await built.go_on(HOUR_MS / 1000 - 1)
        assert _log_start(built, topic_id) == 0
        await built.go_on(2 + SEARCH_S)
        assert _log_start(built, topic_id) == 1


@in_virtual_time
async def test_a_janitor_whose_clock_is_behind_expires_records_by_its_own_clock() -> None:
    async with world() as built:
        built.start(ahead_ms=-HOUR_MS)
        topic_id = built.create_topic("t", retention_ms=str(HOUR_MS))
        await built.flush("t")
        await built.go_on(2 * HOUR_MS / 1000 - 1)
        assert _log_start(built, topic_id) == 0
        await built.go_on(2 + SEARCH_S)
        assert _log_start(built, topic_id) == 1


@in_virtual_time
async def test_a_journal_clock_that_jumps_ahead_expires_nothing_early_and_is_reported() -> None:
    async with world() as built:
        running = built.start()
        topic_id = built.create_topic("t", retention_ms=str(HOUR_MS))
        first = await built.flush("t")
        await built.go_on(SEARCH_S)
        assert not running.degraded.get("clock")
        with capture_logs() as lines:
            built.journal_ahead_ms = 8 * 24 * HOUR_MS
            await built.go_on(10 * SEARCH_S)
        assert running.degraded["clock"].startswith("the journal's clock is 11520 min ahead")
        assert running.metric("clock_ahead_seconds") == 8 * 24 * HOUR_MS / 1000
        assert len([line for line in lines if line["event"] == "clocks_disagree"]) == 1
        await built.go_on(GRACE_S + 120)
        assert _log_start(built, topic_id) == 0
        assert first in await built.store.keys()
        await built.go_on(HOUR_MS / 1000)
        assert _log_start(built, topic_id) == 1, "the records did not expire by the janitor's own clock"


@in_virtual_time
async def test_without_overdue_records_no_command_is_sent() -> None:
    async with world() as built:
        built.create_topic("t")
        await built.flush("t")
        built.applied.clear()
        built.start(sweep_interval_ms=24 * HOUR_MS)
        await built.go_on(HOUR_MS / 1000)
        assert not [each for each in built.applied if isinstance(each, ExpireLogs | DropExtents)]
        assert not [
            each for each in built.applied if isinstance(each, TakeTaskLease) and each.first == retention.KIND.first
        ]


@in_virtual_time
async def test_extents_expire_two_thousand_at_a_time() -> None:
    async with world() as built:
        topic_id = built.create_topic("t", retention_ms="1000")
        for _ in range(5_500):
            await built.flush("t")
        await built.go_on(2)
        built.applied.clear()
        with capture_logs() as lines:
            running = built.start()
            await built.go_on(1)
        assert _log_start(built, topic_id) == 5_500
        assert len([each for each in built.applied if isinstance(each, ExpireLogs)]) == 3
        assert running.metric("dropped_extents_total") == 5_500
        (logged,) = [line for line in lines if line["event"] == "records_expired"]
        assert logged == {
            "event": "records_expired",
            "log_level": "info",
            "logs": 1,
            "extents": 5_500,
            "bytes": 550_000,
        }


@in_virtual_time
async def test_topics_beyond_the_limit_of_a_query_follow_in_the_next() -> None:
    async with world(core_limits=Limits(answers=AnswerLimits(overdue_topics_asked_max=3))) as built:
        topic_ids = [built.create_topic(f"t{number}", retention_ms="1000") for number in range(8)]
        for number in range(8):
            await built.flush(f"t{number}")
        running = built.start()
        await built.go_on(SEARCH_S + 5)
        assert [_log_start(built, topic_id) for topic_id in topic_ids] == [1] * 8
        assert running.plan.calls["retention"] == 6, "each search takes three queries"


@pytest.mark.parametrize("dry_run", [False, True])
def test_logs_beyond_the_limit_of_an_answer_follow_in_the_next(dry_run: bool) -> None:
    @in_virtual_time
    async def run() -> None:
        async with world(core_limits=TWO_LOGS) as built:
            large = built.create_topic("large", partitions=5, retention_ms="1000")
            small = built.create_topic("small", retention_ms="1000")
            for partition in range(5):
                await built.flush("large", partition=partition)
            await built.flush("small")
            await built.go_on(3)
            with capture_logs() as lines:
                built.start(dry_run=dry_run)
                await built.go_on(SEARCH_S - 5)
            logged = [line for line in lines if line["event"] == "records_would_expire"]
            starts = [_log_start(built, large, partition) for partition in range(5)] + [_log_start(built, small)]
            assert starts == [0 if dry_run else 1] * 6
            assert bool(logged) == dry_run

    run()


@pytest.mark.parametrize("dry_run", [False, True])
def test_a_search_that_expires_nothing_ends_although_answers_change(dry_run: bool) -> None:
    """Another janitor has the task, or this is a dry run. Each answer differs from the one before."""

    @in_virtual_time
    async def run() -> None:
        async with world(core_limits=TWO_LOGS) as built:
            built.create_topic("large", partitions=5, retention_ms="1000")
            for partition in range(5):
                await built.flush("large", partition=partition)
            await built.go_on(3)
            built.apply(TakeTaskLease(0, "another", retention.KIND.first, retention.KIND.stop, 0, 600_000))
            built.query_step_ms = 7
            running = built.start(ahead_ms=HOUR_MS, plan=CrashPlan("retention", 50), dry_run=dry_run)
            await built.go_on(SEARCH_S - 5)
            assert running.plan.calls["retention"] == 2

    run()


@in_virtual_time
async def test_only_one_of_several_janitors_expires_records() -> None:
    async with world() as built:
        topic_id = built.create_topic("t", retention_ms="1000")
        for _ in range(10):
            await built.flush("t")
        await built.go_on(2)
        built.applied.clear()
        for number in range(3):
            built.start(f"janitor-{number}")
        await built.go_on(SEARCH_S - 5)
        assert _log_start(built, topic_id) == 10
        assert len([each for each in built.applied if isinstance(each, ExpireLogs)]) == 1


@in_virtual_time
async def test_deleted_topics_are_dropped_faster_than_by_ticks() -> None:
    async with world() as built:
        built.create_topic("t")
        for _ in range(6_500):
            await built.flush("t")
        built.delete_topic("t")
        running = built.start()
        await built.go_on(0.5)
        assert len(built.state.pending_delete) == 0
        assert running.metric("dropped_extents_total") >= 2_000


@in_virtual_time
async def test_deleted_topics_are_removed_when_their_window_is_over_by_both_clocks() -> None:
    async with world() as built:
        built.create_topic("t", penstock_undelete_window_ms=str(HOUR_MS))
        built.delete_topic("t")
        built.start()
        built.journal_ahead_ms = 24 * HOUR_MS
        await built.go_on(HOUR_MS / 1000 - 1)
        assert len(built.state.recoverable) == 1
        await built.go_on(2 + SEARCH_S)
        assert not built.state.recoverable


@in_virtual_time
async def test_the_retention_lag_is_the_overdue_time_of_the_oldest_records() -> None:
    async with world() as built:
        built.create_topic("t", retention_ms=str(MINUTE_MS))
        await built.flush("t")
        await built.go_on(11 * 60)
        running = built.start()
        await built.go_on(1)
        assert 599 <= running.metric("retention_lag_seconds") <= 601
        assert running.metric("overdue_bytes") == 100
        await built.go_on(SEARCH_S)
        assert running.metric("retention_lag_seconds") == 0


@in_virtual_time
async def test_below_the_level_of_janitors_a_janitor_waits() -> None:
    async with world(level=1) as built:
        built.create_topic("t")
        running = built.start()
        await built.go_on(100)
        assert "level 2" in running.degraded["sweep"]
        built.raise_level(2)
        await built.go_on(120)
        assert not any(running.degraded.values())


def _log_start(built: World, topic_id: bytes, partition: int = 0) -> int:
    start: int = built.state.topics_by_id[topic_id].partitions[partition].log_start_offset
    return start

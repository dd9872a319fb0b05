"""Jobs of the compactor: a job replaces its inputs by outputs, or changes nothing. No record is lost."""

import asyncio
import subprocess
import sys
import threading
from pathlib import Path

import msgspec
import pytest
from structlog.testing import capture_logs

from penstock.contracts.commands import LeaseJob, ReleaseJob, ReplaceExtents
from penstock.contracts.errors import Unavailable
from penstock.contracts.queries.topics import MetadataQuery, MetadataView
from penstock.runtime.clock import SystemClock
from penstock_compactor.app import CompactorLimits
from penstock_compactor.jobs.job_client import NotLeased
from penstock_compactor.keys.limits import KeyWorkLimits
from penstock_compactor.merge.work import MergeLimits
from penstock_compactor.planning.planner import Choice, Kind, PlanLimits
from penstock_compactor.service import LoopLimits
from tests.testkit.waiting import TIMEOUT_S, until
from tests.unit.compactor.compactor_world import World, WrongClock, while_running

MINUTE_MS = 60_000
DAY_MS = 24 * 60 * MINUTE_MS


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def everything(world: World) -> Choice:
    return Choice(Kind.FLUSHED, world.segments())


async def test_a_job_replaces_many_extents_by_one(world: World) -> None:
    topic_id = world.create_topic(1, partitions=2)
    for number in range(5):
        world.flush((topic_id, 0, [f"a{number}"]), (topic_id, 1, [f"b{number}", "c"]))
    ended = await world.merging().merge(everything(world), ())
    assert ended.is_complete and ended.accepted == 2
    assert [len(world.extents(topic_id, number)) for number in (0, 1)] == [1, 1]
    assert world.levels() == [1]
    world.check_all_readable()


@pytest.mark.parametrize("ahead_ms", [16 * MINUTE_MS, -16 * MINUTE_MS, 30 * DAY_MS, -30 * DAY_MS])
async def test_outputs_are_born_by_the_journals_clock_when_the_wall_clock_is_wrong(world: World, ahead_ms: int) -> None:
    topic_id = world.create_topic(1)
    world.flush((topic_id, 0, ["a"]))
    world.clock = WrongClock(ahead_ms)
    ended = await world.merging().merge(everything(world), ())
    assert (ended.accepted, ended.rejected) == (1, 0)
    world.check_all_readable()


async def test_a_job_lease_lasts_as_long_as_its_job(world: World) -> None:
    topic_id = world.create_topic(1)
    world.flush((topic_id, 0, ["a"]))
    async with world.client().leased(everything(world).segment_ids):
        assert [segment.leased for segment in world.segments()] == [True]
        with pytest.raises(NotLeased):
            await world.merging("compactor-2").merge(everything(world), ())
    assert [segment.leased for segment in world.segments()] == [False]
    assert [type(each) for each in world.machine.sent] == [LeaseJob, LeaseJob, ReleaseJob]


async def test_the_job_lease_of_a_dead_compactor_expires(world: World) -> None:
    topic_id = world.create_topic(1)
    world.flush((topic_id, 0, ["a"]))
    async with world.client().leased(everything(world).segment_ids):
        world.machine.is_down = True  # so that the lease is not released, as after a crash
    world.machine.is_down = False
    assert [segment.leased for segment in world.segments()] == [True]
    world.machine.pass_time(world.limits.jobs.lease_ms + 1)
    assert (await world.merging("compactor-2").merge(everything(world), ())).is_complete


async def test_after_a_lost_answer_the_same_command_is_sent_again(world: World) -> None:
    topic_id = world.create_topic(1)
    for _ in range(3):
        world.flush((topic_id, 0, ["a"]))
    world.machine.lost_answers = {ReplaceExtents}
    assert (await world.merging().merge(everything(world), ())).accepted == 1
    first, second = (each for each in world.machine.sent if isinstance(each, ReplaceExtents))
    assert first is second
    assert world.levels() == [1]
    world.check_all_readable()


async def test_the_output_of_a_deleted_topic_is_rejected_and_the_others_are_committed(world: World) -> None:
    kept, gone = world.create_topic(1), world.create_topic(2)
    for _ in range(2):
        world.flush((kept, 0, ["a"]), (gone, 0, ["b"]))
    choice = everything(world)
    world.spark.before_collect = lambda: world.delete_topic(2)
    ended = await world.merging().merge(choice, ())
    assert (ended.accepted, ended.rejected) == (1, 1)
    assert world.metric("runs_total", result="unknown_topic") == 1
    world.check_all_readable()


async def test_a_damaged_segment_is_not_replaced(world: World) -> None:
    topic_id = world.create_topic(1)
    damaged = [world.flush((topic_id, 0, ["a"])) for _ in range(3)][1]
    world.damage(damaged)
    ended = await world.merging().merge(everything(world), ())
    assert [failed.kind for failed in ended.failures] == ["Corrupt"]
    assert world.levels() == [0, 0, 0]
    assert world.metric("task_failures_total", kind="Corrupt") == 1


async def test_a_job_whose_spark_fails_changes_nothing_and_releases_its_lease(world: World) -> None:
    topic_id = world.create_topic(1)
    world.flush((topic_id, 0, ["a"]))

    def break_down() -> None:
        raise ConnectionError("the JVM is gone\nand a stack trace of Java")

    world.spark.before_collect = break_down
    with pytest.raises(Unavailable, match=r"the JVM is gone$"):
        await world.merging().merge(everything(world), ())
    assert world.levels() == [0]
    assert not world.machine.state.leases


async def test_a_job_that_spark_does_not_end_in_time_fails_and_releases_its_lease(world: World) -> None:
    """As on a master without workers. Else the lease would keep the segments from all other compactors for ever."""
    topic_id = world.create_topic(1)
    world.flush((topic_id, 0, ["a"]))
    is_cancelled = threading.Event()

    def hang() -> None:
        assert is_cancelled.wait(30)
        raise ConnectionError("cancelled")

    world.spark.before_collect = hang
    world.spark.on_cancel = is_cancelled.set
    world.limits = CompactorLimits(merge=MergeLimits(merge_deadline_s=0.05))
    with pytest.raises(Unavailable, match="did not end the job within"):
        await world.merging().merge(everything(world), ())
    assert world.levels() == [0]
    assert not world.machine.state.leases


async def test_a_session_that_does_not_end_does_not_delay_the_end_of_the_process(world: World) -> None:
    """A Spark cluster may take long to end an application."""
    may_end, has_ended = threading.Event(), threading.Event()

    def end(_session: object) -> None:
        assert may_end.wait(TIMEOUT_S)
        has_ended.set()

    runner = world.runner(close_session=end, close_s=0.01)
    assert await runner.run("group", lambda _session: "result") == "result"
    with capture_logs() as lines:
        await runner.close()
    assert [line["event"] for line in lines] == ["spark_session_left"] and not has_ended.is_set()
    may_end.set()
    await until(has_ended.is_set)


async def test_too_many_outputs_for_one_command_are_sent_in_several(world: World) -> None:
    topic_ids = [world.create_topic(number) for number in range(1, 6)]
    world.flush(*((topic_id, 0, ["a"]) for topic_id in topic_ids))
    await world.merging().merge(everything(world), ())
    world.limits = CompactorLimits(merge=MergeLimits(outputs_per_command_max=2))
    ended = await world.merging().merge(Choice(Kind.MIXED, world.segments()), ())
    assert ended.is_complete and world.levels() == [2] * 5
    assert [len(each.outputs) for each in world.machine.sent if isinstance(each, ReplaceExtents)] == [1, 2, 2, 1]
    world.check_all_readable()


async def test_a_compactor_merges_until_no_job_is_due(world: World) -> None:
    topics = [world.create_topic(number) for number in (1, 2)]
    compactor = world.compactor()

    async def work() -> None:
        for _ in range(3):
            await until(lambda: 0 not in world.levels())
            for number in range(3):
                world.flush(*((topic_id, 0, [str(number)]) for topic_id in topics))
        await until(lambda: world.levels() == [2, 2])

    await while_running([compactor], work)
    world.check_all_readable()
    assert len(world.sessions) == 1, "all jobs share one session"
    assert not world.machine.state.leases


async def test_two_compactors_share_the_work(world: World) -> None:
    topic_id = world.create_topic(1)
    for number in range(40):
        world.flush((topic_id, 0, [str(number)]))
    compactors = [world.compactor("compactor-1", jobs_max=1), world.compactor("compactor-2", jobs_max=1)]

    async def work() -> None:
        await until(lambda: 0 not in world.levels())

    await while_running(compactors, work)
    world.check_all_readable()
    assert world.metric("runs_total", result="extents_changed") == 0, "a segment was merged twice"


async def test_a_damaged_segment_does_not_block_the_merge_of_others(world: World) -> None:
    topic_id = world.create_topic(1)
    world.damage(world.flush((topic_id, 0, ["a"])))
    for _ in range(2):
        world.flush((topic_id, 0, ["a"]))

    async def work() -> None:
        await until(lambda: world.metric("task_failures_total", kind="Corrupt") == 1)
        for _ in range(3):
            world.flush((topic_id, 0, ["b"]))
        await until(lambda: 1 in world.levels())

    await while_running([world.compactor()], work)
    assert world.metric("task_failures_total", kind="Corrupt") == 1, "the damaged segment was tried again at once"


async def test_a_drained_compactor_cancels_its_job_and_releases_the_lease(world: World) -> None:
    topic_id = world.create_topic(1)
    for _ in range(3):
        world.flush((topic_id, 0, ["a"]))
    compactor = world.compactor()
    loop = asyncio.get_running_loop()
    begun, go_on = asyncio.Event(), asyncio.Event()

    def wait() -> None:
        loop.call_soon_threadsafe(begun.set)
        asyncio.run_coroutine_threadsafe(go_on.wait(), loop).result()
        raise InterruptedError("cancelled by Spark")

    world.spark.before_collect = wait

    async def work() -> None:
        await begun.wait()
        draining = asyncio.create_task(compactor.drain())
        await until(lambda: world.spark.cancelled)
        go_on.set()
        await draining
        assert not world.machine.state.leases

    await while_running([compactor], work)
    assert world.levels() == [0, 0, 0]
    assert set(world.spark.cancelled) == set(world.spark.groups)


@pytest.mark.parametrize("turns", range(6))
async def test_a_job_that_is_cancelled_after_its_commit_releases_its_lease(world: World, turns: int) -> None:
    """At each turn of the loop from the commit on. The sequencers hold a lease for a minute."""
    topic_id = world.create_topic(1)
    world.flush((topic_id, 0, ["a"]))
    merging = asyncio.create_task(world.merging().merge(everything(world), ()))
    while not any(isinstance(each, ReplaceExtents) for each in world.machine.sent):
        await asyncio.sleep(0)
    for _ in range(turns):
        await asyncio.sleep(0)
    merging.cancel()
    await asyncio.wait([merging])
    assert world.levels() == [1]
    assert not world.machine.state.leases


async def test_without_spark_a_compactor_is_degraded_and_starts_no_job(world: World) -> None:
    world.limits = CompactorLimits(loop=LoopLimits(unavailable_check_s=0.01))
    world.missing = "there is no Java"
    topic_id = world.create_topic(1)
    for _ in range(3):
        world.flush((topic_id, 0, ["a"]))

    async def work() -> None:
        await until(lambda: world.degraded.get("spark") == "there is no Java")
        assert not world.machine.sent
        world.missing = ""
        await until(lambda: world.levels() == [1])
        assert world.degraded["spark"] == ""

    await while_running([world.compactor()], work)


async def test_small_jobs_run_without_spark(world: World) -> None:
    world.missing = "there is no Java"
    world.plan_limits = msgspec.structs.replace(world.plan_limits, local_bytes_max=64 * 1024 * 1024)
    topic_id = world.create_topic(1)
    for number in range(9):
        world.flush((topic_id, 0, [str(number)]))

    async def work() -> None:
        await until(lambda: 0 not in world.levels())

    await while_running([world.compactor()], work)
    world.check_all_readable()
    assert not world.sessions


async def test_a_drain_ends_a_job_in_this_process_and_its_segments_stay(world: World) -> None:
    world.plan_limits = msgspec.structs.replace(world.plan_limits, local_bytes_max=64 * 1024 * 1024)
    topic_id = world.create_topic(1)
    for _ in range(3):
        world.flush((topic_id, 0, ["a"]))
    begun, go_on = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    class HeldClock(SystemClock):
        """A clock that stops the job at its start."""

        def now_ms(self) -> int:
            if threading.current_thread() is not threading.main_thread():
                loop.call_soon_threadsafe(begun.set)
                assert go_on.wait(30)
            return super().now_ms()

    world.clock = HeldClock()
    compactor = world.compactor()

    async def work() -> None:
        await begun.wait()
        await compactor.drain()
        go_on.set()
        assert not world.machine.state.leases

    await while_running([compactor], work)
    assert world.levels() == [0, 0, 0]


def test_the_end_of_a_process_does_not_wait_for_work_in_a_thread() -> None:
    """A store that does not answer would otherwise hold a stop back until it is killed."""
    program = """
import asyncio, threading
from penstock_compactor.jobs.threads import in_thread

async def main():
    begun = threading.Event()
    hanging = asyncio.create_task(in_thread(lambda: (begun.set(), threading.Event().wait())))
    await asyncio.to_thread(begun.wait)
    hanging.cancel()

asyncio.run(main())
"""
    assert subprocess.run([sys.executable, "-c", program], timeout=60).returncode == 0


async def test_express_segments_are_moved_without_spark(world: World) -> None:
    world.missing = "there is no Java"
    world.plan_limits = msgspec.structs.replace(world.plan_limits, express_age_ms=0)
    topic_id = world.create_topic(1)
    for number in range(5):
        world.flush((topic_id, 0, [str(number)]), is_express=True)

    async def work() -> None:
        await until(lambda: set(world.levels()) == {1})
        await until(lambda: world.metric("jobs_total", kind="express", result="done") >= 1)

    await while_running([world.compactor()], work)
    world.check_all_readable()
    assert not world.sessions


async def test_express_segments_are_moved_while_spark_has_as_many_jobs_as_it_may(world: World) -> None:
    world.plan_limits = msgspec.structs.replace(world.plan_limits, express_age_ms=0)
    topic_id = world.create_topic(1)
    for _ in range(3):
        world.flush((topic_id, 0, ["a"]))
    go_on = threading.Event()
    world.spark.before_collect = lambda: bool(go_on.wait(30))

    async def work() -> None:
        await until(lambda: world.metric("running_jobs", kind="flushed") == 1)
        world.flush((topic_id, 0, ["b"]), is_express=True)
        await until(lambda: 1 in world.levels())
        go_on.set()
        await until(lambda: set(world.levels()) == {1})

    await while_running([world.compactor(jobs_max=1)], work)
    world.check_all_readable()


async def test_while_no_sequencer_answers_a_compactor_waits_and_is_degraded(world: World) -> None:
    topic_id = world.create_topic(1)
    for _ in range(3):
        world.flush((topic_id, 0, ["a"]))
    world.machine.is_down = True

    async def work() -> None:
        await until(lambda: world.degraded.get("sequencers") == "no sequencer answered")
        world.machine.is_down = False
        await until(lambda: world.levels() == [1])
        assert world.degraded["sequencers"] == ""

    await while_running([world.compactor()], work)


async def test_an_idle_session_is_ended_and_the_next_job_opens_another(world: World) -> None:
    world.plan_limits = PlanLimits(
        flushed_count=3, flushed_rest_ms=0, local_bytes_max=0
    )  # merged segments are not merged again: each round is one job
    topic_id = world.create_topic(1)

    async def work() -> None:
        for round_number in range(1, 4):
            for _ in range(3):
                world.flush((topic_id, 0, ["a"]))
            await until(lambda wanted=round_number: world.metric("jobs_total", kind="flushed", result="done") >= wanted)
            await until(lambda: world.metric("spark_session_open") == 0)
            assert len(world.sessions) == round_number

    await while_running([world.compactor(idle_s=0)], work)


async def test_topics_that_are_compacted_by_key_stay_out_of_level_two(world: World) -> None:
    topic_id = world.create_topic(1, **{"cleanup.policy": "compact"})
    for _ in range(9):
        world.flush((topic_id, 0, ["a"]))
    assert (await world.merging().merge(everything(world), {topic_id})).is_complete
    assert world.levels() == [1]


async def test_logs_with_more_extents_than_one_search_holds_are_searched_in_rotation(world: World) -> None:
    world.limits = CompactorLimits(keys=KeyWorkLimits(extents_held_max=3))
    world.key_interval_s = 0
    compacted = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}
    topic_ids = [world.create_topic(number, **compacted) for number in range(1, 6)]
    for _ in range(2):
        world.flush(*((topic_id, 0, ["a"]) for topic_id in topic_ids))
    keys = world.keys(world.runner())
    topics = (await world.machine.query("metadata", MetadataQuery(0, None), MetadataView)).topics
    searches = [[topic_ids.index(job.topic_id) for job in await keys.find_jobs(topics, ())] for _ in range(3)]
    assert [sorted(each) for each in searches] == [[0, 1], [2, 3], [0, 4]]


async def test_a_topic_that_another_compactor_compacts_by_key_does_not_block_the_next_one(world: World) -> None:
    compacted = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}
    topic_ids = [world.create_topic(number, **compacted) for number in (1, 2)]
    for topic_id in topic_ids:
        world.flush((topic_id, 0, ["a"]))
        flushed = [segment for segment in world.segments() if segment.level == 0]
        await world.merging().merge(Choice(Kind.FLUSHED, flushed), topic_ids)
    first, second = (world.extents(topic_id)[0].segment.segment_id for topic_id in topic_ids)
    world.machine.apply(LeaseJob(world.machine.clock.now_ms(), "job", "compactor-2", [first], MINUTE_MS))
    world.machine.sent.clear()

    def requested() -> list[list[bytes]]:
        return [each.segment_ids for each in world.machine.sent if isinstance(each, LeaseJob)]

    await while_running([world.compactor()], lambda: until(lambda: len(requested()) >= 2))
    assert requested()[:2] == [[first], [second]]

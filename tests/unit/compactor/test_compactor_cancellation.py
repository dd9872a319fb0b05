"""Cancelled jobs of the compactor: at any moment they leave no lease, begin nothing more, and end."""

import asyncio
import concurrent.futures
import itertools
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock.contracts.commands import Command, LeaseJob, Outcome, ReleaseJob, ReplaceExtents
from penstock.contracts.errors import Unavailable
from penstock.contracts.rejections import Rejection
from penstock_compactor.app import CompactorLimits
from penstock_compactor.config import CompactorConfig
from penstock_compactor.keys.commits import Commits
from penstock_compactor.merge.work import MergeLimits
from penstock_compactor.planning.planner import Choice, Kind
from tests.testkit.cancelling import cancelled_after, turns
from tests.testkit.waiting import TIMEOUT_S, until
from tests.unit.compactor.compactor_world import Machine, World, while_running


class SlowMachine(Machine):
    """Sequencers whose answers take some turns of the loop; each query waits until `may_answer` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.queries_waiting = 0
        self.deadlines_s: dict[type[Command], float] = {}

    async def command(self, commands: list[Command], *, deadline_s: float) -> list[Outcome]:
        self.deadlines_s |= {type(each): deadline_s for each in commands}
        outcomes = await super().command(commands, deadline_s=deadline_s)
        for _ in range(3):
            await asyncio.sleep(0)
        return outcomes

    async def query(self, name: str, query: msgspec.Struct, view: type[Any], *, deadline_s: float | None = None) -> Any:
        self.queries_waiting += 1
        await self.may_answer.wait()
        self.queries_waiting -= 1
        return await super().query(name, query, view, deadline_s=deadline_s)


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path)
    world.machine = SlowMachine()
    return world


def flushed(world: World) -> Choice:
    """Three segments, which are enough for a job."""
    topic_id = world.create_topic(1)
    for _ in range(3):
        world.flush((topic_id, 0, ["a"]))
    return Choice(Kind.FLUSHED, world.segments())


@pytest.mark.parametrize("again", [None, 0, 1, 2, 3, 4])
async def test_a_job_that_is_cancelled_at_any_moment_releases_its_lease(world: World, again: int | None) -> None:
    """Also while the answer to its lease is on its way. `again`: after so many turns it is cancelled once more."""
    segment_ids = flushed(world).segment_ids

    async def job() -> None:
        async with world.client().leased(segment_ids):
            await turns(2)

    for count in itertools.count():
        if not await cancelled_after(count, job(), again):
            break
        assert not world.machine.state.leases, f"cancelled after {count} turns"
    assert count > 5, "it was cancelled in its lease, its block and its release"


async def test_a_search_that_ends_after_the_drain_begins_no_job(world: World) -> None:
    flushed(world)
    machine = world.machine
    assert isinstance(machine, SlowMachine)
    machine.may_answer.clear()
    compactor = world.compactor()

    async def work() -> None:
        await until(lambda: machine.queries_waiting)
        await compactor.drain()
        machine.may_answer.set()
        await until(lambda: "sequencers" in world.degraded)  # the search has ended
        await turns(5)
        assert not [each for each in machine.sent if isinstance(each, LeaseJob)]

    await while_running([compactor], work)
    assert not world.sessions and world.levels() == [0, 0, 0]


async def test_a_job_that_is_cancelled_between_two_spark_jobs_ends_with_the_next_one(world: World) -> None:
    """A cancellation ends only Spark jobs that run. Key compaction consists of several, with commits in between."""
    began, first, second = asyncio.Event(), threading.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def work(_session: object) -> None:
        loop.call_soon_threadsafe(began.set)
        assert first.wait(TIMEOUT_S), "the cancellation comes while no Spark job runs"
        assert second.wait(TIMEOUT_S), "the next Spark job was not cancelled"
        raise InterruptedError("cancelled by Spark")

    world.spark.on_cancel = lambda: (second if first.is_set() else first).set()
    running = asyncio.create_task(world.runner(cancel_again_s=0.01).run("group", work))
    await began.wait()
    running.cancel()
    await asyncio.wait([running])
    assert running.cancelled() and second.is_set()


async def test_a_job_whose_jvm_is_gone_can_be_cancelled(world: World) -> None:
    """A stop of a whole service also ends its JVM. The compactor then fails no other job, and ends without an error."""
    is_gone = threading.Event()

    def hang() -> None:
        assert is_gone.wait(TIMEOUT_S)
        raise ConnectionError("the JVM is gone")

    def break_down() -> None:
        is_gone.set()
        raise ConnectionError("the JVM is gone")

    world.spark.before_collect, world.spark.on_cancel = hang, break_down
    world.limits = CompactorLimits(merge=MergeLimits(merge_deadline_s=0.05))
    with pytest.raises(Unavailable, match="did not end the job within"):
        await world.merging().merge(flushed(world), ())
    assert not world.machine.state.leases


@pytest.mark.parametrize("ends", [False, True])
async def test_a_stop_does_not_wait_long_for_sequencers_that_are_gone(world: World, ends: bool) -> None:
    """As in a stop of a whole cluster. The drain has a deadline, and one that is late is an error."""
    segment_ids = flushed(world).segment_ids
    machine = world.machine
    assert isinstance(machine, SlowMachine)

    async def job() -> None:
        async with world.client().leased(segment_ids):
            await (turns(2) if ends else asyncio.Event().wait())

    for count in range(1, 9):
        running = asyncio.create_task(job())
        await turns(count)
        assert ReleaseJob not in machine.deadlines_s, "it is cancelled before its release"
        running.cancel()
        await asyncio.wait([running])
        assert machine.deadlines_s.pop(ReleaseJob) * 1000 <= CompactorConfig().drain_deadline_ms / 2


async def test_a_cancelled_job_does_not_wait_for_its_commit_and_begins_no_other(world: World) -> None:
    """While no sequencer answers, a commit may take ten minutes."""
    begun, ended = asyncio.Event(), list[str]()

    async def replace(_command: ReplaceExtents) -> list[Rejection]:
        begun.set()
        await asyncio.Event().wait()
        raise AssertionError("no sequencer answers")

    commits = Commits(replace)

    def work(_session: object) -> None:
        for name in ("first", "second"):
            try:
                commits(ReplaceExtents(0, "job", [], [], []))
            except concurrent.futures.CancelledError:
                ended.append(name)

    running = asyncio.create_task(world.runner().run("group", work, on_cancel=commits.cancel))
    await begun.wait()
    running.cancel()
    await asyncio.wait([running])
    assert running.cancelled() and ended == ["first", "second"]


async def test_a_commit_reports_whether_all_its_runs_were_accepted() -> None:
    found = [Rejection.NONE, Rejection.NONE]

    async def replace(_command: ReplaceExtents) -> list[Rejection]:
        return found

    commits = Commits(replace)
    command = ReplaceExtents(0, "job", [], [], [])
    assert await asyncio.to_thread(commits, command)
    found[1] = Rejection.EXTENTS_CHANGED
    assert not await asyncio.to_thread(commits, command)

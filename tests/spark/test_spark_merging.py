"""Merge jobs on a real Spark session: tasks run in workers, failures affect one task, and a job can be cancelled."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.contracts.errors import Unavailable
from penstock_compactor.jobs.spark_runner import SparkRunner
from penstock_compactor.planning.planner import Choice, Kind
from tests.testkit.clusters.cluster import wait_until
from tests.testkit.clusters.compactors import is_running
from tests.testkit.waiting import until
from tests.unit.compactor.compactor_world import World, while_running

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

TIMEOUT_S = 120.0


@pytest.fixture
def world(tmp_path: Path, spark: Any) -> Iterator[World]:
    yield World(tmp_path, spark=spark)


def everything(world: World) -> Choice:
    return Choice(Kind.MIXED, world.segments())


async def test_each_output_has_its_own_task_and_a_failure_affects_only_one(world: World) -> None:
    good, bad = world.create_topic(1), world.create_topic(2)
    for _ in range(3):
        world.flush((good, 0, ["a", "b"]))
    world.damage(world.flush((bad, 0, ["c"])))
    ended = await world.merging().merge(everything(world), ())
    assert ended.accepted == 1
    assert [failed.kind for failed in ended.failures] == ["Corrupt"]
    assert world.levels() == [0, 2]
    assert world.read(good, 0) == [(0, "a"), (1, "b"), (2, "a"), (3, "b"), (4, "a"), (5, "b")]


async def test_a_compactor_merges_all_segments(world: World) -> None:
    topics = [world.create_topic(number, partitions=2) for number in (1, 2, 3)]
    compactor = world.compactor()

    async def work() -> None:
        for _ in range(3):
            await until(lambda: 0 not in world.levels(), TIMEOUT_S)
            for number in range(3):
                world.flush(*((topic_id, part, [f"{number}"] * 9) for topic_id in topics for part in (0, 1)))
        await until(lambda: world.levels() == [2, 2, 2], TIMEOUT_S)

    await while_running([compactor], work)
    world.check_all_readable()


async def test_a_cancelled_job_is_also_cancelled_in_spark(world: World) -> None:
    runner: SparkRunner = world.runner()

    def sleep(seconds: int) -> None:
        import time

        time.sleep(seconds)

    working = asyncio.create_task(
        runner.run("cancelled", lambda session: session.sparkContext.parallelize([600], 1).map(sleep).collect())
    )
    tracker = world.spark.sparkContext.statusTracker()
    await until(lambda: tracker.getActiveJobsIds(), TIMEOUT_S)
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working
    await until(lambda: not tracker.getActiveJobsIds(), TIMEOUT_S)


async def test_jobs_of_one_cluster_leave_cores_for_those_of_another(world: World) -> None:
    runner: SparkRunner = world.runner()

    def sleep(seconds: float) -> None:
        import time

        time.sleep(seconds)

    def tasks(count: int) -> Callable[[Any], Any]:
        return lambda session: session.sparkContext.parallelize([0.1] * count, count).map(sleep).collect()

    long = asyncio.create_task(runner.run("long", tasks(10_000), pool="a"))
    tracker = world.spark.sparkContext.statusTracker()
    await until(lambda: tracker.getActiveJobsIds(), TIMEOUT_S)
    async with asyncio.timeout(TIMEOUT_S):  # the long job takes longer
        await runner.run("short", tasks(4), pool="b")
    assert not long.done()
    long.cancel()
    await asyncio.wait({long})


async def test_a_worker_that_is_killed_fails_its_job_and_no_other(world: World) -> None:
    runner: SparkRunner = world.runner()

    def die(_item: int) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(Unavailable, match="spark failed"):
        await runner.run("dies", lambda session: session.sparkContext.parallelize([1], 1).map(die).collect())
    assert await runner.run("lives", lambda session: session.sparkContext.parallelize([1], 1).collect()) == [1]


def test_the_jvm_ends_with_its_process_although_that_is_killed(tmp_path: Path) -> None:
    """The process prints its JVM's id and is killed."""
    program = (
        "import sys\n"
        "from penstock.spark.session import jvm_pid, open_session\n"
        "from tests.testkit.clusters.compactors import JAVA_OPTIONS\n"
        "session = open_session('short', 'local[1]', {'spark.driver.defaultJavaOptions': JAVA_OPTIONS})\n"
        "print(jvm_pid(session), flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        jvm = int(process.stdout.readline())
        assert is_running(jvm)
        process.kill()
    wait_until(lambda: not is_running(jvm), TIMEOUT_S, "the JVM to end")

"""Jobs of many clusters in one process: each cluster gets its turn, and no slot is lost."""

import random
import threading
from collections import Counter
from pathlib import Path

import pytest

from penstock_compactor.jobs.slots import ClusterSlots, JobSlots
from tests.testkit.waiting import until
from tests.unit.compactor.compactor_world import World, while_running

LONG_S = 30


class Cluster:
    """A cluster that always has more work, as its slots see it."""

    def __init__(self, slots: JobSlots) -> None:
        self.slots: ClusterSlots = slots.join(self.search)
        self.jobs = 0
        self.begun = 0

    def search(self) -> None:
        self.slots.begin_search()
        while self.slots.reserve():
            self.slots.begin_job()
            self.jobs += 1
            self.begun += 1
        self.slots.end_search()

    def end_job(self) -> None:
        self.jobs -= 1
        self.slots.end_job()


@pytest.mark.parametrize("slots_max", [1, 2, 3, 7])
def test_busy_clusters_get_equally_many_jobs_and_no_slot_is_idle(slots_max: int) -> None:
    dice = random.Random(slots_max)
    slots = JobSlots(slots_max)
    clusters = [Cluster(slots) for _ in range(5)]
    for cluster in clusters:
        cluster.search()
    for _ in range(1000):
        assert sum(cluster.jobs for cluster in clusters) == slots_max
        dice.choice([cluster for cluster in clusters if cluster.jobs]).end_job()
    begun = [cluster.begun for cluster in clusters]
    assert min(begun) > 0.8 * max(begun), begun


def test_the_last_free_slot_is_for_a_cluster_without_a_job() -> None:
    slots = JobSlots(3)
    busy, other = Cluster(slots), Cluster(slots)
    busy.search()
    assert busy.jobs == 2
    other.search()
    assert other.jobs == 1
    other.end_job()
    assert (busy.jobs, other.jobs) == (2, 1), "the cluster without a job is first, and asks again at once"
    other.slots.withdraw()
    other.end_job()
    assert busy.jobs == 2
    other.slots.leave()
    assert busy.jobs == 3, "a cluster that is alone has all slots"


def test_a_slot_that_a_search_does_not_use_is_for_the_next_cluster() -> None:
    slots = JobSlots(1)
    woken: Counter[str] = Counter()
    first, second, third = (slots.join(lambda name=name: woken.update([name])) for name in "abc")  # type: ignore[misc]
    for each in (first, second, third):
        each.begin_search()
    assert first.reserve() and not second.reserve() and not third.reserve()
    second.end_search()
    third.end_search()
    first.end_search()  # without a job
    assert woken == {"b": 1}
    second.begin_search()
    second.end_search()  # its work is gone
    assert woken == {"b": 1, "c": 1}
    third.leave()
    first.begin_search()
    assert first.reserve(), "a cluster that leaves gives back its slot"


def test_a_slot_that_comes_during_a_search_is_kept_for_the_next_one() -> None:
    slots = JobSlots(1)
    holder, waiting = slots.join(lambda: None), slots.join(lambda: None)
    holder.begin_search()
    assert holder.reserve()
    holder.begin_job()
    holder.end_search()
    waiting.begin_search()
    assert not waiting.reserve()
    holder.end_job()
    waiting.end_search()
    waiting.begin_search()
    assert waiting.taken == 1 and waiting.reserve()


class Lake:
    """Compactors of several clusters in one process."""

    def __init__(self, folder: Path, jobs_max: int) -> None:
        self.worlds = {name: World(folder / name) for name in ("a", "b")}
        self.slots = JobSlots(jobs_max)
        self.order: list[str] = []  # the clusters of the jobs
        self.may_end = threading.Event()  # jobs of a
        for name, world in self.worlds.items():
            (folder / name).mkdir()
            world.slots = self.slots
            world.create_topic(1)
            world.spark.before_collect = lambda name=name: self._work(name)  # type: ignore[misc]

    def _work(self, name: str) -> None:
        self.order.append(name)
        assert name != "a" or self.may_end.wait(LONG_S)

    def flush(self, name: str) -> None:
        world = self.worlds[name]
        (topic_id,) = world.machine.state.topics_by_id
        for number in range(3):
            world.flush((topic_id, 0, [str(number)]))

    def check(self) -> None:
        for world in self.worlds.values():
            world.check_all_readable()
            assert not world.machine.state.leases


async def test_long_jobs_of_one_cluster_do_not_stop_another(tmp_path: Path) -> None:
    lake = Lake(tmp_path, jobs_max=2)
    a, b = lake.worlds.values()

    async def work() -> None:
        lake.flush("a")
        await until(lambda: lake.order == ["a"])
        lake.flush("a")
        for _ in range(3):
            lake.flush("b")
            await until(lambda: 0 not in b.levels())
        assert lake.order.count("a") == 1
        lake.may_end.set()
        await until(lambda: 0 not in a.levels())

    await while_running([a.compactor(), b.compactor()], work)
    lake.check()


async def test_with_one_slot_the_cluster_that_waits_is_next_and_one_without_sequencers_does_not_keep_it(
    tmp_path: Path,
) -> None:
    lake = Lake(tmp_path, jobs_max=1)
    a, b = lake.worlds.values()

    async def work() -> None:
        lake.flush("a")
        await until(lambda: lake.order == ["a"])
        for name in ("a", "b"):
            lake.flush(name)
        await until(lambda: lake.slots.waiting == 1)
        b.machine.is_down = True
        lake.may_end.set()
        await until(lambda: 0 not in a.levels())
        assert "b" not in lake.order
        b.machine.is_down = False
        await until(lambda: 0 not in b.levels())
        lake.may_end.clear()
        lake.flush("a")
        await until(lambda: lake.order[-1] == "a")
        lake.flush("a")
        lake.flush("b")
        begun = len(lake.order)
        await until(lambda: lake.slots.waiting == 1)
        lake.may_end.set()
        await until(lambda: len(lake.order) > begun)
        assert lake.order[begun] == "b"
        await until(lambda: 0 not in {*a.levels(), *b.levels()})

    await while_running([a.compactor(jobs_max=1), b.compactor(jobs_max=1)], work)
    lake.check()

"""Presence: live, leaving and silent instances, and how soon a new instance knows the others."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import msgspec
import pytest

from penstock.contracts.codec import encode
from penstock.contracts.messages import ListenerAddress, Presence
from penstock.runtime.bus.presence import Announcer, Directory, PresenceLimits
from tests.testkit.fakes.clock import ManualClock
from tests.testkit.fakes.memory_bus import MemoryBus, MemoryHub
from tests.testkit.fakes.virtual_time import VirtualClock, in_virtual_time
from tests.testkit.waiting import until

CLUSTER = "test"


def a_presence(
    instance: str, role: str = "flusher", zone: str = "z1", listeners: tuple[ListenerAddress, ...] = ()
) -> Presence:
    return Presence(role=role, zone=zone, instance=instance, version="1", listeners=listeners)


class World:
    """A directory with a manual clock, and a bus for announcements."""

    def __init__(self) -> None:
        self.hub = MemoryHub()
        self.bus: MemoryBus = self.hub.connect("directory")
        self.sender: MemoryBus = self.hub.connect("sender")
        self.clock = ManualClock()
        self.directory = Directory(self.bus, CLUSTER, self.clock)
        self.changes = 0

    def count_change(self) -> None:
        self.changes += 1

    async def hear(self, *presences: Presence) -> None:
        for each in presences:
            await Announcer(self.sender, CLUSTER, lambda each=each: each).announce()
        await self.settle()

    def announcements(self) -> int:
        """How often f1 was announced."""
        return len([subject for subject, _ in self.hub.published if subject.endswith(".f1")])

    async def settle(self) -> None:
        for _ in range(5):
            await asyncio.sleep(0)

    async def pass_time(self, seconds: float) -> None:
        """Advance the clock, with the checks of a running directory."""
        for _ in range(round(seconds * 10)):
            self.clock.now_s += 0.1
            self.directory.expire()


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    await made.directory.open()
    made.directory.subscribe(made.count_change)
    yield made
    await made.directory.close()


def names(found: list[Presence]) -> list[str]:
    return [each.instance for each in found]


async def test_live_instances_are_found_by_pool_and_a_changed_pool_is_reported(world: World) -> None:
    moved = msgspec.structs.replace(a_presence("f2"), pool="analytics")
    await world.hear(a_presence("f1"), a_presence("f2"))
    assert names(world.directory.live("flusher", pool="default")) == ["f1", "f2"]
    changes = world.changes
    await world.hear(moved)
    assert world.changes == changes + 1
    assert names(world.directory.live("flusher", pool="default")) == ["f1"]
    assert names(world.directory.live("flusher", "z1", "analytics")) == ["f2"]


def test_an_announcement_of_an_earlier_release_is_of_the_default_pool() -> None:
    earlier = msgspec.to_builtins(a_presence("f1"))[:-1]
    assert msgspec.convert(earlier, Presence) == a_presence("f1")
    assert a_presence("f1").pool == "default"


async def test_live_instances_are_found_by_role_and_zone_in_order_of_name(world: World) -> None:
    await world.hear(a_presence("f2"), a_presence("f1"), a_presence("f3", zone="z2"), a_presence("g1", "gateway"))
    assert names(world.directory.live("flusher")) == ["f1", "f2", "f3"]
    assert names(world.directory.live("flusher", "z1")) == ["f1", "f2"]
    assert names(world.directory.live("gateway")) == ["g1"]
    assert world.directory.live("cacher") == []


async def test_the_latest_announcement_of_an_instance_counts(world: World) -> None:
    await world.hear(a_presence("f1"), msgspec.structs.replace(a_presence("f1"), load_bytes=7))
    assert [each.load_bytes for each in world.directory.live("flusher")] == [7]
    assert world.changes == 1


async def test_an_instance_that_is_silent_for_three_seconds_is_gone(world: World) -> None:
    await world.hear(a_presence("f1"), a_presence("f2"))
    await world.pass_time(2)
    await world.hear(a_presence("f2"))
    await world.pass_time(0.9)
    assert names(world.directory.live("flusher")) == ["f1", "f2"]
    await world.pass_time(0.3)
    assert names(world.directory.live("flusher")) == ["f2"]
    assert world.directory.get("f1") is None


async def test_a_silent_instance_is_not_found_even_before_its_removal(world: World) -> None:
    await world.hear(a_presence("f1"))
    world.clock.now_s += 3.1
    assert world.directory.live("flusher") == []
    assert world.directory.get("f1") is None


async def test_a_leaving_instance_takes_no_work_but_is_still_known(world: World) -> None:
    await world.hear(a_presence("f1"), msgspec.structs.replace(a_presence("f1"), leaving=True))
    assert world.directory.live("flusher") == []
    known = world.directory.get("f1")
    assert known is not None
    assert known.leaving
    assert world.changes == 2


async def test_the_death_of_a_leaving_instance_is_a_change_too(world: World) -> None:
    leaving = msgspec.structs.replace(a_presence("f1"), leaving=True)
    await world.hear(a_presence("f1"), leaving)
    await world.pass_time(2)
    assert (world.changes, world.directory.get("f1")) == (2, leaving)
    await world.pass_time(1.5)
    assert (world.changes, world.directory.get("f1")) == (3, None)


async def test_callbacks_come_with_every_change_of_live_instances_and_with_no_other(world: World) -> None:
    await world.hear(a_presence("f1"))
    assert world.changes == 1
    await world.hear(a_presence("f1"))
    assert world.changes == 1
    await world.pass_time(3.5)
    assert world.changes == 2


async def test_every_change_of_an_advertised_address_is_a_change(world: World) -> None:
    inside, outside = ListenerAddress("INTERNAL", "10.0.0.1", 9092), ListenerAddress("EXTERNAL", "localhost", 9092)
    moved = msgspec.structs.replace(inside, host="10.0.0.2")
    renamed = msgspec.structs.replace(inside, name="OTHER")
    for number, listeners in enumerate([(), (inside,), (inside, outside), (moved, outside), (renamed, outside)], 1):
        for _ in range(2):
            await world.hear(a_presence("g1", "gateway", listeners=listeners))
        assert world.changes == number
        assert [each.listeners for each in world.directory.live("gateway")] == [listeners]


async def test_while_the_bus_is_down_no_instance_is_declared_gone(world: World) -> None:
    await world.hear(a_presence("f1"))
    world.bus.cut()
    await world.pass_time(10)
    assert names(world.directory.live("flusher")) == ["f1"]
    world.bus.mend()
    await world.pass_time(2.5)
    assert names(world.directory.live("flusher")) == ["f1"]
    await world.pass_time(1)
    assert world.directory.live("flusher") == []


async def test_a_stall_of_this_process_is_not_the_silence_of_another(world: World) -> None:
    await world.hear(a_presence("f1"))
    world.clock.now_s += 30
    world.directory.expire()
    assert names(world.directory.live("flusher")) == ["f1"]


async def test_an_announcement_that_cannot_be_decoded_is_ignored(world: World) -> None:
    await world.sender.publish(f"penstock.{CLUSTER}.presence.flusher.z1.f9", b"\xffnonsense")
    await world.hear(a_presence("f1"))
    assert names(world.directory.live("flusher")) == ["f1"]
    assert not world.bus.has_failed


async def test_other_clusters_are_not_heard(world: World) -> None:
    await world.sender.publish("penstock.other.presence.flusher.z1.f1", encode(a_presence("f1")))
    await world.settle()
    assert world.directory.live("flusher") == []


async def test_an_announcer_announces_again_and_again_until_it_leaves(world: World) -> None:
    announcer = Announcer(world.sender, CLUSTER, lambda: a_presence("f1"))
    running = asyncio.create_task(announcer.run())
    await until(lambda: len(world.hub.published) >= 2)
    assert {subject for subject, _ in world.hub.published} == {f"penstock.{CLUSTER}.presence.flusher.z1.f1"}
    await announcer.leave()
    await world.settle()
    assert world.directory.live("flusher") == []
    await announcer.announce()
    await world.settle()
    assert world.directory.live("flusher") == [], "it does not come back by announcing once more"
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running


async def test_each_announcement_is_passed_on_and_a_restart_under_a_known_name_is_a_newcomer(world: World) -> None:
    newcomers: list[Presence] = []
    announced: list[Presence] = []
    world.directory.on_newcomer(newcomers.append)
    world.directory.on_announcement(announced.append)
    first = msgspec.structs.replace(a_presence("s1", "sequencer"), started_ms=1)
    later = msgspec.structs.replace(first, seen_sequence=7)
    again = msgspec.structs.replace(first, started_ms=2)
    await world.hear(first, later, again, again)
    assert announced == [first, later, again, again]
    assert newcomers == [first, again]


@in_virtual_time
async def test_a_new_instance_knows_the_live_ones_when_they_had_the_time_to_answer() -> None:
    hub, running = MemoryHub(), []
    for number in range(5):
        bus = hub.connect(f"f{number}")
        directory = Directory(bus, CLUSTER, VirtualClock())
        await directory.open()
        announcer = Announcer(bus, CLUSTER, lambda number=number: a_presence(f"f{number}"), directory)
        running.append(asyncio.create_task(announcer.run()))
    await asyncio.sleep(10.01)  # all have just announced themselves, and the next time is far
    bus = hub.connect("s1")
    directory = Directory(bus, CLUSTER, VirtualClock())
    await directory.open()
    bus.cut()
    asking = asyncio.create_task(Announcer(bus, CLUSTER, lambda: a_presence("s1", "sequencer")).until_answered())
    await asyncio.sleep(0.3)
    assert not asking.done(), "without a connection, no instance can answer"
    bus.mend()
    began_s = asyncio.get_running_loop().time()
    await asking
    assert asyncio.get_running_loop().time() - began_s < 0.3
    assert names(directory.live("flusher")) == [f"f{number}" for number in range(5)]
    for task in running:
        task.cancel()


async def test_a_newcomer_causes_an_announcement_long_before_the_next_second(world: World) -> None:
    limits = PresenceLimits(announce_interval_ms=3_600_000)  # so long that the regular announcement does not count
    announcer = Announcer(world.bus, CLUSTER, lambda: a_presence("f1"), world.directory, limits=limits)
    running = asyncio.create_task(announcer.run())
    await until(lambda: len(world.hub.published) == 1)
    await world.settle()
    newcomer_bus = world.hub.connect("newcomer")
    newcomer = Directory(newcomer_bus, CLUSTER, world.clock)
    await newcomer.open()
    await world.hear(a_presence("g1", "gateway"))
    await until(lambda: names(newcomer.live("flusher")) == ["f1"])
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running
    await newcomer.close()


@in_virtual_time
async def test_announcers_of_a_machine_announce_together_and_never_more_than_a_second_apart() -> None:
    hub = MemoryHub()
    times: dict[str, list[float]] = {"f1": [], "f2": []}

    def made(instance: str) -> Presence:
        times[instance].append(asyncio.get_running_loop().time())
        return a_presence(instance)

    running = []
    for instance in times:
        announcer = Announcer(hub.connect(instance), CLUSTER, lambda instance=instance: made(instance))
        running.append(asyncio.create_task(announcer.run()))
        await asyncio.sleep(0.3)
    await asyncio.sleep(5)
    for task in running:
        task.cancel()
    assert times["f1"] == pytest.approx([0, 1, 2, 3, 4, 5])
    assert times["f2"] == pytest.approx([0.3, 1, 2, 3, 4, 5])


@in_virtual_time
async def test_the_end_of_a_silence_is_reported_at_its_time() -> None:
    hub = MemoryHub()
    directory = Directory(hub.connect("directory"), CLUSTER, VirtualClock())
    await directory.open()
    running = asyncio.create_task(directory.run())
    await asyncio.sleep(10.07)
    await Announcer(hub.connect("sender"), CLUSTER, lambda: a_presence("f1")).announce()
    await asyncio.sleep(0.01)
    gone = asyncio.Event()
    directory.subscribe(gone.set)
    await gone.wait()
    assert asyncio.get_running_loop().time() == pytest.approx(13.07, abs=0.005)
    running.cancel()


@in_virtual_time
async def test_many_newcomers_cause_one_announcement() -> None:
    world = World()
    await world.directory.open()
    limits = PresenceLimits(announce_gap_ms=500, announce_interval_ms=60_000)
    announcer = Announcer(world.bus, CLUSTER, lambda: a_presence("f1"), world.directory, limits=limits)
    running = asyncio.create_task(announcer.run())
    await until(lambda: len(world.hub.published) == 1)
    await world.hear(*(a_presence(f"g{n}", "gateway") for n in range(50)))
    await until(lambda: world.announcements() == 2)
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running
    assert world.announcements() == 2

"""Presence: who is live, who left, who fell silent, and how fast a newcomer knows."""

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
from tests.testkit.waiting import until

CLUSTER = "test"


def a_presence(
    instance: str, role: str = "flusher", zone: str = "z1", listeners: tuple[ListenerAddress, ...] = ()
) -> Presence:
    return Presence(role=role, zone=zone, instance=instance, version="1", listeners=listeners)


class Town:
    """A directory with a clock under control, and a bus to announce on."""

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

    def greetings(self) -> int:
        """How often f1 was announced."""
        return len([subject for subject, _ in self.hub.published if subject.endswith(".f1")])

    async def settle(self) -> None:
        for _ in range(5):
            await asyncio.sleep(0)

    async def pass_time(self, seconds: float) -> None:
        """Time goes by as for a directory that runs."""
        for _ in range(round(seconds * 10)):
            self.clock.now_s += 0.1
            self.directory.expire()


@pytest.fixture
async def town() -> AsyncIterator[Town]:
    made = Town()
    await made.directory.open()
    made.directory.subscribe(made.count_change)
    yield made
    await made.directory.close()


def names(found: list[Presence]) -> list[str]:
    return [each.instance for each in found]


async def test_live_instances_are_found_by_role_and_zone_in_order_of_name(town: Town) -> None:
    await town.hear(a_presence("f2"), a_presence("f1"), a_presence("f3", zone="z2"), a_presence("g1", "gateway"))
    assert names(town.directory.live("flusher")) == ["f1", "f2", "f3"]
    assert names(town.directory.live("flusher", "z1")) == ["f1", "f2"]
    assert names(town.directory.live("gateway")) == ["g1"]
    assert town.directory.live("cacher") == []


async def test_the_latest_word_of_an_instance_counts(town: Town) -> None:
    await town.hear(a_presence("f1"), msgspec.structs.replace(a_presence("f1"), load_bytes=7))
    assert [each.load_bytes for each in town.directory.live("flusher")] == [7]
    assert town.changes == 1


async def test_who_is_silent_for_three_seconds_is_gone(town: Town) -> None:
    await town.hear(a_presence("f1"), a_presence("f2"))
    await town.pass_time(2)
    await town.hear(a_presence("f2"))
    await town.pass_time(0.9)
    assert names(town.directory.live("flusher")) == ["f1", "f2"]
    await town.pass_time(0.3)
    assert names(town.directory.live("flusher")) == ["f2"]
    assert town.directory.get("f1") is None


async def test_who_fell_silent_is_not_found_even_before_it_is_cleared_away(town: Town) -> None:
    await town.hear(a_presence("f1"))
    town.clock.now_s += 3.1
    assert town.directory.live("flusher") == []
    assert town.directory.get("f1") is None


async def test_who_leaves_takes_no_work_but_can_still_be_asked_about(town: Town) -> None:
    await town.hear(a_presence("f1"), msgspec.structs.replace(a_presence("f1"), leaving=True))
    assert town.directory.live("flusher") == []
    known = town.directory.get("f1")
    assert known is not None
    assert known.leaving
    assert town.changes == 2


async def test_who_dies_while_leaving_is_a_change_too(town: Town) -> None:
    leaving = msgspec.structs.replace(a_presence("f1"), leaving=True)
    await town.hear(a_presence("f1"), leaving)
    await town.pass_time(2)
    assert (town.changes, town.directory.get("f1")) == (2, leaving)
    await town.pass_time(1.5)
    assert (town.changes, town.directory.get("f1")) == (3, None)


async def test_callbacks_come_with_every_change_of_who_is_live_and_with_no_other(town: Town) -> None:
    await town.hear(a_presence("f1"))
    assert town.changes == 1
    await town.hear(a_presence("f1"))
    assert town.changes == 1
    await town.pass_time(3.5)
    assert town.changes == 2


async def test_every_change_of_an_address_that_clients_are_told_is_a_change(town: Town) -> None:
    inside, outside = ListenerAddress("INTERNAL", "10.0.0.1", 9092), ListenerAddress("EXTERNAL", "localhost", 9092)
    moved = msgspec.structs.replace(inside, host="10.0.0.2")
    renamed = msgspec.structs.replace(inside, name="OTHER")
    for number, listeners in enumerate([(), (inside,), (inside, outside), (moved, outside), (renamed, outside)], 1):
        for _ in range(2):
            await town.hear(a_presence("g1", "gateway", listeners=listeners))
        assert town.changes == number
        assert [each.listeners for each in town.directory.live("gateway")] == [listeners]


async def test_while_the_bus_is_down_nobody_is_declared_gone(town: Town) -> None:
    await town.hear(a_presence("f1"))
    town.bus.cut()
    await town.pass_time(10)
    assert names(town.directory.live("flusher")) == ["f1"]
    town.bus.mend()
    await town.pass_time(2.5)
    assert names(town.directory.live("flusher")) == ["f1"]
    await town.pass_time(1)
    assert town.directory.live("flusher") == []


async def test_a_stall_of_our_own_is_nobody_elses_silence(town: Town) -> None:
    await town.hear(a_presence("f1"))
    town.clock.now_s += 30
    town.directory.expire()
    assert names(town.directory.live("flusher")) == ["f1"]


async def test_what_cannot_be_understood_is_passed_over(town: Town) -> None:
    await town.sender.publish(f"penstock.{CLUSTER}.presence.flusher.z1.f9", b"\xffnonsense")
    await town.hear(a_presence("f1"))
    assert names(town.directory.live("flusher")) == ["f1"]
    assert not town.bus.has_failed


async def test_other_clusters_are_not_heard(town: Town) -> None:
    await town.sender.publish("penstock.other.presence.flusher.z1.f1", encode(a_presence("f1")))
    await town.settle()
    assert town.directory.live("flusher") == []


async def test_an_announcer_speaks_again_and_again_until_it_leaves(town: Town) -> None:
    announcer = Announcer(town.sender, CLUSTER, lambda: a_presence("f1"))
    running = asyncio.create_task(announcer.run())
    await until(lambda: len(town.hub.published) >= 2)
    assert {subject for subject, _ in town.hub.published} == {f"penstock.{CLUSTER}.presence.flusher.z1.f1"}
    await announcer.leave()
    await town.settle()
    assert town.directory.live("flusher") == []
    await announcer.announce()
    await town.settle()
    assert town.directory.live("flusher") == [], "it does not come back by announcing once more"
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running


async def test_a_newcomer_is_greeted_long_before_the_next_second(town: Town) -> None:
    limits = PresenceLimits(announce_interval_ms=3_600_000)  # so that it is not heard by waiting for the next
    announcer = Announcer(town.bus, CLUSTER, lambda: a_presence("f1"), town.directory, limits=limits)
    running = asyncio.create_task(announcer.run())
    await until(lambda: len(town.hub.published) == 1)
    await town.settle()
    newcomer_bus = town.hub.connect("newcomer")
    newcomer = Directory(newcomer_bus, CLUSTER, town.clock)
    await newcomer.open()
    await town.hear(a_presence("g1", "gateway"))
    await until(lambda: names(newcomer.live("flusher")) == ["f1"])
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running
    await newcomer.close()


async def test_many_newcomers_get_one_greeting(town: Town) -> None:
    # They all come within the gap, however busy the machine.
    limits = PresenceLimits(announce_gap_ms=500, announce_interval_ms=60_000)
    announcer = Announcer(town.bus, CLUSTER, lambda: a_presence("f1"), town.directory, limits=limits)
    running = asyncio.create_task(announcer.run())
    await until(lambda: len(town.hub.published) == 1)
    await town.hear(*(a_presence(f"g{n}", "gateway") for n in range(50)))
    await until(lambda: town.greetings() == 2)
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running
    assert town.greetings() == 2

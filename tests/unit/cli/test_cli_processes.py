"""Processes are found by their announcements: all of them, also late ones."""

import asyncio

from penstock.cli.diagnosis.processes import ListenLimits, find_processes
from penstock.contracts.codec import encode
from penstock.contracts.messages import Presence
from penstock.contracts.subjects import presence
from penstock.runtime.bus.bus import Bus
from tests.testkit.fakes.memory_bus import MemoryBus, MemoryHub

CLUSTER = "default"
LIMITS = ListenLimits(quiet_s=0.05, listen_s_max=60.0, poll_s=0.005)
CORE = ("gateway", "flusher", "sequencer", "cacher")


async def announce(bus: Bus, role: str, name: str) -> None:
    await bus.publish(presence(CLUSTER, role, "z", name), encode(Presence(role, "z", name, "1")))


async def test_the_search_waits_for_a_service_that_is_late() -> None:
    hub = MemoryHub()
    listener, speaker = MemoryBus(hub, "listener"), MemoryBus(hub, "speaker")
    finding = asyncio.create_task(find_processes(listener, CLUSTER, limits=LIMITS))
    for role in CORE[:-1]:
        await asyncio.sleep(0)
        await announce(speaker, role, f"{role}-1")
    done, _ = await asyncio.wait([finding], timeout=5 * LIMITS.quiet_s)
    assert not done, "there is no cacher yet"
    for name in ("cacher-2", "cacher-1"):
        await announce(speaker, "cacher", name)
    found = await finding
    assert [each.instance for each in found] == ["gateway-1", "flusher-1", "sequencer-1", "cacher-1", "cacher-2"]

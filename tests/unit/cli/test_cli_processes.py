"""Processes are found by their announcements: all of them, also late ones; and the use of a cluster in these."""

import asyncio

from penstock.cli.clusters.use import find_use, use_in
from penstock.cli.diagnosis.processes import ListenLimits, find_processes
from penstock.contracts.codec import encode
from penstock.contracts.configs.quotas import CLUSTER_ENTITY, PRODUCE_RATE
from penstock.contracts.messages import ClusterUse, Presence, QuotaUse
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


async def test_the_use_of_a_cluster_is_that_of_its_newest_replica_and_of_all_gateways_together() -> None:
    old = Presence("sequencer", "z", "s1", "1", journal_sequence=5, cluster_use=ClusterUse(9, 0, 0, 1, 1))
    new = Presence("sequencer", "z", "s2", "1", journal_sequence=6, cluster_use=ClusterUse(9, 0, 0, 100, 3))
    of_client = QuotaUse(PRODUCE_RATE, (("user", "alice"),), 70.0)
    gateways = [
        Presence("gateway", "z", name, "1", quota_use=(QuotaUse(PRODUCE_RATE, CLUSTER_ENTITY, rate), of_client))
        for name, rate in (("g1", 2.0), ("g2", 3.4))
    ]
    assert use_in([*gateways, old, new]) == {
        "used_partitions": 3,
        "used_stored_bytes": 100,
        "used_produced_bytes_per_s": 5,
        "used_consumed_bytes_per_s": None,
    }


async def test_the_use_of_a_cluster_is_unknown_if_no_sequencer_announces_it() -> None:
    bus = MemoryBus(MemoryHub(), "listener")
    limits = ListenLimits(quiet_s=0.05, listen_s_max=0.05, poll_s=0.005)
    assert set((await find_use(bus, CLUSTER, limits=limits)).values()) == {None}

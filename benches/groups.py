"""The time of a large group from its last join until all members have their assignment."""

import asyncio
import re
from collections.abc import Callable, Iterator

from benches.group_members import HEARTBEAT_S, ClassicMember, ConsumerMember, Roll
from benches.report import Result
from benches.whole import create_topic, scratch_cluster
from tests.testkit.clusters.cluster import Cluster

MEMBERS = 200
PARTITIONS = 200
TIMEOUT_S = 120.0
QUIET_S = 1.0  # with a whole assignment before the last member comes
SERVICES = ("gateway", "sequencer", "nats-server")

MakeMember = Callable[[int, Roll], ClassicMember | ConsumerMember]


def rebalances() -> Iterator[Result]:
    """Both group protocols, with stock heartbeats: all members join at once, or one more member joins."""
    with scratch_cluster("--separate") as cluster:
        create_topic(cluster, "grouped", PARTITIONS)

        def classic(number: int, roll: Roll) -> ClassicMember:
            return ClassicMember(number, roll, "grouped", PARTITIONS, HEARTBEAT_S)

        def consumer(number: int, roll: Roll) -> ConsumerMember:
            return ConsumerMember(number, roll, "grouped", f"member-{number}")

        for protocol, make in (("classic", classic), ("KIP-848", consumer)):
            yield from _measured(cluster, protocol, make)


def _measured(cluster: Cluster, protocol: str, make: MakeMember) -> Iterator[Result]:
    for what, late in (("all at once", MEMBERS), ("one more", 1)):
        seconds, cpu_ms = asyncio.run(_group(cluster, f"{protocol}-{late}", make, late))
        name = f"{protocol}, {MEMBERS} members, {what}"
        yield Result("groups", f"{name}: last join to stable", seconds, "s")
        yield Result("groups", f"{name}: CPU of services", cpu_ms, "ms")


async def _group(cluster: Cluster, group_id: str, make: MakeMember, late: int) -> tuple[float, float]:
    """Seconds from the last join until the assignment is complete; CPU in ms since the first of the late joins."""
    host, port = _address(cluster)
    roll = Roll(PARTITIONS)
    members = [make(number, roll) for number in range(MEMBERS)]
    tasks: list[asyncio.Task[None]] = []
    try:
        if late < MEMBERS:
            tasks += [asyncio.create_task(member.run(host, port, group_id)) for member in members[:-late]]
            roll.members = MEMBERS - late
            await _until_complete(roll, tasks)
            await asyncio.sleep(QUIET_S)
        before_ms = _cpu_ms(cluster)
        roll.members = MEMBERS
        tasks += [asyncio.create_task(member.run(host, port, group_id)) for member in members[-late:]]
        await _until_complete(roll, tasks)
        return roll.complete_s - max(member.joined_s for member in members), _cpu_ms(cluster) - before_ms
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _until_complete(roll: Roll, tasks: list["asyncio.Task[None]"]) -> None:
    """Wait for a complete assignment; raise the error of a member that fails."""
    complete = asyncio.create_task(roll.until_complete(TIMEOUT_S))
    done, _ = await asyncio.wait([complete, *tasks], return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        task.result()


def _cpu_ms(cluster: Cluster) -> float:
    used = cluster.cpu_seconds()
    return sum(seconds for name, seconds in used.items() if re.sub(r"-\d+$", "", name) in SERVICES) * 1000


def _address(cluster: Cluster) -> tuple[str, int]:
    host, _, port = cluster.kafka.rpartition(":")
    return host, int(port)

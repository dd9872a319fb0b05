"""The first reading of all processes waits until they can have announced themselves."""

from typing import cast

import aiohttp

from penstock.contracts.messages import Presence
from penstock.runtime.bus.presence import Directory
from penstock.runtime.clock import SystemClock
from penstock_console.survey.processes import NEEDED_ROLES, ProcessLimits, ProcessWatch
from tests.testkit.servers.ports import free_ports


class LateDirectory:
    """Hears the sequencer only after so many looks."""

    def __init__(self, looks: int) -> None:
        self.looks = looks
        [self._port] = free_ports(1)

    def live(self, role: str) -> list[Presence]:
        if role not in NEEDED_ROLES:
            return []
        if role == "sequencer":
            self.looks -= 1
            if self.looks > 0:
                return []
        return [Presence(role, "z", f"{role}-1", "0", http=f"127.0.0.1:{self._port}")]


async def roles_read(directory: LateDirectory, limits: ProcessLimits) -> list[set[str]]:
    async with aiohttp.ClientSession() as client:
        watch = ProcessWatch(cast(Directory, directory), client, SystemClock(), limits=limits)
        readings = [await watch.read() for _ in range(2)]
    return [{each.presence.role for each in reading.processes} for reading in readings]


async def test_a_service_that_is_heard_a_moment_later_is_not_missing() -> None:
    directory = LateDirectory(5)
    found = await roles_read(directory, ProcessLimits(first_s=60.0, look_s=0.001))
    assert found == [set(NEEDED_ROLES)] * 2


async def test_only_the_first_reading_waits_and_not_for_ever() -> None:
    directory = LateDirectory(1_000_000)
    found = await roles_read(directory, ProcessLimits(first_s=0.01, look_s=0.001))
    assert found == [set(NEEDED_ROLES) - {"sequencer"}] * 2

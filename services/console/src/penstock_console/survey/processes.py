"""The processes of the cluster, their reports and their metrics, with earlier readings for rates."""

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import aiohttp
import msgspec

from penstock.cli.diagnosis.processes import Pages, Samples, samples_of, summed
from penstock.contracts.errors import Invalid
from penstock.contracts.messages import Presence
from penstock.runtime.bus.presence import Directory
from penstock.runtime.clock import Clock
from penstock.runtime.process.http_token import read_token

ROLES = ("gateway", "flusher", "sequencer", "cacher", "compactor", "janitor", "console")
NEEDED_ROLES = ("gateway", "flusher", "sequencer", "cacher")  # without one of each, clients are not served
CONSOLE = "console"


class ProcessLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How much is kept."""

    # Rates are between the newest reading and the oldest one in this time.
    window_s: float = 60.0
    points_max: int = 180
    # The first reading waits for announcements, which come once a second, and not for a service that is missing.
    first_s: float = 1.5
    look_s: float = 0.02


DEFAULT_LIMITS = ProcessLimits()


class Process(msgspec.Struct, frozen=True):
    """One role of a process, its report, and the metrics of the whole process."""

    presence: Presence
    report: Mapping[str, Any]
    samples: Samples


class SupervisedProcess(msgspec.Struct, frozen=True):
    """A process as `penstock up` sees it."""

    name: str
    state: str
    pid: int | None
    restarts: int


class Reading(msgspec.Struct, frozen=True):
    """All processes at one time, and the sums of their metrics."""

    taken_s: float
    processes: Sequence[Process]
    sums: Samples
    supervised: Sequence[SupervisedProcess]
    before: Samples | None = None  # the sums `span_s` earlier
    span_s: float = 0.0


class ProcessWatch:
    """Reads the pages of all processes."""

    def __init__(
        self,
        directory: Directory,
        client: aiohttp.ClientSession,
        clock: Clock,
        *,
        token_file: str = "",
        supervisor_url: str = "",
        limits: ProcessLimits = DEFAULT_LIMITS,
    ) -> None:
        self._directory = directory
        self._client = client
        self._pages = Pages(client, token_file)
        self._clock = clock
        self._supervisor_url = supervisor_url
        self._token_file = token_file
        self._limits = limits
        self._earlier: deque[tuple[float, Samples]] = deque(maxlen=limits.points_max)

    async def read(self) -> Reading:
        """A new reading; `Invalid` if the metrics need a token that this process does not have."""
        if not self._earlier:
            await self._hear_all()
        found = [each for role in ROLES for each in self._directory.live(role)]
        reports = await asyncio.gather(*(self._pages.report(each) for each in found))
        addresses = {each.http: each for each in found}
        texts = await asyncio.gather(*(self._pages.metrics_text(each) for each in addresses.values()))
        samples, sums = await asyncio.to_thread(_parsed, texts)
        parsed = dict(zip(addresses, samples, strict=True))
        now_s = self._clock.monotonic_s()
        recent = [each for each in self._earlier if now_s - each[0] <= self._limits.window_s]
        self._earlier.append((now_s, sums))
        processes = [Process(each, report, parsed[each.http]) for each, report in zip(found, reports, strict=True)]
        supervised = await self._supervised()
        if not recent:
            return Reading(now_s, processes, sums, supervised)
        return Reading(now_s, processes, sums, supervised, recent[0][1], now_s - recent[0][0])

    async def _hear_all(self) -> None:
        end_s = self._clock.monotonic_s() + self._limits.first_s
        while not all(map(self._directory.live, NEEDED_ROLES)) and self._clock.monotonic_s() < end_s:  # noqa: ASYNC110
            await asyncio.sleep(self._limits.look_s)

    async def _supervised(self) -> list[SupervisedProcess]:
        if not self._supervisor_url:
            return []
        try:
            headers = {"Authorization": f"Bearer {read_token(self._token_file)}"} if self._token_file else {}
            async with self._client.get(f"{self._supervisor_url}/processes", headers=headers) as answer:
                return msgspec.json.decode(await answer.read(), type=list[SupervisedProcess])
        except (aiohttp.ClientError, TimeoutError, msgspec.DecodeError, Invalid):
            return []


def _parsed(texts: Sequence[str]) -> tuple[list[Samples], Samples]:
    """The samples of each page, and their sums."""
    found = [samples_of(each) for each in texts]
    return found, summed(found)

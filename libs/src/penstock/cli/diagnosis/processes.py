"""The processes of a cluster, as they announce themselves, and their pages of health and metrics."""

import asyncio
import os
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import msgspec
from prometheus_client.parser import text_string_to_metric_families

from penstock.contracts.errors import Invalid
from penstock.contracts.messages import Presence
from penstock.runtime.bus.bus import Bus
from penstock.runtime.bus.presence import Directory, PresenceLimits
from penstock.runtime.clock import SystemClock
from penstock.runtime.process.http_token import read_token

ROLES = ("gateway", "flusher", "sequencer", "cacher", "compactor", "janitor")
TOKEN_VARIABLE = "PENSTOCK_HTTP_TOKEN_FILE"  # noqa: S105  the name of a variable
HELPERS = ("compactor", "janitor")  # clients are served without them
METRICS_PATH = "/metrics"
ANSWER_TIMEOUT_S = 5.0


class ListenLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How long a command listens for announcements; each process announces itself once a second."""

    quiet_s: float = 1.5  # it ends when no new process was heard for so long
    listen_s_max: float = 6.0  # also if a service that clients need is missing
    poll_s: float = 0.1


LISTEN_LIMITS = ListenLimits()

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]  # by name and labels


async def find_processes(bus: Bus, cluster: str, *, limits: ListenLimits = LISTEN_LIMITS) -> list[Presence]:
    """All roles of all processes, sorted by role and name.

    It listens until no new process is heard for a while. If a service that clients need is missing, it listens longer.
    """
    clock = SystemClock()
    directory = Directory(bus, cluster, clock, limits=PresenceLimits())
    started_s = clock.monotonic_s()
    heard_s = [started_s]
    directory.on_newcomer(lambda _: heard_s.append(clock.monotonic_s()))
    await directory.open()
    try:
        while clock.monotonic_s() - started_s < limits.listen_s_max:
            is_whole = all(directory.live(role) for role in ROLES if role not in HELPERS)
            if is_whole and clock.monotonic_s() - heard_s[-1] >= limits.quiet_s:
                break
            await asyncio.sleep(limits.poll_s)
        return [each for role in ROLES for each in directory.live(role)]
    finally:
        await directory.close()


class _Report(msgspec.Struct, frozen=True):
    ready: bool
    reason: str
    degraded: dict[str, str]


class _Answer(_Report, frozen=True):
    roles: dict[str, _Report] = {}  # of a process with several


class Pages:
    """The HTTP pages of processes. Another server at the address of a process is as no answer."""

    def __init__(self, client: aiohttp.ClientSession, token_file: str) -> None:
        self._client = client
        self._token_file = token_file

    async def report(self, process: Presence) -> dict[str, Any]:
        """The answer at `/ready`, also if the process is not ready; a reason if it does not answer."""
        try:
            found = msgspec.json.decode(await self._read(process, "/ready", (200, 503)), type=_Answer)
        except (aiohttp.ClientError, TimeoutError, ValueError, msgspec.DecodeError):
            return {"ready": False, "reason": f"no answer at {process.http}", "degraded": {}}
        own = found.roles.get(process.role, found)
        return {"ready": own.ready, "reason": own.reason, "degraded": own.degraded}

    async def metrics(self, processes: Sequence[Presence]) -> Samples:
        """The sum of each sample over all processes; `Invalid` if their pages need a token."""
        addresses = sorted({each.http: each for each in processes}.items())
        texts = await asyncio.gather(*(self.metrics_text(process) for _, process in addresses))
        return summed(samples_of(text) for text in texts)

    async def metrics_text(self, process: Presence) -> str:
        """The metrics page of a process, "" if it does not answer; `Invalid` if it needs a token."""
        try:
            return await self._read(process, METRICS_PATH, (200,))
        except aiohttp.ClientResponseError as error:
            if error.status == 401:
                raise Invalid(f"the metrics of {process.instance} need the token in {TOKEN_VARIABLE}") from error
            return ""
        except (aiohttp.ClientError, TimeoutError, ValueError):
            return ""

    async def _read(self, process: Presence, path: str, statuses: Sequence[int]) -> str:
        # Readiness needs no token.
        has_token = bool(self._token_file) and path == METRICS_PATH
        headers = {"Authorization": f"Bearer {read_token(self._token_file)}"} if has_token else {}
        async with self._client.get(f"http://{process.http}{path}", headers=headers) as answer:
            if answer.status not in statuses:
                answer.raise_for_status()
            return await answer.text()


def samples_of(text: str) -> Samples:
    """The samples of a metrics page; none if the text is not one."""
    try:
        return {
            (sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }
    except ValueError:
        return {}


def summed(pages: Iterable[Samples]) -> Samples:
    """The sum of each sample over all processes; the role of a shared process is no difference."""
    sums: Samples = {}
    for page in pages:
        for (name, labels), value in page.items():
            key = (name, tuple(each for each in labels if each[0] != "role"))
            sums[key] = sums.get(key, 0.0) + value
    return sums


@asynccontextmanager
async def opened_pages() -> AsyncIterator[Pages]:
    """The pages for the length of a block, with the token of the environment."""
    timeout = aiohttp.ClientTimeout(total=ANSWER_TIMEOUT_S)
    async with aiohttp.ClientSession(timeout=timeout) as client:
        yield Pages(client, os.environ.get(TOKEN_VARIABLE, ""))

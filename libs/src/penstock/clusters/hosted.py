"""One cluster in a process that hosts several: its app lives, fails, waits, and lives again, until it must stop."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Protocol

import msgspec
import structlog

from penstock.clusters.watch import INTERVAL_S
from penstock.runtime.clock import Clock
from penstock.runtime.process.config import HostingConfig
from penstock.runtime.process.life import App, Life, LifeLimits
from penstock.runtime.process.shared_host import SharedHost

log = structlog.get_logger()


class HostingLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of a process that hosts clusters."""

    # Clusters that open and replay their journals at the same time. The first ones serve before the last ones begin.
    starts_max: int = 8
    # A start that takes longer makes room for others: a cluster whose store or journal hangs must not block them.
    start_s_max: float = 30.0
    # Before a failed cluster starts again; doubled with each further failure.
    first_pause_s: float = 2.0
    pause_max_s: float = 300.0
    lasting_s: float = 60.0  # after such a run, the next pause is the first one again
    watch_interval_s: float = INTERVAL_S  # between two looks at the registry
    # A full collection stops the process for 40 ms at 200,000 objects.
    collect_interval_s: float = 600.0
    life: LifeLimits = LifeLimits()


class Failures(Protocol):
    """Counts the failures of one cluster."""

    def inc(self) -> None: ...


class CollectGarbage:
    """Frees the state of clusters that ended, which may be frozen (`garbage`); not too often."""

    def __init__(self, clock: Clock, collect: Callable[[], None], interval_s: float) -> None:
        self._clock = clock
        self._collect = collect
        self._interval_s = interval_s
        self._due_s = 0.0

    def __call__(self) -> None:
        """Collect if the last collection was long enough ago. Otherwise the next cluster that ends does it."""
        if self._clock.monotonic_s() >= self._due_s:
            self._collect()
            self._due_s = self._clock.monotonic_s() + self._interval_s


class Hosted:
    """One cluster. Its states are `starting`, `serving` and `failed`."""

    def __init__(
        self,
        *,
        config: HostingConfig,
        created_id: str,
        make: Callable[..., App],
        shared: SharedHost,
        slots: asyncio.Semaphore,
        clock: Clock,
        failures: Failures,
        collect: Callable[[], None],
        freeze: Callable[[], None],
        limits: HostingLimits,
    ) -> None:
        """`slots` limits the clusters that start at the same time."""
        self.created_id = created_id
        self.stop = asyncio.Event()
        self.state = "starting"
        self.problem = ""  # why the cluster is not served; "" while it is, or before its first failure
        self.app: App | None = None
        self._config = config
        self._make = make
        self._shared = shared
        self._slots = slots
        self._clock = clock
        self._failures = failures
        self._collect = collect
        self._freeze = freeze
        self._limits = limits
        self._served_s = 0.0  # when the present life began to serve
        self._has_slot = False

    @property
    def is_new(self) -> bool:
        """Whether the cluster neither served nor failed yet."""
        return self.state == "starting" and not self.problem

    async def run(self) -> None:
        """Serve the cluster until `stop` is set; no failure of the cluster leaves this method."""
        pause_s = self._limits.first_pause_s
        while not self.stop.is_set():
            await self._take_slot()
            timer = asyncio.get_running_loop().call_later(self._limits.start_s_max, self._free_slot)
            try:
                await self._live()
            finally:
                timer.cancel()
                self._free_slot()
            if self.stop.is_set():
                return
            if self._served_s and self._clock.monotonic_s() - self._served_s >= self._limits.lasting_s:
                pause_s = self._limits.first_pause_s
            log.warning("cluster_failed", reason=self.problem, pause_s=pause_s)
            await self._wait(pause_s)
            pause_s = min(2 * pause_s, self._limits.pause_max_s)

    async def _live(self) -> None:
        """One life of the app; its failure is `problem`."""
        name, self._served_s = self._config.cluster, 0.0
        life = None
        try:
            self.app = self._make(self._config, make_host=self._shared.host_maker(name, self._on_ready))
            life = Life(self.app, self._config.drain_deadline_ms / 1000, self._report, self._limits.life, self._freeze)
            await life.live(self.stop)
        except Exception as error:  # noqa: BLE001  the boundary: one cluster must not end the others
            self._report("make", error)
        finally:
            self.app = life = None
            self._shared.remove(name)
            self._collect()
        if not self.stop.is_set():
            self._failures.inc()

    def _report(self, step: str, cause: BaseException) -> bool:
        self.state, self.problem = "failed", str(cause) or type(cause).__name__  # until it serves again
        return False  # the life logs it, too

    def _on_ready(self) -> None:
        self.state, self.problem = "serving", ""
        self._served_s = self._clock.monotonic_s()
        self._free_slot()

    async def _take_slot(self) -> None:
        await self._slots.acquire()
        self._has_slot = True

    def _free_slot(self) -> None:
        if self._has_slot:
            self._has_slot = False
            self._slots.release()

    async def _wait(self, pause_s: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                await self.stop.wait()

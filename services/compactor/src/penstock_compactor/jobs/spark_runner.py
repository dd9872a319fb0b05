"""Manages the Spark session: starts it for the first job, ends it when idle, and replaces it when broken.

All clusters of a process share it. Each has a pool of Spark's fair scheduler, so that all get their part of the cores.

Spark's calls block, so each runs in its own thread. The process does not wait for these threads when it ends. If a task
is cancelled while it waits for a call, its Spark jobs are cancelled too.
"""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

import structlog

from penstock.contracts.errors import Unavailable
from penstock.runtime.clock import Clock
from penstock_compactor.jobs.threads import in_thread
from penstock_compactor.metrics import SparkMetrics

log = structlog.get_logger()

Result = TypeVar("Result")
POOL = "spark.scheduler.pool"  # of the jobs of a thread
CLOSE_S = 3.0  # shorter than the time that a process has to close
CANCEL_AGAIN_S = 0.5  # between two cancellations of work that goes on


class SparkRunner:
    """`open_session` and `close_session` start and end a session, `is_alive` checks one; all three block."""

    def __init__(
        self,
        *,
        open_session: Callable[[], Any],
        close_session: Callable[[Any], None],
        is_alive: Callable[[Any], bool],
        clock: Clock,
        metrics: SparkMetrics,
        close_s: float = CLOSE_S,
        cancel_again_s: float = CANCEL_AGAIN_S,
    ) -> None:
        self._open_session = open_session
        self._close_session = close_session
        self._is_alive = is_alive
        self._clock = clock
        self._metrics = metrics
        self._close_s = close_s
        self._cancel_again_s = cancel_again_s
        self._session: Any = None
        self._users = 0
        self._used_s = clock.monotonic_s()
        self._lock = asyncio.Lock()  # held for the start and the end of a session

    async def run(
        self,
        group: str,
        work: Callable[[Any], Result],
        *,
        pool: str = "",
        on_cancel: Callable[[], None] = lambda: None,
    ) -> Result:
        """Run `work` with the session in a thread, and return its result; `group` names its Spark jobs.

        The jobs of a `pool` share its part of the cores. `on_cancel` ends waits of `work` for anything but Spark.

        `Unavailable` if Spark does not start, or fails.
        """
        session = await self._begin()
        working = asyncio.ensure_future(in_thread(lambda: _in_group(session, group, pool, work)))
        try:
            return await asyncio.shield(working)
        except asyncio.CancelledError:
            on_cancel()
            await self._until_cancelled(session, group, working)
            raise
        except Exception as error:  # from Spark, its bridge or a worker: only the job has failed
            raise Unavailable(f"spark failed: {type(error).__name__}: {_first_line(error)}") from error
        finally:
            self._users -= 1
            self._used_s = self._clock.monotonic_s()

    async def end_if_idle(self, idle_s: float) -> None:
        """End the session if it was idle for so long, or is broken."""
        if self._lock.locked():
            return  # it starts or ends now
        async with self._lock:
            if self._session is None or self._users:
                return
            if self._clock.monotonic_s() - self._used_s >= idle_s or not await in_thread(self._probe):
                await self._end()

    async def close(self) -> None:
        """End the session. One that takes long, as on a busy cluster, ends after this process: it reads its pipe."""
        try:
            async with asyncio.timeout(self._close_s), self._lock:
                if self._session is not None:
                    await self._end()
        except TimeoutError:
            log.warning("spark_session_left", after_s=self._close_s)

    async def _begin(self) -> Any:
        async with self._lock:
            if self._session is not None and not self._users and not await in_thread(self._probe):
                log.warning("spark_session_broken")
                await self._end()
            if self._session is None:
                began_s = self._clock.monotonic_s()
                try:
                    self._session = await in_thread(self._open_session)
                except Exception as error:  # for example no Java, memory or master: only the job has failed
                    raise Unavailable(f"spark does not start: {_first_line(error)}") from error
                self._metrics.sessions.inc()
                self._metrics.is_session_open.set(1)
                log.info("spark_session_started", seconds=round(self._clock.monotonic_s() - began_s, 1))
            self._users += 1
            return self._session

    async def _until_cancelled(self, session: Any, group: str, working: "asyncio.Future[Result]") -> None:
        """Cancel the Spark jobs of a group until the work ends. It may be before the first one, or between two."""
        while not working.done():
            try:
                await in_thread(lambda: session.sparkContext.cancelJobGroup(group))
            except Exception as error:  # noqa: BLE001  of the bridge to a dead JVM; the work gets one, too
                log.warning("spark_jobs_not_cancelled", group=group, reason=_first_line(error))
            await asyncio.wait([working], timeout=self._cancel_again_s)
        if not working.cancelled():
            working.exception()  # retrieved, so that asyncio does not log it

    async def _end(self) -> None:
        session, self._session = self._session, None
        self._metrics.is_session_open.set(0)
        await in_thread(lambda: self._close_session(session))
        log.info("spark_session_ended")

    def _probe(self) -> bool:
        return self._is_alive(self._session)


def _in_group(session: Any, group: str, pool: str, work: Callable[[Any], Result]) -> Result:
    session.sparkContext.setJobGroup(group, group, interruptOnCancel=True)
    if pool:
        session.sparkContext.setLocalProperty(POOL, pool)
    return work(session)


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0]

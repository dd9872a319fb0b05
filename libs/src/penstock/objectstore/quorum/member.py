"""One store of a quorum: opened when it answers, with a time-out for each call, and with a record of its health."""

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import msgspec
import structlog

from penstock.contracts.codec import Buffer
from penstock.contracts.errors import Conflict, Invalid, PenstockError, Unavailable
from penstock.objectstore.errors import Full, NotFound
from penstock.objectstore.limits import QuorumLimits
from penstock.objectstore.quorum.metrics import QuorumMetrics
from penstock.objectstore.store import ObjectStore

log = structlog.get_logger()

DEGRADED = "landing stores"  # the name of the problem in the health report

Result = TypeVar("Result")
Opener = Callable[[], Awaitable[ObjectStore]]
SetDegraded = Callable[[str, str], None]  # takes a name and a reason, "" at the end of the problem


class _Put(msgspec.Struct, frozen=True):
    """A put that its caller does not wait for."""

    key: str
    size_bytes: int


class Member:
    """One store, which may be absent for any time. Each call ends in time, or raises `Unavailable`."""

    def __init__(
        self,
        name: str,
        opener: Opener,
        *,
        monotonic_s: Callable[[], float],
        limits: QuorumLimits,
        metrics: QuorumMetrics | None = None,
        set_degraded: SetDegraded = lambda _name, _reason: None,
    ) -> None:
        self.name = name
        self._opener = opener
        self._monotonic_s = monotonic_s
        self._limits = limits
        self._metrics = metrics
        self._set_degraded = set_degraded
        self._opening: asyncio.Task[ObjectStore] | None = None
        self._opened_s = -math.inf  # the start of the newest attempt to open it
        self._failing_since_s: float | None = None
        self._read_s = 0.0  # the usual time of a read, as measured at `_read_at_s`
        self._read_at_s = 0.0
        self._behind: dict[asyncio.Task[None], _Put] = {}  # puts that their callers do not wait for

    @property
    def is_failing(self) -> bool:
        """Whether its last request failed."""
        return self._failing_since_s is not None

    @property
    def is_gone(self) -> bool:
        """Whether it has not answered for a long time."""
        since_s = self._failing_since_s
        return since_s is not None and self._monotonic_s() - since_s >= self._limits.gone_after_s

    @property
    def read_s(self) -> float:
        """The expected time of a read. It falls with time, so that a slow store is tried again later."""
        passed_s = self._monotonic_s() - self._read_at_s
        return float(self._read_s * 0.5 ** (passed_s / self._limits.read_half_life_s))

    def has_place(self, size_bytes: int) -> bool:
        """Whether it is not too far behind for one more put."""
        limits = self._limits
        has_place = (
            len(self._behind) < limits.behind_puts_max and self._behind_bytes + size_bytes <= limits.behind_bytes_max
        )
        if not has_place:
            self._count("skipped")
        return has_place

    def leave_behind(self, put: "asyncio.Task[None]", key: str, size_bytes: int) -> None:
        """Let a put end without a caller."""
        self._behind[put] = _Put(key, size_bytes)
        self._measure_behind()
        put.add_done_callback(self._ended)

    async def call(self, work: Callable[[ObjectStore], Awaitable[Result]], *, is_read: bool = False) -> Result:
        """The result of a call to the store; raises its errors, and `Unavailable` after the time-out."""
        began_s = self._monotonic_s()
        try:
            async with asyncio.timeout(self._limits.call_s_max):
                result = await work(await self._opened())
        except TimeoutError as error:
            reason = f"no answer within {self._limits.call_s_max:g} s"
            self._record_failed(began_s, reason)
            raise Unavailable(f"{self.name}: {reason}") from error
        except PenstockError as error:
            if is_answer(error) or (is_read and isinstance(error, Invalid)):  # perhaps the range is wrong
                self._record_answered()
            else:
                self._record_failed(began_s, str(error))
            raise
        except asyncio.CancelledError:
            if self._monotonic_s() - began_s >= self._limits.last_answer_s:
                self._record_failed(began_s, "no answer before its caller gave up")
            raise
        self._record_answered()
        return result

    async def read(self, work: Callable[[ObjectStore], Awaitable[Result]]) -> Result:
        """As `call`, and measure the time for the order of reads."""
        began_s = self._monotonic_s()
        try:
            result = await self.call(work, is_read=True)
        except Unavailable:
            self._record_read(self._limits.call_s_max)
            raise
        except asyncio.CancelledError:  # another store was faster
            self._record_read(self._monotonic_s() - began_s)
            raise
        self._record_read(self._monotonic_s() - began_s)
        return result

    async def put(self, key: str, body: Sequence[Buffer]) -> None:
        """Store the object; an object with the same bytes is success."""
        try:
            try:
                await self.call(lambda store: store.put(key, body))
            except Conflict:
                if not await self._has_equal(key, body):
                    raise
            self._count("stored")
        except Conflict:
            self._count("conflict")
            log.warning("landing_object_conflicts", store=self.name, key=key)
            raise
        except PenstockError:
            self._count("failed")
            raise

    async def delete(self, keys: Sequence[str]) -> None:
        """Delete the objects, also those whose puts have no caller any more."""
        wanted = dict.fromkeys(keys)
        await self._end_behind([task for task, put in self._behind.items() if put.key in wanted])
        await self.call(lambda store: store.delete(keys))

    async def close(self) -> None:
        """End the puts without a caller, and close the store."""
        await self._end_behind([*self._behind])
        if self._opening is not None:
            await end([self._opening])
            if not self._opening.cancelled() and self._opening.exception() is None:
                await self._opening.result().close()

    async def _opened(self) -> ObjectStore:
        """The store; a failed attempt to open it is repeated after a pause."""
        opening = self._opening
        is_failed = opening is not None and opening.done() and (opening.cancelled() or opening.exception() is not None)
        if opening is None or (is_failed and self._monotonic_s() - self._opened_s >= self._limits.reopen_s):
            self._opened_s = self._monotonic_s()
            opening = self._opening = asyncio.ensure_future(self._opener())
            opening.add_done_callback(_retrieve)
        return await asyncio.shield(opening)

    async def _end_behind(self, puts: "Sequence[asyncio.Task[None]]") -> None:
        if puts:
            await asyncio.wait(puts, timeout=self._limits.end_s_max)
            await end(puts)

    @property
    def _behind_bytes(self) -> int:
        return sum(put.size_bytes for put in self._behind.values())

    async def _has_equal(self, key: str, body: Sequence[Buffer]) -> bool:
        try:
            stored = await self.call(lambda store: store.get(key))
        except NotFound:
            return False
        return stored == b"".join(body)

    def _ended(self, put: "asyncio.Task[None]") -> None:
        del self._behind[put]
        self._measure_behind()
        _retrieve(put)

    def _measure_behind(self) -> None:
        if self._metrics is not None:
            self._metrics.behind_bytes.labels(self.name).set(self._behind_bytes)

    def _count(self, outcome: str) -> None:
        if self._metrics is not None:
            self._metrics.puts.labels(self.name, outcome).inc()

    def _record_read(self, taken_s: float) -> None:
        usual_s = self.read_s
        self._read_s = taken_s if taken_s > usual_s else (3 * usual_s + taken_s) / 4
        self._read_at_s = self._monotonic_s()

    def _record_answered(self) -> None:
        if self._metrics is not None:
            self._metrics.up.labels(self.name).set(1)
        if self._failing_since_s is not None:
            self._failing_since_s = None
            log.info("landing_store_answers", store=self.name)
            self._set_degraded(f"{DEGRADED}: {self.name}", "")

    def _record_failed(self, began_s: float, reason: str) -> None:
        if self._metrics is not None:
            self._metrics.up.labels(self.name).set(0)
        if self._failing_since_s is None:
            self._failing_since_s = began_s
            log.warning("landing_store_fails", store=self.name, reason=reason)
        if self._monotonic_s() - self._failing_since_s >= self._limits.degraded_after_s:
            text = f"{self.name} fails, and the two other landing stores do its work: {reason}"
            self._set_degraded(f"{DEGRADED}: {self.name}", text)


def is_answer(error: PenstockError) -> bool:
    """Whether a store that works can answer so; a missing right or bucket is no such answer."""
    return isinstance(error, NotFound | Full) or not isinstance(error, Unavailable | Invalid)


def _retrieve(task: "asyncio.Task[Result]") -> None:
    """Mark the error of a task as seen: it is recorded, or raised to a later caller."""
    if not task.cancelled():
        task.exception()


async def end(tasks: "Sequence[asyncio.Task[Result]]") -> None:
    """Cancel tasks, and return when all have ended."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)

"""A wrapper that retries calls with growing pauses up to a deadline, and finds the result of puts in doubt."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import structlog

from penstock.contracts.codec import Buffer
from penstock.contracts.errors import Conflict, Unavailable
from penstock.objectstore.errors import NotDeleted, NotFound
from penstock.objectstore.limits import DEFAULT_LIMITS, RetryLimits
from penstock.objectstore.store import LIST_LIMIT_MAX, Listing, ObjectStore, PartedPut, Unfinished, check_keys
from penstock.runtime.clock import SystemClock

log = structlog.get_logger()

Result = TypeVar("Result")


class RetryingStore:
    """Retries after `Unavailable` until the deadline, then raises the last one; passes every other answer on."""

    def __init__(
        self,
        inner: ObjectStore,
        *,
        jitter: Callable[[], float],  # uniform from 0 to 1
        limits: RetryLimits = DEFAULT_LIMITS.retry,
        monotonic_s: Callable[[], float] | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._inner = inner
        self._jitter = jitter
        self._limits = limits
        self._monotonic_s = monotonic_s or SystemClock().monotonic_s
        self._sleep = sleep

    @property
    def has_local_reads(self) -> bool:
        return self._inner.has_local_reads

    async def put(self, key: str, body: Sequence[Buffer], *, if_match: str | None = None) -> str:
        """As in every store; if an earlier attempt was in doubt, an object with the same bytes means success."""
        in_doubt = False

        async def attempt() -> str:
            nonlocal in_doubt
            try:
                return await self._inner.put(key, body, if_match=if_match)
            except Unavailable:
                in_doubt = True
                raise
            except Conflict:
                if in_doubt and (etag := await self._etag_if_equal(key, body)) is not None:
                    return etag
                raise
            except asyncio.CancelledError:
                in_doubt = True
                raise

        return await self.retried(attempt, f"put of {key}")

    async def get(self, key: str) -> bytes:
        return await self.retried(lambda: self._inner.get(key), f"get of {key}")

    async def get_range(self, key: str, position: int, length: int) -> bytes:
        return await self.retried(lambda: self._inner.get_range(key, position, length), f"range of {key}")

    async def get_range_into(self, key: str, position: int, buffer: Buffer) -> None:
        await self.retried(lambda: self._inner.get_range_into(key, position, buffer), f"range of {key}")

    async def get_up_to(self, key: str, position: int, length: int) -> bytes:
        return await self.retried(lambda: self._inner.get_up_to(key, position, length), f"range of {key}")

    async def list(self, prefix: str, after: str = "", limit: int = LIST_LIMIT_MAX) -> Listing:
        return await self.retried(lambda: self._inner.list(prefix, after, limit), f"listing of {prefix}")

    async def delete(self, keys: Sequence[str]) -> None:
        """As in every store; only keys in doubt are deleted again, and `NotDeleted` names the keys still in doubt."""
        check_keys(keys)
        if not keys:
            return
        left, rejected, why = list(keys), list[str](), ""

        async def attempt() -> None:
            nonlocal left, why
            try:
                await self._inner.delete(left)
            except NotDeleted as error:
                why = error.why
                rejected.extend(error.rejected)
                left = [key for key in error.keys if key not in error.rejected]
                if left:
                    raise

        try:
            await self.retried(attempt, f"delete of {len(keys)} objects")
        except Unavailable as error:
            why = error.why if isinstance(error, NotDeleted) else str(error)
            raise NotDeleted(why, [*left, *rejected], rejected) from error
        if rejected:
            raise NotDeleted(why, rejected, rejected)

    async def begin_parts(self, key: str, part_bytes: int) -> "RetryingParts":
        """As in every store; an attempt in doubt may leave an unfinished upload, like a crash."""
        inner = await self.retried(lambda: self._inner.begin_parts(key, part_bytes), f"upload of {key}")
        return RetryingParts(self, inner, key)

    async def unfinished(self, prefix: str, limit: int = LIST_LIMIT_MAX) -> Sequence[Unfinished]:
        return await self.retried(lambda: self._inner.unfinished(prefix, limit), f"listing of uploads to {prefix}")

    async def abort_unfinished(self, unfinished: Unfinished) -> None:
        what = f"abort of an upload to {unfinished.key}"
        await self.retried(lambda: self._inner.abort_unfinished(unfinished), what)

    async def close(self) -> None:
        await self._inner.close()

    async def retried(self, call: Callable[[], Awaitable[Result]], what: str) -> Result:
        """The answer of the first attempt that gets one; raises the last `Unavailable` if there is none."""
        give_up_s = self._monotonic_s() + self._limits.deadline_s
        pause_s = self._limits.first_pause_s
        for attempt in itertools.count(1):
            try:
                return await self._attempt(call, what)
            except Unavailable as error:
                if attempt == self._limits.logged_attempt:
                    log.warning("store_call_retried", call=what, attempts=attempt, error=str(error))
                chosen_s = pause_s * (0.5 + self._jitter() / 2)
                if self._monotonic_s() + chosen_s >= give_up_s:
                    raise
                await self._sleep(chosen_s)
            pause_s = min(2 * pause_s, self._limits.pause_max_s)
        raise AssertionError("the loop ends only with an answer or at the deadline")

    async def _attempt(self, call: Callable[[], Awaitable[Result]], what: str) -> Result:
        try:
            async with asyncio.timeout(self._limits.attempt_s):
                return await call()
        except TimeoutError as error:
            raise Unavailable(f"no answer to a {what} within {self._limits.attempt_s} s") from error

    async def etag_if_sized(self, key: str, size_bytes: int) -> str | None:
        """The etag of the object with exactly this key and size, None without such an object."""
        listed = await self._inner.list(key, limit=1)
        is_match = bool(listed) and (listed[0].key, listed[0].size_bytes) == (key, size_bytes)
        return listed[0].etag if is_match else None

    async def _etag_if_equal(self, key: str, body: Sequence[Buffer]) -> str | None:
        """The etag of the object with the key, if it has the bytes of `body`."""
        etag = await self.etag_if_sized(key, sum(map(len, body)))
        if etag is None:
            return None
        try:
            stored = await self._inner.get(key)
        except NotFound:
            return None
        return etag if _is_equal(memoryview(stored), body) else None


class RetryingParts:
    """Retries every request of an upload."""

    def __init__(self, store: RetryingStore, inner: PartedPut, key: str) -> None:
        self._store = store
        self._inner = inner
        self._key = key
        self._sizes: dict[int, int] = {}

    async def put_part(self, number: int, body: Sequence[Buffer]) -> None:
        await self._store.retried(lambda: self._inner.put_part(number, body), f"part {number} of {self._key}")
        self._sizes[number] = sum(map(len, body))

    async def complete(self) -> str:
        """As in every store; if an earlier attempt was in doubt, an object of the right size means success.

        The bytes need no check: the key is as good as random, so there is no other writer of it.
        """
        in_doubt = False

        async def attempt() -> str:
            nonlocal in_doubt
            try:
                return await self._inner.complete()
            except Unavailable:
                in_doubt = True
                raise
            except (Conflict, NotFound):
                etag = await self._store.etag_if_sized(self._key, sum(self._sizes.values())) if in_doubt else None
                if etag is not None:
                    return etag
                raise
            except asyncio.CancelledError:
                in_doubt = True
                raise

        return await self._store.retried(attempt, f"completion of {self._key}")

    async def abort(self) -> None:
        await self._store.retried(self._inner.abort, f"abort of {self._key}")


def _is_equal(stored: memoryview, body: Sequence[Buffer]) -> bool:
    position = 0
    for buffer in body:
        if stored[position : position + len(buffer)] != memoryview(buffer):
            return False
        position += len(buffer)
    return position == len(stored)

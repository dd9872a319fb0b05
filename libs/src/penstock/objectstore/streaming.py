"""Streams an object of any size into a store, with only a few parts of it in memory."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from penstock.contracts.codec import Buffer
from penstock.contracts.errors import PenstockError
from penstock.objectstore.store import ObjectStore, PartedPut

PART_BYTES = 8 * 1024 * 1024  # 10,000 of them are more than any segment
PARTS_IN_FLIGHT_MAX = 3


class StreamedPut:
    """One object: call `write` as often as needed, then `finish`; or call `abort` at any time.

    Like `put` it only creates objects. An object that is smaller than a part is stored by a single put. Only one task
    may use it; after a failed `write` or `finish` the task must call `abort`.
    """

    def __init__(
        self,
        store: ObjectStore,
        key: str,
        *,
        part_bytes: int = PART_BYTES,
        parts_in_flight_max: int = PARTS_IN_FLIGHT_MAX,
    ) -> None:
        self._store = store
        self._key = key
        self._part_bytes = part_bytes
        self._parts_in_flight_max = parts_in_flight_max
        self._waiting: list[Buffer] = []  # of the next part
        self._waiting_bytes = 0
        self._upload: PartedPut | None = None
        self._parts = 0
        self._in_flight: set[asyncio.Task[None]] = set()
        self.size_bytes = 0  # of all writes

    async def write(self, data: Buffer) -> None:
        """Add bytes, which must not change before the end; waits while too many parts are in flight."""
        view = memoryview(data)
        self.size_bytes += len(view)
        while self._waiting_bytes + len(view) >= self._part_bytes:
            missing_bytes = self._part_bytes - self._waiting_bytes
            self._waiting.append(view[:missing_bytes])
            await self._send()
            view = view[missing_bytes:]
        if view:
            self._waiting.append(view)
            self._waiting_bytes += len(view)

    async def finish(self) -> str:
        """Store the object and return its etag; `AlreadyExists` if its key has an object."""
        if self._upload is None:
            return await self._store.put(self._key, self._waiting)
        if self._waiting:
            await self._send()
        while self._in_flight:
            await self._one_done()
        etag = await self._upload.complete()
        self._upload = None
        return etag

    async def abort(self) -> None:
        """Abort the upload; the janitor later deletes parts that an unreachable store has kept."""
        upload, self._upload = self._upload, None
        for task in self._in_flight:
            task.cancel()
        try:
            await asyncio.gather(*self._in_flight, return_exceptions=True)
        finally:
            self._in_flight.clear()
            self._waiting.clear()
            if upload is not None:
                with contextlib.suppress(PenstockError):
                    await upload.abort()

    async def _send(self) -> None:
        """Start to store the waiting bytes as the next part."""
        if self._upload is None:
            self._upload = await self._store.begin_parts(self._key, self._part_bytes)
        while len(self._in_flight) >= self._parts_in_flight_max:
            await self._one_done()
        body, self._waiting, self._waiting_bytes = self._waiting, [], 0
        self._in_flight.add(asyncio.create_task(self._upload.put_part(self._parts, body)))
        self._parts += 1

    async def _one_done(self) -> None:
        done, self._in_flight = await asyncio.wait(self._in_flight, return_when=asyncio.FIRST_COMPLETED)
        errors = [error for task in done if (error := task.exception()) is not None]
        if errors:
            raise errors[0]


@asynccontextmanager
async def streamed_put(
    store: ObjectStore,
    key: str,
    *,
    part_bytes: int = PART_BYTES,
    parts_in_flight_max: int = PARTS_IN_FLIGHT_MAX,
) -> AsyncIterator[StreamedPut]:
    """An object that is stored at the end of the block, and aborted if the block raises."""
    put = StreamedPut(store, key, part_bytes=part_bytes, parts_in_flight_max=parts_in_flight_max)
    is_stored = False
    try:
        yield put
        await put.finish()
        is_stored = True
    finally:
        if not is_stored:
            await put.abort()


async def put_stream(store: ObjectStore, key: str, data: AsyncIterator[Buffer]) -> int:
    """Store all bytes of `data` under a key, and return their number."""
    async with streamed_put(store, key) as put:
        async for buffer in data:
            await put.write(buffer)
    return put.size_bytes

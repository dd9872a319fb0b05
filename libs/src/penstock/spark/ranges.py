"""The object store for synchronous code such as Spark tasks: streams ranges in, and one object out.

Ranges are read ahead in parallel, within a window of bytes. `blocks` plans the requests.
"""

import asyncio
import concurrent.futures
import contextlib
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple, TypeVar

from penstock.contracts.codec import Buffer
from penstock.contracts.errors import Invalid
from penstock.objectstore import ObjectStore, open_store
from penstock.objectstore.streaming import StreamedPut
from penstock.spark.blocks import WINDOW_BYTES, Block, Cut, Range, plan_blocks

WRITE_BYTES = 1024 * 1024  # passed to the other thread at once; a pass costs as much as copying a few of these

Result = TypeVar("Result")


class Fragment(NamedTuple):
    """Bytes of the range with this number, counted from 0; a large range comes in several fragments, in order."""

    number: int
    data: memoryview
    is_last: bool  # of its range


class StoreRanges:
    """A store on its own event loop in a thread. One thread uses it and closes it."""

    def __init__(
        self,
        store_url: str,
        *,
        window_bytes: int = WINDOW_BYTES,
        opening: Callable[[str], Awaitable[ObjectStore]] = open_store,
    ) -> None:
        """`Invalid` or `Unavailable` with one clear sentence if the store cannot be used."""
        self._window_bytes = window_bytes
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="store-ranges", daemon=True)
        self._thread.start()
        try:
            self._store = self._start(_awaited(opening(store_url))).result()
        except BaseException:
            self._end_loop()
            raise

    def __enter__(self) -> "StoreRanges":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the store and end the thread."""
        self._start(self._store.close()).result()
        self._end_loop()

    def call(self, work: Callable[[ObjectStore], Coroutine[Any, Any, Result]]) -> Result:
        """Call the store and return the result."""
        return self._start(work(self._store)).result()

    def stream(self, ranges: Sequence[Range | tuple[str, int, int]]) -> Iterator[Fragment]:
        """The bytes of all ranges in their order; an error of the store is raised in place of its bytes.

        The memory of a fragment is free again when neither the caller nor a later fragment needs its block.
        """
        cuts = plan_blocks([_checked(Range(*each)) for each in ranges], self._window_bytes)
        reading = _Reading(self._start_read, cuts, self._window_bytes)
        try:
            for cut in cuts:
                data = reading.take(cut.block)
                start = cut.position - cut.block.position
                yield Fragment(cut.number, memoryview(data)[start : start + cut.length], cut.is_last)
        finally:
            reading.cancel()

    @contextlib.contextmanager
    def output(self, key: str) -> Iterator["StoreOutput"]:
        """A new object, stored if the block ends without an error; otherwise no part of it is stored."""
        put = StreamedPut(self._store, key)
        output = StoreOutput(self._start, put)
        try:
            yield output
            output.finish()
        except BaseException:
            output.cancel()
            self._start(put.abort()).result()
            raise

    def _start_read(self, block: Block) -> "Future[bytes]":
        return self._start(self._store.get_range(block.key, block.position, block.length))

    def _start(self, work: Coroutine[Any, Any, Result]) -> "Future[Result]":
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def _end_loop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class StoreOutput:
    """An object on its way to the store. The caller must not change a buffer after writing it."""

    def __init__(self, start: Callable[[Coroutine[Any, Any, None]], "Future[None]"], put: StreamedPut) -> None:
        self._start = start
        self._put = put
        self._waiting: list[Buffer] = []
        self._waiting_bytes = 0
        self._writing: Future[None] | None = None
        self.size_bytes = 0  # written so far

    def write(self, data: Buffer) -> None:
        """Add bytes; waits while the store is busy, and raises its errors."""
        self._waiting.append(data)
        self._waiting_bytes += len(data)
        self.size_bytes += len(data)
        if self._waiting_bytes >= WRITE_BYTES:
            self._start_write()

    def finish(self) -> None:
        """Store the object; `AlreadyExists` if its key has one."""
        self._start_write()
        if self._writing is not None:
            self._writing.result()
        self._start(self._finish()).result()

    def cancel(self) -> None:
        """Cancel the write in progress, and wait for its end."""
        if self._writing is not None:
            self._writing.cancel()
            concurrent.futures.wait([self._writing])

    def _start_write(self) -> None:
        if self._writing is not None:
            self._writing.result()
        self._writing = self._start(self._write(self._waiting))
        self._waiting, self._waiting_bytes = [], 0

    async def _write(self, buffers: Sequence[Buffer]) -> None:
        for buffer in buffers:
            await self._put.write(buffer)

    async def _finish(self) -> None:
        await self._put.finish()


class _Reading:
    """Blocks in progress: requested in order within the window, kept until their last fragment was cut."""

    def __init__(self, start: Callable[[Block], "Future[bytes]"], cuts: Sequence[Cut], window_bytes: int) -> None:
        self._start = start
        self._waiting = deque(dict.fromkeys(cut.block for cut in cuts))
        self._begun: dict[Block, Future[bytes]] = {}
        self._uses_left = {block: block.uses for block in self._waiting}
        self._left_bytes = window_bytes
        self._spent: Block | None = None  # the caller still uses its last fragment

    def take(self, block: Block) -> bytes:
        """The bytes of the block of the next fragment."""
        if self._spent is not None:
            self._left_bytes += self._spent.length
            self._spent = None
        while block not in self._begun or (self._waiting and self._waiting[0].length <= self._left_bytes):
            begun = self._waiting.popleft()
            self._begun[begun] = self._start(begun)
            self._left_bytes -= begun.length
        data = self._begun[block].result()
        self._uses_left[block] -= 1
        if not self._uses_left[block]:
            del self._begun[block], self._uses_left[block]
            self._spent = block
        return data

    def cancel(self) -> None:
        """Cancel the reads in progress."""
        for future in self._begun.values():
            future.cancel()
        self._begun.clear()


def _checked(each: Range) -> Range:
    if each.position < 0 or each.length < 1:
        raise Invalid(f"an impossible range: {each.length} bytes at {each.position} of {each.key}")
    return each


async def _awaited(work: Awaitable[Result]) -> Result:
    return await work

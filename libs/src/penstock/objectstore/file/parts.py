"""Uploads in parts to a folder: one staged file per upload, which is linked to its object's name at the end."""

import asyncio
import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from penstock.contracts.codec import Buffer
from penstock.contracts.errors import Unavailable
from penstock.objectstore.errors import NotFound
from penstock.objectstore.file.disk import discard, run_in, submit, sync_data, uncache, write_all
from penstock.objectstore.store import PartSizes


class FileParts:
    """One staged file with each part at its position; each part is synced, so that the last sync is short.

    A thread that writes a part runs to its end even if no task waits for it any more. So each thread opens the file
    itself, and `complete` waits until all threads have ended.
    """

    def __init__(
        self,
        pool: ThreadPoolExecutor,
        staged: Path,
        key: str,
        part_bytes: int,
        *,
        seal: Callable[[int], str],
        publish: Callable[[Path, str], None],
        platform: str,
    ) -> None:
        self._pool = pool
        self._staged = staged
        self._key = key
        self._part_bytes = part_bytes
        self._seal = seal
        self._publish = publish
        self._platform = platform
        self._sizes = PartSizes(key, part_bytes)
        self._writing: set[Future[None]] = set()

    def create(self) -> None:
        """Create the file; blocks."""
        os.close(os.open(self._staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644))

    async def put_part(self, number: int, body: Sequence[Buffer]) -> None:
        size = self._sizes.check(number, body)
        writing = submit(self._pool, lambda: self._write(number, body, size))
        self._writing.add(writing)
        writing.add_done_callback(self._writing.discard)
        await asyncio.wrap_future(writing)
        self._sizes.record(number, size)

    async def complete(self) -> str:
        size_bytes = self._sizes.check_complete()
        writing = tuple(self._writing)  # of this moment, because threads that end remove theirs
        if writing:
            await asyncio.wait([asyncio.wrap_future(each) for each in writing])
        return await run_in(self._pool, lambda: self._complete(size_bytes))

    async def abort(self) -> None:
        await run_in(self._pool, lambda: discard(self._staged))

    def _write(self, number: int, body: Sequence[Buffer], size: int) -> None:
        descriptor = self._open()
        try:
            position = number * self._part_bytes
            os.lseek(descriptor, position, os.SEEK_SET)
            write_all(descriptor, body)
            sync_data(descriptor, self._platform)
            uncache(descriptor, position, size, self._platform)  # few readers need a merged segment soon
        finally:
            os.close(descriptor)

    def _complete(self, size_bytes: int) -> str:
        descriptor = self._open()
        try:
            if os.fstat(descriptor).st_size != size_bytes:
                raise Unavailable(f"a part is not written yet: {self._key}")
            etag = self._seal(descriptor)
        finally:
            os.close(descriptor)
        self._publish(self._staged, self._key)
        discard(self._staged)
        return etag

    def _open(self) -> int:
        try:
            return os.open(self._staged, os.O_WRONLY | os.O_CLOEXEC)
        except FileNotFoundError as error:
            raise NotFound(f"no upload in progress: {self._key}") from error

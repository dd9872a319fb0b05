"""Uploads in parts to Google Cloud Storage: hidden objects, which become one hidden object, which is then copied.

Google has no condition for the end of its own uploads in parts, but for copies. So each object is written twice.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import obstore

from penstock.contracts.codec import Buffer
from penstock.contracts.errors import Unavailable
from penstock.objectstore.clouds.errors import translated
from penstock.objectstore.clouds.store import Objects, Upload, abort_upload, check_begun, plain_etag
from penstock.objectstore.errors import NotFound
from penstock.objectstore.store import PartSizes

WHOLE = "whole"
_CHUNKS_PARALLEL = 3  # parts in memory while they are joined; the reader holds one more


async def begin_object_parts(objects: Objects, upload: Upload) -> "ObjectParts":
    """The upload, of which `Objects` has the first hidden object."""
    return ObjectParts(objects, upload)


class ObjectParts:
    """Each part is a hidden object until the end."""

    def __init__(self, objects: Objects, upload: Upload) -> None:
        self._objects = objects
        self._upload = upload
        self._sizes = PartSizes(upload.key, upload.part_bytes)
        self._count = 0
        self._joining: asyncio.Task[None] | None = None  # by the first `complete`; a repeated one waits for it again

    async def put_part(self, number: int, body: Sequence[Buffer]) -> None:
        size = self._sizes.check(number, body)
        self._joining = None  # the joined object is old now
        await self._objects.put(self._part(number), body, "overwrite")
        # After the put, so that either this process or the one that aborts deletes the part.
        try:
            await check_begun(self._objects, self._upload)
        except NotFound:
            await self._objects.delete(self._part(number))
            raise
        self._sizes.record(number, size)
        self._count = max(self._count, number + 1)

    async def complete(self) -> str:
        await check_begun(self._objects, self._upload)
        self._sizes.check_complete()
        if self._joining is None or _has_failed(self._joining):
            self._joining = asyncio.create_task(self._join())
        # An attempt that is given up does not end the work of the next one.
        await asyncio.shield(self._joining)
        etag = await self._publish()
        await abort_upload(self._objects, self._upload)
        return etag

    async def abort(self) -> None:
        if self._joining is not None:
            self._joining.cancel()
            await asyncio.wait([self._joining])
        await abort_upload(self._objects, self._upload)

    async def _join(self) -> None:
        """Make one hidden object of all parts, with a few of them in memory."""
        whole = self._objects.prefix + self._upload.folder + WHOLE
        with translated(self._upload.key):
            await obstore.put_async(
                self._objects.client,
                whole,
                self._stored_parts(),
                use_multipart=True,
                chunk_size=self._upload.part_bytes,
                max_concurrency=_CHUNKS_PARALLEL,
            )

    async def _stored_parts(self) -> AsyncIterator[Any]:
        for number in range(self._count):
            try:
                yield await self._objects.read(self._part(number))
            except NotFound as error:
                raise Unavailable(f"part {number} is gone: {self._upload.key}") from error

    async def _publish(self) -> str:
        """Copy the hidden object to its key, unless there is an object."""
        objects, key = self._objects, self._upload.key
        with translated(key):
            await obstore.copy_async(
                objects.client,
                objects.prefix + self._upload.folder + WHOLE,
                objects.prefix + key,
                overwrite=False,
            )
        meta = await objects.head(key)
        return plain_etag(meta["e_tag"])

    def _part(self, number: int) -> str:
        return f"{self._upload.folder}{number:05}"


def _has_failed(task: asyncio.Task[None]) -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None)

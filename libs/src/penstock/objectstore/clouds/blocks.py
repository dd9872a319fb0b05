"""Uploads in parts to Azure: uncommitted blocks of the blob, which one conditional request commits.

obstore has no verb for blocks, but signs addresses. Azure deletes blocks that nothing commits within a week.
"""

import base64
import io
from collections.abc import Sequence
from datetime import timedelta
from urllib.parse import urlencode

import aiohttp
import obstore

from penstock.contracts.codec import Buffer
from penstock.objectstore.clouds.errors import code_in, error_of, translated
from penstock.objectstore.clouds.store import Objects, Upload, abort_upload, check_begun, plain_etag
from penstock.objectstore.errors import AlreadyExists, NotFound
from penstock.objectstore.store import PartSizes

CREATED = 201
_EXISTS_STATUSES = frozenset({409, 412})
_EXISTS_CODES = frozenset({"BlobAlreadyExists", "ConditionNotMet"})


class Blocks:
    """Begins uploads, with one pool of connections for all."""

    def __init__(self, session: aiohttp.ClientSession, signed_for: timedelta) -> None:
        self._session = session
        self._signed_for = signed_for

    async def begin(self, objects: Objects, upload: Upload) -> "BlockParts":
        """The upload, of which `Objects` has the first hidden object."""
        with translated(upload.key):
            address = await obstore.sign_async(objects.client, "PUT", objects.prefix + upload.key, self._signed_for)
        return BlockParts(objects, upload, self._session, address)


class BlockParts:
    """One upload; the names of its blocks have its own name, because uploads to the same key share their blob."""

    def __init__(self, objects: Objects, upload: Upload, session: aiohttp.ClientSession, address: str) -> None:
        self._objects = objects
        self._upload = upload
        self._session = session
        self._address = address
        self._sizes = PartSizes(upload.key, upload.part_bytes)
        self._count = 0

    async def put_part(self, number: int, body: Sequence[Buffer]) -> None:
        size = self._sizes.check(number, body)
        await check_begun(self._objects, self._upload)
        await self._put({"comp": "block", "blockid": self._block(number)}, b"".join(body), {})
        self._sizes.record(number, size)
        self._count = max(self._count, number + 1)

    async def complete(self) -> str:
        await check_begun(self._objects, self._upload)
        self._sizes.check_complete()
        blocks = "".join(f"<Uncommitted>{self._block(number)}</Uncommitted>" for number in range(self._count))
        body = f'<?xml version="1.0" encoding="utf-8"?><BlockList>{blocks}</BlockList>'
        etag = await self._put({"comp": "blocklist"}, body.encode(), {"If-None-Match": "*"})
        await abort_upload(self._objects, self._upload)
        return etag

    async def abort(self) -> None:
        await abort_upload(self._objects, self._upload)

    async def _put(self, parameters: dict[str, str], body: bytes, headers: dict[str, str]) -> str:
        what = self._upload.key
        with translated(what):
            place = f"{self._address}&{urlencode(parameters)}"
            async with self._session.put(place, data=io.BytesIO(body), headers=headers) as answer:
                text = await answer.text()
        if answer.status == CREATED:
            return plain_etag(answer.headers.get("ETag"))
        code = code_in(text)
        if answer.status in _EXISTS_STATUSES and code in _EXISTS_CODES:
            raise AlreadyExists(f"object exists: {what}")
        if code == "InvalidBlockList":  # another put to this key has removed the blocks
            raise NotFound(f"no upload in progress: {what}")
        raise error_of(answer.status, f"azure answered {answer.status} {code}", what)

    def _block(self, number: int) -> str:
        return base64.b64encode(f"{self._upload.name}{number:05}".encode()).decode()

"""Reads of ranges by fewer verbs, for stores that have no better way."""

from typing import Protocol

from penstock.contracts.codec import Buffer
from penstock.objectstore.errors import range_beyond
from penstock.objectstore.store import check_range, copy_into


class _Reads(Protocol):
    async def get(self, key: str) -> bytes: ...

    async def get_range(self, key: str, position: int, length: int) -> bytes: ...

    async def get_up_to(self, key: str, position: int, length: int) -> bytes: ...


class RangeReads:
    """The two reads of exact ranges of `ObjectStore`, by its `get_up_to`."""

    async def get_range(self: _Reads, key: str, position: int, length: int) -> bytes:
        data = await self.get_up_to(key, position, length)
        if len(data) != length:
            raise range_beyond(key, position, length)
        return data

    async def get_range_into(self: _Reads, key: str, position: int, buffer: Buffer) -> None:
        copy_into(buffer, await self.get_range(key, position, len(buffer)))


class WholeReads(RangeReads):
    """The three reads of ranges of `ObjectStore`, by its `get`."""

    async def get_up_to(self: _Reads, key: str, position: int, length: int) -> bytes:
        check_range(key, position, length)
        data = (await self.get(key))[position : position + length]
        if not data:
            raise range_beyond(key, position, length)
        return data

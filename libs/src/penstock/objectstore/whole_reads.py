"""Reads of ranges for a store that reads only whole objects."""

from typing import Protocol

from penstock.contracts.codec import Buffer
from penstock.objectstore.store import check_range, copy_into, range_beyond


class _Whole(Protocol):
    async def get(self, key: str) -> bytes: ...

    async def get_range(self, key: str, position: int, length: int) -> bytes: ...

    async def get_up_to(self, key: str, position: int, length: int) -> bytes: ...


class WholeReads:
    """The three reads of ranges of `ObjectStore`, by its `get`."""

    async def get_range(self: _Whole, key: str, position: int, length: int) -> bytes:
        data = await self.get_up_to(key, position, length)
        if len(data) < length:
            raise range_beyond(key, position, length)
        return data

    async def get_range_into(self: _Whole, key: str, position: int, buffer: Buffer) -> None:
        copy_into(buffer, await self.get_range(key, position, len(buffer)))

    async def get_up_to(self: _Whole, key: str, position: int, length: int) -> bytes:
        check_range(key, position, length)
        data = (await self.get(key))[position : position + length]
        if not data:
            raise range_beyond(key, position, length)
        return data

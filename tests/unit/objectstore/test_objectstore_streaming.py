"""Uploads in parts that are cancelled at any moment leave nothing in the store."""

import asyncio
import itertools
from collections.abc import Sequence

import pytest

from penstock.contracts.codec import Buffer
from penstock.objectstore.memory import MemoryStore
from penstock.objectstore.store import PART_BYTES_MIN, PartedPut
from penstock.objectstore.streaming import streamed_put
from tests.testkit.cancelling import cancelled_after, turns


class SlowParts:
    """An upload whose calls take some turns of the loop; a cancelled part takes two more to end."""

    def __init__(self, inner: PartedPut) -> None:
        self._inner = inner

    async def put_part(self, number: int, body: Sequence[Buffer]) -> None:
        try:
            await turns(3)
            await self._inner.put_part(number, body)
        except asyncio.CancelledError:
            await turns(2)
            raise

    async def complete(self) -> str:
        etag = await self._inner.complete()
        await turns(2)
        return etag

    async def abort(self) -> None:
        await self._inner.abort()
        await turns(2)


class SlowStore(MemoryStore):
    async def begin_parts(self, key: str, part_bytes: int) -> SlowParts:  # type: ignore[override]
        return SlowParts(await super().begin_parts(key, part_bytes))


@pytest.mark.parametrize("again", [None, 0, 1, 2, 3, 4])
async def test_an_upload_that_is_cancelled_at_any_moment_is_aborted(again: int | None) -> None:
    """`again`: after so many turns it is cancelled once more, as by the deadline of a drain."""
    store = SlowStore()

    async def upload(key: str) -> None:
        async with streamed_put(store, key, part_bytes=PART_BYTES_MIN, parts_in_flight_max=1) as put:
            await put.write(bytes(2 * PART_BYTES_MIN + 1))

    for count in itertools.count(1):
        if not await cancelled_after(count, upload(f"key-{count}"), again):
            break
        assert not await store.unfinished(""), f"cancelled after {count} turns"
    assert count > 10

"""`penstock doctor store` finds each guarantee that a store breaks, and leaves nothing in any store."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from penstock.cli import main
from penstock.cli.diagnosis.checks import ERROR, OK, WARNING
from penstock.cli.diagnosis.store_guarantees import FOLDER, GUARANTEES, check_guarantees
from penstock.contracts.codec import Buffer
from penstock.contracts.errors import Unavailable
from penstock.objectstore import NotFound, ObjectStore, PartedPut, Unfinished
from penstock.objectstore.file import open_file_store
from penstock.objectstore.memory import MemoryStore
from penstock.objectstore.store import LIST_LIMIT_MAX, Listing
from tests.testkit.fakes.clock import ManualClock

NOW_MS = 1_700_000_000_000


def clock() -> ManualClock:
    return ManualClock(0.0, epoch_ms=NOW_MS)


class Sound(MemoryStore):
    """A store that keeps all guarantees; each of its children breaks one."""

    def __init__(self) -> None:
        super().__init__(now_ms=lambda: NOW_MS)

    async def overwrite(self, key: str, body: Sequence[Buffer]) -> str:
        """Store an object without any condition."""
        await super().delete([key])
        return await super().put(key, body)


class Overwriting(Sound):
    """Ignores the condition that there is no object, as old servers do."""

    async def put(self, key: str, body: Sequence[Buffer], *, if_match: str | None = None) -> str:
        return await (super().put(key, body, if_match=if_match) if if_match else self.overwrite(key, body))


class CheckingBeforePut(Sound):
    """Checks the condition, and then stores, without a lock."""

    async def put(self, key: str, body: Sequence[Buffer], *, if_match: str | None = None) -> str:
        if if_match is None and not await self.list(key, limit=1):
            await asyncio.sleep(0)
            return await self.overwrite(key, body)
        return await super().put(key, body, if_match=if_match)


class KeepingTheLoser(Sound):
    """Stores the body of a rejected put."""

    async def put(self, key: str, body: Sequence[Buffer], *, if_match: str | None = None) -> str:
        try:
            return await super().put(key, body, if_match=if_match)
        except Exception:  # any rejection
            await self.overwrite(key, body)
            raise


class IgnoringEtags(Sound):
    """Replaces any version."""

    async def put(self, key: str, body: Sequence[Buffer], *, if_match: str | None = None) -> str:
        return await (self.overwrite(key, body) if if_match else super().put(key, body))


class ListingLate(Sound):
    """A listing has no object that is newer than the previous listing."""

    async def list(self, prefix: str, after: str = "", limit: int = LIST_LIMIT_MAX) -> Listing:
        return (await super().list(prefix, after, limit))[:-1]


class ListingUnsorted(Sound):
    """A listing ends where it should begin."""

    async def list(self, prefix: str, after: str = "", limit: int = LIST_LIMIT_MAX) -> Listing:
        return (await super().list(prefix, after, limit))[::-1]


class ReadingDeleted(Sound):
    """Reads of deleted objects come from a cache."""

    def __init__(self) -> None:
        super().__init__()
        self.cached: dict[str, bytes] = {}

    async def get(self, key: str) -> bytes:
        try:
            self.cached[key] = await super().get(key)
        except NotFound:
            if key not in self.cached:
                raise
        return self.cached[key]


class FillingRanges(Sound):
    """A range beyond the end has zeros."""

    async def get_range(self, key: str, position: int, length: int) -> bytes:
        return (await self.get(key))[position : position + length].ljust(length, b"\0")


class ReplacingParts(Sound):
    """The end of an upload replaces an object, as in Ceph."""

    async def begin_parts(self, key: str, part_bytes: int) -> Any:
        upload = await super().begin_parts(key, part_bytes)
        complete = upload.complete

        async def completed() -> str:
            await self.delete([key])
            return await complete()

        upload.complete = completed  # type: ignore[method-assign]
        return upload


class WithoutParts(Sound):
    """Uploads never begin."""

    async def begin_parts(self, key: str, part_bytes: int) -> Any:
        raise Unavailable("no uploads today")


class HidingUploads(Sound):
    """Unfinished uploads are not listed."""

    async def unfinished(self, prefix: str, limit: int = LIST_LIMIT_MAX) -> Sequence[Unfinished]:
        return []


class DeletingSome(Sound):
    """A delete of many objects leaves the first."""

    async def delete(self, keys: Sequence[str]) -> None:
        await super().delete(keys[1:] if len(keys) > LIST_LIMIT_MAX // 2 else keys)


class Skewed(Sound):
    """Its clock is a minute late."""

    def __init__(self) -> None:
        super().__init__()
        self._now_ms = lambda: NOW_MS - 60_000


FAULTS = [
    (Overwriting, "put only if absent", ERROR),
    (CheckingBeforePut, "racing puts", ERROR),
    (KeepingTheLoser, "put only if absent", ERROR),
    (IgnoringEtags, "replace only a version", ERROR),
    (ListingLate, "listing after put", ERROR),
    (ListingUnsorted, "listing after put", ERROR),
    (ReadingDeleted, "read after put and delete", ERROR),
    (FillingRanges, "ranges", ERROR),
    (WithoutParts, "upload in parts", ERROR),
    (ReplacingParts, "parts only if absent", WARNING),
    (HidingUploads, "unfinished uploads", WARNING),
    (DeletingSome, "delete of many", ERROR),
    (Skewed, "clock", WARNING),
]


async def marks_of(store: ObjectStore) -> dict[str, str]:
    return {each.check: each.mark for each in await check_guarantees(store, "a-test", clock())}


async def test_a_sound_store_keeps_all_guarantees_and_is_empty_afterwards(tmp_path: Path) -> None:
    for store in (Sound(), await open_file_store(tmp_path / "objects")):
        marks = await marks_of(store)
        assert list(marks) == [guarantee.name for guarantee in GUARANTEES]
        assert {name for name, mark in marks.items() if mark != OK} <= {"clock"}  # the clock of a folder is real
        assert await store.list(FOLDER) == [] and await store.unfinished(FOLDER) == []
        await store.close()


@pytest.mark.parametrize(("fault", "name", "mark"), FAULTS, ids=[fault.__name__ for fault, _, _ in FAULTS])
async def test_each_broken_guarantee_is_found(fault: type[Sound], name: str, mark: str) -> None:
    store = fault()
    found = {each.check: each for each in await check_guarantees(store, "a-test", clock())}
    assert found[name].mark == mark
    assert found[name].advice == next(each.meaning for each in GUARANTEES if each.name == name)


async def test_an_upload_that_fails_is_aborted() -> None:
    class Failing(Sound):
        async def begin_parts(self, key: str, part_bytes: int) -> Any:
            upload: PartedPut = await super().begin_parts(key, part_bytes)

            async def complete() -> str:
                raise Unavailable("no answer")

            upload.complete = complete  # type: ignore[method-assign]
            return upload

    store = Failing()
    assert (await marks_of(store))["upload in parts"] == ERROR
    assert await store.unfinished(FOLDER) == []


def test_the_command_shows_a_row_for_each_guarantee(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "store", f"file://{tmp_path}", "--output", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["check"] for row in rows] == [guarantee.name for guarantee in GUARANTEES]
    assert main(["doctor", "store"]) == 1
    assert "name the store" in capsys.readouterr().err

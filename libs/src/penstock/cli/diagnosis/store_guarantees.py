"""The checks of `penstock doctor store`: each guarantee of an object store that Penstock relies on, tried out.

Each check returns a fact, or raises `_Broken` with the fault. All objects are in one folder, which is deleted.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

import msgspec

from penstock.cli.diagnosis.checks import CLOCK_MS_MAX, ERROR, OK, WARNING, Finding
from penstock.contracts.errors import Conflict, Invalid, PenstockError
from penstock.objectstore import AlreadyExists, NotFound, ObjectInfo, ObjectStore
from penstock.objectstore.store import DELETE_KEYS_MAX, LIST_LIMIT_MAX, PART_BYTES_MIN
from penstock.runtime.clock import Clock

FOLDER = "penstock-doctor/"
RACERS = 16
RACES = 3
LISTED = 12
DELETED = 30
TIMED = 100
SMALL_BYTES = 1024
MS = 1000


class _Broken(Exception):
    """The store does not keep the guarantee; the text contains the fault."""


class Tried(msgspec.Struct, frozen=True):
    """A store to try, with a folder that nothing else uses."""

    store: ObjectStore
    folder: str
    clock: Clock


class Guarantee(msgspec.Struct, frozen=True):
    """One check, the mark if it fails, and the meaning of a failure."""

    name: str
    check: Callable[[Tried], Awaitable[str]]
    meaning: str
    mark: str = ERROR


async def check_guarantees(store: ObjectStore, name: str, clock: Clock) -> list[Finding]:
    """The findings of all checks, in order; the folder with this name is empty afterwards."""
    findings = []
    for index, guarantee in enumerate(GUARANTEES):
        tried = Tried(store, f"{FOLDER}{name}/{index}/", clock)
        try:
            findings.append(Finding(guarantee.name, OK, await guarantee.check(tried)))
        except (_Broken, PenstockError) as error:
            findings.append(Finding(guarantee.name, guarantee.mark, str(error), guarantee.meaning))
    try:
        await _clean(store, f"{FOLDER}{name}/")
    except PenstockError as error:
        findings.append(Finding("clean up", WARNING, str(error), f"delete what is below {FOLDER}{name}/"))
    return findings


async def _clean(store: ObjectStore, folder: str) -> None:
    for upload in await store.unfinished(folder):
        await store.abort_unfinished(upload)
    while listed := await store.list(folder):
        await store.delete([each.key for each in listed])


async def _put_if_absent(tried: Tried) -> str:
    store, key = tried.store, tried.folder + "a"
    await store.put(key, [b"first"])
    with contextlib.suppress(AlreadyExists):
        await store.put(key, [b"second"])
        raise _Broken("a second put to the same key was successful")
    _expect(await store.get(key) == b"first", "a rejected put changed the object")
    return "a second put is rejected"


async def _racing_puts(tried: Tried) -> str:
    for race in range(RACES):
        await _race(tried.store, f"{tried.folder}{race}", None)
    return f"{RACES} races of {RACERS} writers, one winner each"


async def _replacements(tried: Tried) -> str:
    store, key = tried.store, tried.folder + "a"
    first = await store.put(key, [b"first"])
    second = await store.put(key, [b"second"], if_match=first)
    _expect(first != second, "two versions have the same etag")
    with contextlib.suppress(Conflict):
        await store.put(key, [b"third"], if_match=first)
        raise _Broken("a put with an old etag was successful")
    _expect(await store.get(key) == b"second", "a rejected put changed the object")
    for race in range(RACES):
        key = f"{tried.folder}race-{race}"
        await _race(store, key, await store.put(key, [b"first"]))
    return f"old etags are rejected; {RACES} races of {RACERS} writers, one winner each"


async def _race(store: ObjectStore, key: str, if_match: str | None) -> None:
    """Many puts at once: exactly one is successful, and the object is the winner's."""
    racing = (store.put(key, [b"%d" % racer], if_match=if_match) for racer in range(RACERS))
    outcomes = await asyncio.gather(*racing, return_exceptions=True)
    won = [racer for racer, outcome in enumerate(outcomes) if isinstance(outcome, str)]
    _expect(len(won) == 1, f"{len(won)} of {RACERS} racing puts were successful")
    for outcome in outcomes:
        if isinstance(outcome, BaseException) and not isinstance(outcome, Conflict):
            raise outcome
    _expect(await store.get(key) == b"%d" % won[0], "the object is not that of the successful put")


async def _listings(tried: Tried) -> str:
    store, folder = tried.store, tried.folder
    keys = sorted(f"{folder}{name}{index}" for index in range(LISTED // 4) for name in ("B", "a/", "b/", "c_"))
    for count, key in enumerate(keys, 1):
        await store.put(key, [b"bytes"])
        _expect(len(await store.list(folder)) == count, "a listing has not all earlier objects, or has others")
    listed = [each.key for each in await store.list(folder)]
    _expect(listed == keys, "a listing is not in the order of the keys")
    middle = len(keys) // 2
    listed = [each.key for each in await store.list(folder, keys[middle], 2)]
    _expect(listed == keys[middle + 1 : middle + 3], "a listing does not begin above a key, or has no limit")
    return "each new object is listed at once, in the order of the keys"


async def _order(tried: Tried) -> str:
    """A folder and its neighbours: SeaweedFS lists a folder before all names that begin with the name of the folder."""
    store, folder = tried.store, tried.folder
    keys = sorted(f"{folder}{name}" for name in ("a", "a-", "a/b", "a0", "a_", "b"))
    keys.remove(f"{folder}a")  # no file system has a file and a folder with the same name
    for key in keys:
        await store.put(key, [b"bytes"])
    listed = [each.key for each in await store.list(folder)]
    _expect(listed == keys, "folders are listed before their neighbours")
    return "in the order of the bytes of keys"


async def _reads(tried: Tried) -> str:
    store, key = tried.store, tried.folder + "a"
    etag = await store.put(key, [b"first"])
    _expect(await store.get(key) == b"first", "a new object has other bytes")
    await store.put(key, [b"second"], if_match=etag)
    _expect(await store.get(key) == b"second", "a replaced object has its old bytes")
    await store.delete([key])
    with contextlib.suppress(NotFound):
        await store.get(key)
        raise _Broken("a deleted object can be read")
    _expect(not await store.list(tried.folder), "a deleted object is listed")
    return "new, replaced and deleted objects are seen at once"


async def _ranges(tried: Tried) -> str:
    store, key = tried.store, tried.folder + "a"
    data = bytes(index % 251 for index in range(SMALL_BYTES))
    await store.put(key, [data])
    _expect(await store.get_range(key, 10, 500) == data[10:510], "a range has other bytes")
    _expect(await store.get_up_to(key, 1000, 500) == data[1000:], "a range up to the end has other bytes")
    buffer = bytearray(100)
    await store.get_range_into(key, 7, buffer)
    _expect(buffer == data[7:107], "a range in a buffer has other bytes")
    for position in (SMALL_BYTES - 1, SMALL_BYTES, 10 * SMALL_BYTES):
        try:
            await store.get_range(key, position, 2)
        except NotFound:
            raise _Broken("a range beyond the end is reported as an absent object") from None
        except Invalid:
            continue
        raise _Broken("a range beyond the end has bytes")
    with contextlib.suppress(NotFound):
        await store.get_range(tried.folder + "absent", 0, 1)
        raise _Broken("an absent object has a range")
    return "exact; beyond the end is an error"


async def _parts(tried: Tried) -> str:
    store, key = tried.store, tried.folder + "a"
    first, last = bytes([1]) * PART_BYTES_MIN, b"end"
    upload = await store.begin_parts(key, PART_BYTES_MIN)
    try:
        await asyncio.gather(upload.put_part(1, [last]), upload.put_part(0, [first]))
        _expect(not await store.list(tried.folder), "an object is listed before its upload is complete")
        etag = await upload.complete()
    except BaseException:
        with contextlib.suppress(PenstockError):
            await upload.abort()
        raise
    listed = await _only_listed(tried)
    _expect((listed.size_bytes, listed.etag) == (len(first + last), etag), "the listed size or etag is another")
    _expect(await store.get_up_to(key, len(first) - 1, 9) == first[-1:] + last, "the object has other bytes")
    return "visible only when complete"


async def _parts_if_absent(tried: Tried) -> str:
    store, key = tried.store, tried.folder + "a"
    await store.put(key, [b"first"])
    upload = await store.begin_parts(key, PART_BYTES_MIN)
    try:
        await upload.put_part(0, [b"second"])
        with contextlib.suppress(AlreadyExists):
            await upload.complete()
            raise _Broken("an upload in parts replaced an object")
    finally:
        with contextlib.suppress(PenstockError):
            await upload.abort()
    _expect(await store.get(key) == b"first", "a rejected upload changed the object")
    return "an upload to an existing key is rejected"


async def _unfinished(tried: Tried) -> str:
    store = tried.store
    upload = await store.begin_parts(tried.folder + "a", PART_BYTES_MIN)
    await upload.put_part(0, [b"bytes"])
    begun = await store.unfinished(tried.folder)
    if [each.key for each in begun] != [tried.folder + "a"]:
        await upload.abort()
        raise _Broken("an unfinished upload is not listed")
    await store.abort_unfinished(begun[0])
    _expect(not await store.unfinished(tried.folder), "an aborted upload is listed")
    return "listed, and can be aborted"


async def _deletes(tried: Tried) -> str:
    store, folder = tried.store, tried.folder
    keys = [f"{folder}{index:02}" for index in range(DELETED)]
    for key in (*keys, folder + "kept"):
        await store.put(key, [b"bytes"])
    absent = [f"{folder}absent-{index}" for index in range(DELETE_KEYS_MAX - DELETED)]
    await store.delete([*keys, *absent])
    listed = [each.key for each in await store.list(folder, limit=LIST_LIMIT_MAX)]
    _expect(folder + "kept" in listed, "an object of another key was deleted")
    _expect(len(listed) == 1, f"{len(listed) - 1} of {DELETED} objects were not deleted")
    return f"{DELETE_KEYS_MAX} keys in one call, also of absent objects"


async def _clock(tried: Tried) -> str:
    before_ms = tried.clock.now_ms()
    await tried.store.put(tried.folder + "a", [b"bytes"])
    after_ms = tried.clock.now_ms()
    listed = await _only_listed(tried)
    skew_ms = max(before_ms - MS - listed.modified_ms, listed.modified_ms - after_ms, 0)  # some stores count in seconds
    _expect(skew_ms <= CLOCK_MS_MAX, f"the clock of the store differs by {skew_ms / MS:,.1f} s")
    return "the clock of the store agrees, within a second" if not skew_ms else f"differs by {skew_ms} ms"


async def _latency(tried: Tried) -> str:
    keys = [f"{tried.folder}{index:03}" for index in range(TIMED)]
    body = [bytes(SMALL_BYTES)]
    puts_ms = [await _timed_ms(tried, partial(tried.store.put, key, body)) for key in keys]
    gets_ms = [await _timed_ms(tried, partial(tried.store.get, key)) for key in keys]
    return f"{_percentiles('put', puts_ms)}; {_percentiles('get', gets_ms)}"


async def _timed_ms(tried: Tried, call: Callable[[], Awaitable[Any]]) -> float:
    began_s = tried.clock.monotonic_s()
    await call()
    return (tried.clock.monotonic_s() - began_s) * MS


def _percentiles(verb: str, times_ms: Sequence[float]) -> str:
    ordered = sorted(times_ms)
    middle, last = ordered[len(ordered) // 2], ordered[len(ordered) * 99 // 100]
    return f"{verb} of 1 KiB p50 {middle:.1f} ms, p99 {last:.1f} ms"


async def _only_listed(tried: Tried) -> ObjectInfo:
    listed = await tried.store.list(tried.folder)
    _expect(len(listed) == 1, f"a listing has {len(listed)} objects in place of one")
    return listed[0]


def _expect(is_right: bool, wrong: str) -> None:
    if not is_right:
        raise _Broken(wrong)


GUARANTEES = (
    Guarantee("put only if absent", _put_if_absent, "A retry or a second flusher can replace acknowledged records."),
    Guarantee("racing puts", _racing_puts, "Two writers can both get success for one key, and one object is lost."),
    Guarantee("replace only a version", _replacements, "Two owners of a file of the cluster can overwrite each other."),
    Guarantee("listing after put", _listings, "The janitor, audits and rebuilds miss objects."),
    Guarantee("order of folders", _order, "Penstock's own keys have their order even so.", WARNING),
    Guarantee("read after put and delete", _reads, "Consumers can get old bytes, or errors for new records."),
    Guarantee("ranges", _ranges, "Consumers get wrong bytes, or errors for records that are stored."),
    Guarantee("upload in parts", _parts, "Compaction cannot store large segments."),
    Guarantee("parts only if absent", _parts_if_absent, "Only new keys are safe, which merges use.", WARNING),
    Guarantee(
        "unfinished uploads", _unfinished, "Uploads of crashed processes cost space until you delete them.", WARNING
    ),
    Guarantee("delete of many", _deletes, "The janitor cannot free space, or deletes the wrong objects."),
    Guarantee("clock", _clock, "The janitor judges the age of objects wrongly: synchronize the clocks.", WARNING),
    Guarantee("latency", _latency, "The store cannot be measured, because puts or gets fail."),
)

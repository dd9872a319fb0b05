"""The store in a folder is durable, leaves no temporary files, and is safe for several processes."""

import asyncio
import errno
import os
import shutil
import signal
import stat
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from penstock.contracts.errors import Conflict, Invalid, Unavailable
from penstock.objectstore import FileLimits
from penstock.objectstore.errors import AlreadyExists, NotDeleted, NotFound
from penstock.objectstore.file import FileStore, open_file_store
from penstock.objectstore.file.cached_reads import read_cached
from penstock.objectstore.file.names import STAGING, keys_in_order
from penstock.objectstore.retrying import RetryingStore
from penstock.objectstore.store import PART_BYTES_MIN, UNFINISHED_KEY_BYTES_MAX, Unfinished

STAGING_AGE_MAX_S = FileLimits().staging_age_max_s
COUNTER = """
import asyncio, sys
from pathlib import Path
from penstock.contracts.errors import Conflict
from penstock.objectstore.file import open_file_store

async def main():
    store = await open_file_store(Path(sys.argv[1]))
    done = 0
    while done < int(sys.argv[2]):
        [listed] = await store.list("counter")
        data = await store.get("counter")
        try:
            await store.put("counter", [b"%d" % (int(data) + 1)], if_match=listed.etag)
            done += 1
        except Conflict:
            pass
    await store.close()

asyncio.run(main())
"""

KILLED = """
import asyncio, os, signal, sys
from pathlib import Path
from penstock.objectstore.file import open_file_store

async def main():
    store = await open_file_store(Path(sys.argv[1]))
    upload = await store.begin_parts("c/in-parts", 5 * 1024 * 1024)
    await upload.put_part(0, [b"bytes"])
    os.fsync = lambda descriptor: os.kill(os.getpid(), signal.SIGKILL)
    await store.put("c/whole", [b"bytes"])

asyncio.run(main())
"""


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[FileStore]:
    opened = await open_file_store(tmp_path / "objects")
    yield opened
    await opened.close()


def staged(tmp_path: Path) -> list[str]:
    return sorted(path.name for path in (tmp_path / "objects" / STAGING).iterdir() if path.name != "lock")


async def test_nothing_stays_in_staging_after_any_result_of_a_put(store: FileStore, tmp_path: Path) -> None:
    await store.put("a/b", [b"bytes"])
    with pytest.raises(AlreadyExists):
        await store.put("a/b", [b"other"])
    with pytest.raises(Conflict):
        await store.put("a/b", [b"other"], if_match="another")
    with pytest.raises(Invalid, match="Not a directory"):
        await store.put("a/b/c", [b"below an object"])
    assert staged(tmp_path) == []


async def test_nothing_stays_in_staging_after_any_result_of_an_upload(store: FileStore, tmp_path: Path) -> None:
    for end in ("complete", "abort"):
        upload = await store.begin_parts("a/" + end, PART_BYTES_MIN)
        await upload.put_part(0, [b"bytes"])
        assert len(staged(tmp_path)) == 1
        await (upload.complete() if end == "complete" else upload.abort())
        assert staged(tmp_path) == []
    taken = await store.begin_parts("a/complete", PART_BYTES_MIN)
    await taken.put_part(0, [b"bytes"])
    with pytest.raises(AlreadyExists):
        await taken.complete()
    await taken.abort()
    assert staged(tmp_path) == []


async def test_an_upload_completes_only_when_its_name_is_synced(
    store: FileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_sync = os.fsync
    failed: list[str] = []

    def sync(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode) and not failed:
            failed.append("folder")
            raise OSError(errno.EIO, "Input/output error")
        real_sync(descriptor)

    upload = await store.begin_parts("a/b", PART_BYTES_MIN)
    await upload.put_part(0, [b"bytes"])
    monkeypatch.setattr(os, "fsync", sync)
    with pytest.raises(Unavailable):
        await upload.complete()
    etag = await upload.complete()
    assert failed
    assert [(listed.key, listed.etag) for listed in await store.list("")] == [("a/b", etag)]


async def test_a_part_of_a_cancelled_call_is_written_before_the_object_is_complete(
    store: FileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first call reached its time-out; the part is stored again while the first thread still runs."""
    real_sync = os.fdatasync
    stuck, go_on = threading.Event(), threading.Event()

    def sync(descriptor: int) -> None:
        if not stuck.is_set():
            stuck.set()
            go_on.wait()
        real_sync(descriptor)

    monkeypatch.setattr(os, "fdatasync", sync)
    upload = await store.begin_parts("a", PART_BYTES_MIN)
    first = asyncio.create_task(upload.put_part(0, [b"bytes"]))
    await asyncio.to_thread(stuck.wait)
    first.cancel()
    await asyncio.wait([first])
    await upload.put_part(0, [b"bytes"])
    completing = asyncio.create_task(upload.complete())
    done, _ = await asyncio.wait([completing], timeout=0.05)
    assert not done
    go_on.set()
    etag = await completing
    assert [listed.etag for listed in await store.list("")] == [etag]


async def test_an_upload_whose_file_was_deleted_is_not_found(store: FileStore, tmp_path: Path) -> None:
    upload = await store.begin_parts("a", PART_BYTES_MIN)
    await upload.put_part(0, [b"bytes"])
    for name in staged(tmp_path):
        (tmp_path / "objects" / STAGING / name).unlink()
    with pytest.raises(NotFound):
        await upload.put_part(1, [b"bytes"])
    with pytest.raises(NotFound):
        await upload.complete()


async def test_opening_deletes_old_files_and_keeps_uploads_in_progress(tmp_path: Path) -> None:
    folder = tmp_path / "objects" / STAGING
    folder.mkdir(parents=True)
    for name, age_s in (("old", STAGING_AGE_MAX_S + 60), ("young", STAGING_AGE_MAX_S - 60), ("lock", 10**6)):
        (folder / name).touch()
        now_s = (folder / name).stat().st_mtime
        os.utime(folder / name, (now_s - age_s, now_s - age_s))
    store = await open_file_store(tmp_path / "objects")
    await store.close()
    assert sorted(path.name for path in folder.iterdir()) == ["lock", "young"]


async def test_the_upload_of_a_killed_writer_is_unfinished_until_it_is_aborted(tmp_path: Path) -> None:
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", KILLED, str(tmp_path / "objects"), stdout=asyncio.subprocess.PIPE
    )
    assert await child.wait() == -signal.SIGKILL
    store = await open_file_store(tmp_path / "objects")
    left = await store.unfinished("c/")
    assert [unfinished.key for unfinished in left] == ["c/in-parts", "c/whole"]
    assert [unfinished.name for unfinished in left] == sorted(staged(tmp_path), key=lambda name: name.split(",")[-1])
    status = (tmp_path / "objects" / STAGING / left[0].name).stat()
    assert left[0].begun_ms == status.st_mtime_ns // 1_000_000
    assert await store.unfinished("d/") == []
    for unfinished in left:
        await store.abort_unfinished(unfinished)
        await store.abort_unfinished(unfinished)
    assert staged(tmp_path) == []
    assert await store.list("") == []
    await store.close()


async def test_a_long_key_is_cut_to_the_length_of_a_file_name(store: FileStore) -> None:
    key = "/".join(["c", *["x" * 150] * 5])
    await store.begin_parts(key, PART_BYTES_MIN)
    for prefix in ("", "c/", key[:300], key):
        [unfinished] = await store.unfinished(prefix)
        assert unfinished.key == key[:UNFINISHED_KEY_BYTES_MAX]
    await store.abort_unfinished(unfinished)
    assert await store.unfinished("") == []


async def test_the_lock_and_other_files_are_no_unfinished_objects(store: FileStore, tmp_path: Path) -> None:
    await store.put("a", [b"bytes"])
    await store.delete(["a"])
    (tmp_path / "objects" / STAGING / "foreign").touch()
    assert await store.unfinished("") == []
    for name in ("lock", "foreign", "../lock", "..", f"{'0' * 32}.for.a/../../lock", ""):
        with pytest.raises(Invalid, match="not the name of a staged file"):
            await store.abort_unfinished(Unfinished("a", name, 0))
    assert (tmp_path / "objects" / STAGING / "lock").exists()


async def test_a_put_that_another_caller_aborts_is_unavailable_and_stores_nothing(
    store: FileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_sync = os.fsync
    stuck, go_on = threading.Event(), threading.Event()

    def sync(descriptor: int) -> None:
        stuck.set()
        go_on.wait()
        real_sync(descriptor)

    monkeypatch.setattr(os, "fsync", sync)
    putting = asyncio.create_task(store.put("c/a", [b"bytes"]))
    await asyncio.to_thread(stuck.wait)
    [unfinished] = await store.unfinished("c/")
    await store.abort_unfinished(unfinished)
    go_on.set()
    with pytest.raises(Unavailable):
        await putting
    assert await store.list("") == []


@pytest.mark.parametrize(("code", "is_rejected"), [(errno.EIO, False), (errno.EPERM, True)])
async def test_a_file_that_cannot_be_deleted_is_named_and_all_others_are_deleted(
    store: FileStore, monkeypatch: pytest.MonkeyPatch, code: int, is_rejected: bool
) -> None:
    for key in ("a/1", "a/2", "b/3"):
        await store.put(key, [b"bytes"])
    real_unlink = os.unlink

    def unlink(path: Path) -> None:
        if Path(path).name == "2":
            raise OSError(code, os.strerror(code))
        real_unlink(path)

    monkeypatch.setattr(os, "unlink", unlink)
    with pytest.raises(
        NotDeleted, match=f"1 objects not deleted, the first of them a/2: .*{os.strerror(code)}"
    ) as raised:
        await store.delete(["a/1", "a/2", "b/3", "c/absent"])
    assert raised.value.keys == ("a/2",)
    assert raised.value.rejected == (("a/2",) if is_rejected else ())
    assert [listed.key for listed in await store.list("")] == ["a/2"]


async def test_deletes_in_doubt_after_a_failed_sync_are_named(
    store: FileStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key in ("a/1", "a/2", "b/3"):
        await store.put(key, [b"bytes"])
    real_sync = os.fsync

    def sync(descriptor: int) -> None:
        if os.readlink(f"/proc/self/fd/{descriptor}").endswith("/a"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        real_sync(descriptor)

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", sync)
        with pytest.raises(NotDeleted) as raised:
            await store.delete(["a/1", "b/3", "a/2"])
    assert raised.value.keys == ("a/1", "a/2")
    await store.delete(raised.value.keys)


async def test_a_folder_that_cannot_hold_objects_is_rejected_with_path_and_reason(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Invalid, match=f"cannot keep objects in {tmp_path}/file/objects: Not a directory"):
        await open_file_store(tmp_path / "file" / "objects")


async def test_a_file_system_without_links_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_links(source: Path, target: Path) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_links)
    with pytest.raises(Invalid, match="Operation not permitted"):
        await open_file_store(tmp_path / "objects")


async def test_bytes_are_synced_before_they_get_a_name_and_names_before_success(
    store: FileStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    happened: list[str] = []
    real_sync, real_link = os.fsync, os.link

    def sync(descriptor: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        happened.append("bytes" if path.parent.name == STAGING else str(path.relative_to(tmp_path)))
        real_sync(descriptor)

    def link(source: Path, target: Path) -> None:
        real_link(source, target)
        happened.append("named")

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(os, "link", link)
    await store.put("a/b/first", [b"bytes"])
    assert happened == ["bytes", "named", "objects/a/b", "objects/a", "objects"]
    happened.clear()
    await store.put("a/b/second", [b"bytes"])
    assert happened == ["bytes", "named", "objects/a/b"]
    happened.clear()
    await store.delete(["a/b/first", "a/b/second"])
    assert happened == ["objects/a/b"]


@pytest.mark.parametrize("replaced", [False, True])
async def test_a_put_whose_sync_failed_succeeds_only_when_its_name_is_synced(
    store: FileStore, monkeypatch: pytest.MonkeyPatch, replaced: bool
) -> None:
    etag = await store.put("a/b", [b"first"]) if replaced else None
    real_sync = os.fsync
    ends: list[str] = []

    def sync(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            ends.append("synced" if ends else "failed")
            if ends == ["failed"]:
                raise OSError(errno.EIO, "Input/output error")
        real_sync(descriptor)

    monkeypatch.setattr(os, "fsync", sync)
    await RetryingStore(store, jitter=lambda: 0.0).put("a/b", [b"bytes"], if_match=etag)
    assert ends[:2] == ["failed", "synced"]
    assert await store.get("a/b") == b"bytes"


async def test_short_writes_and_reads_are_continued(store: FileStore, monkeypatch: pytest.MonkeyPatch) -> None:
    real_writev, real_pread = os.writev, os.pread

    def writev(descriptor: int, buffers: Sequence[memoryview]) -> int:
        return real_writev(descriptor, [b"".join(buffers)[:7]])

    monkeypatch.setattr(os, "writev", writev)
    monkeypatch.setattr(
        os, "pread", lambda descriptor, length, position: real_pread(descriptor, min(length, 5), position)
    )
    body = [bytes([index] * index) for index in range(20)]
    await store.put("a", body)
    assert await store.get("a") == b"".join(body)
    assert await store.get_range("a", 3, 100) == b"".join(body)[3:103]


async def test_a_short_read_from_the_page_cache_is_continued_by_a_thread(
    store: FileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = bytes(range(200))
    await store.put("a", [data])
    await store.get_range_into("a", 0, bytearray(200))  # from now on the page cache is tried first
    real_preadv, calls = os.preadv, 0

    def preadv(descriptor: int, buffers: Sequence[memoryview], position: int, flags: int) -> int:
        nonlocal calls
        calls += 1
        if calls > 2:
            raise BlockingIOError(errno.EAGAIN, "the page cache does not have these bytes")
        return real_preadv(descriptor, [buffers[0][:7]], position, 0)

    monkeypatch.setattr(os, "preadv", preadv)
    buffer = bytearray(150)
    await store.get_range_into("a", 20, buffer)
    assert buffer == data[20:170]
    assert calls == 3


async def test_bytes_in_the_page_cache_are_read_without_a_thread(
    store: FileStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.put("a", [bytes(range(200))])
    await store.get_range_into("a", 0, bytearray(200))
    if not read_cached(tmp_path / "objects" / "a", 0, bytearray(1)):
        pytest.skip("the file system cannot read without a wait")
    readers: set[int] = set()
    real_pread = os.pread

    def pread(descriptor: int, length: int, position: int) -> bytes:
        readers.add(threading.get_ident())
        return real_pread(descriptor, length, position)

    monkeypatch.setattr(os, "pread", pread)
    buffer = bytearray(150)
    await store.get_range_into("a", 20, buffer)
    assert (buffer, readers) == (bytes(range(20, 170)), set())


async def test_a_thread_never_writes_into_the_buffer_of_a_cancelled_read(
    store: FileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.put("a", [b"bytes"])
    stuck, go_on, ended = threading.Event(), threading.Event(), threading.Event()
    real_pread = os.pread

    def pread(descriptor: int, length: int, position: int) -> bytes:
        stuck.set()
        go_on.wait()
        try:
            return real_pread(descriptor, length, position)
        finally:
            ended.set()

    monkeypatch.setattr(os, "pread", pread)
    buffer = bytearray(5)
    reading = asyncio.create_task(store.get_range_into("a", 0, buffer))
    await asyncio.to_thread(stuck.wait)
    reading.cancel()
    await asyncio.wait([reading])
    go_on.set()
    await asyncio.to_thread(ended.wait)
    await store.get("a")  # one of its threads has done a whole read since
    assert buffer == bytes(5)


async def test_a_full_disk_is_unavailable_and_leaves_nothing(
    store: FileStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int, buffers: Sequence[memoryview]) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "writev", full)
        with pytest.raises(Unavailable, match="No space left on device"):
            await store.put("a", [b"bytes"])
    assert staged(tmp_path) == []
    with pytest.raises(NotFound):
        await store.get("a")


async def test_every_version_of_an_object_has_its_own_etag(store: FileStore) -> None:
    etags = [await store.put("a", [b"same"])]
    for _ in range(50):
        etags.append(await store.put("a", [b"same"], if_match=etags[-1]))
    assert len(set(etags)) == 51


async def test_an_etag_survives_a_restart(tmp_path: Path) -> None:
    first = await open_file_store(tmp_path)
    etag = await first.put("a", [b"first"])
    await first.close()
    second = await open_file_store(tmp_path)
    await second.put("a", [b"second"], if_match=etag)
    assert await second.get("a") == b"second"
    await second.close()


async def test_a_vanished_folder_is_created_again(store: FileStore, tmp_path: Path) -> None:
    await store.put("a/b/first", [b"bytes"])
    await store.delete(["a/b/first"])
    (tmp_path / "objects/a/b").rmdir()
    await store.put("a/b/second", [b"bytes"])
    assert await store.get("a/b/second") == b"bytes"


@pytest.mark.parametrize("in_parts", [False, True])
async def test_the_name_of_a_folder_that_is_created_again_is_synced_again(
    store: FileStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_parts: bool
) -> None:
    await store.put("a/b/first", [b"bytes"])
    shutil.rmtree(tmp_path / "objects/a")
    synced: list[str] = []
    real_sync = os.fsync

    def sync(descriptor: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        real_sync(descriptor)

    monkeypatch.setattr(os, "fsync", sync)
    if in_parts:
        upload = await store.begin_parts("a/b/second", PART_BYTES_MIN)
        await upload.put_part(0, [b"bytes"])
        await upload.complete()
    else:
        await store.put("a/b/second", [b"bytes"])
    assert synced[-3:] == [str(tmp_path / folder) for folder in ("objects/a/b", "objects/a", "objects")]


async def test_processes_replace_one_object_without_losing_an_update(tmp_path: Path) -> None:
    store = await open_file_store(tmp_path)
    await store.put("counter", [b"0"])
    children = [
        await asyncio.create_subprocess_exec(sys.executable, "-c", COUNTER, str(tmp_path), "40") for _ in range(3)
    ]
    assert [await child.wait() for child in children] == [0, 0, 0]
    assert await store.get("counter") == b"120"
    await store.close()


async def test_closing_waits_for_running_calls(tmp_path: Path) -> None:
    store = await open_file_store(tmp_path)
    puts = [asyncio.ensure_future(store.put(f"a/{index}", [bytes(100_000)])) for index in range(20)]
    await asyncio.sleep(0)
    await store.close()
    assert all(await asyncio.gather(*puts))


PARTS = st.text(alphabet="a-.0b", min_size=1, max_size=3).filter(lambda part: part[0] not in ".")
KEYS = st.lists(PARTS, min_size=1, max_size=3).map("/".join)


def without_objects_as_folders(keys: set[str]) -> list[str]:
    """Keys that a folder can hold together: no key is the folder of another one."""
    return sorted(key for key in keys if not any(other.startswith(key + "/") for other in keys))


@given(
    keys=st.sets(KEYS, max_size=12),
    prefix=st.just("") | KEYS | KEYS.map(lambda key: key + "/"),
    after=st.just("") | KEYS,
)
def test_a_walk_finds_the_same_keys_as_a_sort_of_all_keys(keys: set[str], prefix: str, after: str) -> None:
    held = without_objects_as_folders(keys)
    with tempfile.TemporaryDirectory() as folder:
        for key in held:
            (Path(folder) / key).parent.mkdir(parents=True, exist_ok=True)
            (Path(folder) / key).touch()
        (Path(folder) / STAGING).mkdir()
        (Path(folder) / STAGING / "hidden").touch()
        walked = [key for key, _ in keys_in_order(Path(folder), prefix, after)]
    assert walked == [key for key in held if key.startswith(prefix) and key > after]


async def test_a_listing_continues_after_a_file_that_no_store_can_have_as_an_object(
    store: FileStore, tmp_path: Path
) -> None:
    (tmp_path / "objects/c").mkdir()
    for name in ("a copy (1)", "a copy (2)", "b"):
        (tmp_path / "objects/c" / name).touch()
    (first,) = await store.list("c/", limit=1)
    assert [listed.key for listed in await store.list("c/", first.key)] == ["c/a copy (2)", "c/b"]


async def test_a_page_of_a_listing_opens_only_the_folders_it_needs(
    store: FileStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for shard in range(50):
        await store.put(f"c/segments/{shard:03}/a", [b"bytes"])
    opened: list[str] = []
    real_scandir = os.scandir

    def scandir(path: Path) -> "os._ScandirIterator[str]":
        opened.append(str(path))
        return real_scandir(str(path))

    monkeypatch.setattr(os, "scandir", scandir)
    assert [listed.key for listed in await store.list("c/segments/", "c/segments/029/a", 2)] == [
        "c/segments/030/a",
        "c/segments/031/a",
    ]
    assert [path.removeprefix(f"{tmp_path}/objects") for path in opened] == [
        "",
        "/c",
        "/c/segments",
        "/c/segments/029",
        "/c/segments/030",
        "/c/segments/031",
    ]

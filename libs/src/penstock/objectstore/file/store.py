"""An object store in a folder: the default on one machine, safe for several processes and after power failures.

An object is written under a temporary name in a hidden staging folder, synced, and linked to its final name. The link
fails if the final name exists. An etag is the file's modification time and size. The digits of the time below
the millisecond are random, so that two versions of an object have different etags. A lock file excludes parallel
replacements and deletions; a creation needs no lock.

The name of a staged file contains the key of its object, so files of crashed writers can be listed. Folders are never
deleted: they are few, and the deletion of one would race with a writer that creates a file in it.
"""

import asyncio
import contextlib
import fcntl
import os
import stat
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from pathlib import Path

from penstock.contracts.codec import Buffer
from penstock.contracts.errors import Invalid
from penstock.objectstore.errors import AlreadyExists, EtagMismatch, NotDeleted, NotFound, range_beyond
from penstock.objectstore.file.cached_reads import CachedReads
from penstock.objectstore.file.disk import (
    discard,
    etag_of,
    is_final,
    read_all,
    run_in,
    sync,
    sync_file,
    write_all,
)
from penstock.objectstore.file.names import (
    LOCK,
    STAGING,
    check_staged_name,
    keys_in_order,
    staged_name,
    unfinished_in,
)
from penstock.objectstore.file.parts import FileParts
from penstock.objectstore.limits import DEFAULT_LIMITS, FileLimits
from penstock.objectstore.store import (
    LIST_LIMIT_MAX,
    Listing,
    ObjectInfo,
    Unfinished,
    check_key,
    check_keys,
    check_listing,
    check_parts,
    check_range,
    copy_into,
)
from penstock.runtime.clock import Entropy, SystemEntropy

_ByFolder = dict[Path, list[str]]  # keys by the folders of their files
_NOT_A_FILE = (FileNotFoundError, NotADirectoryError, IsADirectoryError)


async def open_file_store(
    root: Path,
    *,
    entropy: Entropy | None = None,
    limits: FileLimits = DEFAULT_LIMITS.file,
    has_local_reads: bool = True,
    platform: str = sys.platform,
) -> "FileStore":
    """The store in `root`, which is created if absent; `Invalid` with the path and reason if it cannot hold objects."""
    store = FileStore(root, entropy or SystemEntropy(), limits, has_local_reads=has_local_reads, platform=platform)
    async with contextlib.AsyncExitStack() as undo:
        undo.push_async_callback(store.close)
        await store.prepare()
        undo.pop_all()
    return store


class FileStore:
    """A store with one file per object, below one folder."""

    def __init__(
        self,
        root: Path,
        entropy: Entropy,
        limits: FileLimits = DEFAULT_LIMITS.file,
        *,
        has_local_reads: bool = True,
        platform: str = sys.platform,
    ) -> None:
        self.has_local_reads = has_local_reads
        self._platform = platform
        self._root = root.absolute()
        self._staging = self._root / STAGING
        self._entropy = entropy
        self._limits = limits
        self._writers = ThreadPoolExecutor(limits.write_threads, "store-write")
        self._readers = ThreadPoolExecutor(limits.read_threads, "store-read")
        self._synced_folders: set[Path] = set()
        self._cached = CachedReads(self._root, limits.opened_max)

    async def prepare(self) -> None:
        await run_in(self._writers, self._prepare)

    async def put(self, key: str, body: Sequence[Buffer], *, if_match: str | None = None) -> str:
        check_key(key)
        return await run_in(self._writers, lambda: self._put(key, body, if_match))

    async def get(self, key: str) -> bytes:
        check_key(key)
        return await run_in(self._readers, lambda: self._read(key, 0, None))

    async def get_range(self, key: str, position: int, length: int) -> bytes:
        data = await self.get_up_to(key, position, length)
        if len(data) < length:
            raise range_beyond(key, position, length)
        return data

    async def get_range_into(self, key: str, position: int, buffer: Buffer) -> None:
        """As in every store; bytes in the page cache are read at once, others in a thread."""
        check_range(key, position, len(buffer))
        done = self._cached.read(key, position, buffer)
        missing = len(buffer) - done
        if missing:
            # The thread has its own buffer: after a cancellation it still runs, and must not write into this one.
            data = await run_in(self._readers, lambda: self._read(key, position + done, missing))
            if len(data) < missing:
                raise range_beyond(key, position, len(buffer))
            copy_into(memoryview(buffer)[done:], data)
        self._cached.record_opened(key)

    async def get_up_to(self, key: str, position: int, length: int) -> bytes:
        check_range(key, position, length)
        return await run_in(self._readers, lambda: self._read(key, position, length))

    async def list(self, prefix: str, after: str = "", limit: int = LIST_LIMIT_MAX) -> Listing:
        check_listing(prefix, after, limit)
        return await run_in(self._readers, lambda: self._list(prefix, after, limit))

    async def delete(self, keys: Sequence[str]) -> None:
        """As in every store; folders are synced in parallel, because many syncs take hardly longer than one."""
        check_keys(keys)
        failures: dict[str, OSError] = {}
        by_folder = await run_in(self._writers, lambda: self._unlink(keys, failures))
        await asyncio.gather(
            *(
                run_in(self._writers, partial(_sync_recorded, folder, inside, failures))
                for folder, inside in by_folder.items()
            )
        )
        if failures:
            final = [key for key, error in failures.items() if is_final(error)]
            raise NotDeleted(str(next(iter(failures.values()))), list(failures), final)

    async def begin_parts(self, key: str, part_bytes: int) -> FileParts:
        check_parts(key, part_bytes)
        staged = self._staged(key)
        parts = FileParts(
            self._writers, staged, key, part_bytes, seal=self._seal, publish=self._publish, platform=self._platform
        )
        await run_in(self._writers, parts.create)
        return parts

    async def unfinished(self, prefix: str, limit: int = LIST_LIMIT_MAX) -> Sequence[Unfinished]:
        check_listing(prefix, "", limit)
        return await run_in(self._readers, lambda: unfinished_in(self._staging, prefix)[:limit])

    async def abort_unfinished(self, unfinished: Unfinished) -> None:
        path = self._staging / check_staged_name(unfinished.name)
        await run_in(self._writers, lambda: path.unlink(missing_ok=True))

    async def close(self) -> None:
        for pool in (self._writers, self._readers):
            await asyncio.get_running_loop().run_in_executor(None, pool.shutdown)

    def _prepare(self) -> None:
        """Check that files can be created, synced and linked here, and delete old files of crashed writers."""
        probe = self._staging / self._entropy.take(16).hex()
        linked = probe.with_suffix(".linked")
        try:
            self._staging.mkdir(parents=True, exist_ok=True)
            probe.touch(exist_ok=False)
            os.link(probe, linked)
            self._sync_folders(self._staging)
            for folder in self._root.parents:
                with contextlib.suppress(PermissionError):
                    sync(folder)
            self._clear_staging(probe.stat().st_mtime - self._limits.staging_age_max_s)
        except OSError as error:
            raise Invalid(f"cannot keep objects in {self._root}: {error.strerror or error}") from error
        finally:
            discard(probe)
            discard(linked)

    def _clear_staging(self, oldest_mtime: float) -> None:
        for leftover in self._staging.iterdir():
            with contextlib.suppress(FileNotFoundError):
                if leftover.name != LOCK and leftover.stat().st_mtime < oldest_mtime:
                    leftover.unlink()

    def _put(self, key: str, body: Sequence[Buffer], if_match: str | None) -> str:
        """Store the object and its name durably.

        The name is also synced before a conflict is reported. The existing object may come from an earlier attempt of
        the same caller, whose sync failed. The caller treats its own bytes as success.
        """
        staged = self._staged(key)
        final = self._root / key
        try:
            etag = self._stage(staged, body)
            if if_match is None:
                self._create(staged, final)
            else:
                self._replace(staged, final, if_match)
            self._sync_folders(final.parent)
            return etag
        finally:
            discard(staged)

    def _stage(self, staged: Path, body: Sequence[Buffer]) -> str:
        """Write and sync the bytes under a temporary name; returns the etag of the object."""
        descriptor = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        try:
            write_all(descriptor, body)
            return self._seal(descriptor)
        finally:
            os.close(descriptor)

    def _seal(self, descriptor: int) -> str:
        """Sync a written file, and give it an etag."""
        written_ms = os.fstat(descriptor).st_mtime_ns // 1_000_000
        below_ms = int.from_bytes(self._entropy.take(8), "big") % 1_000_000
        stamp_ns = written_ms * 1_000_000 + below_ms
        os.utime(descriptor, ns=(stamp_ns, stamp_ns))
        sync_file(descriptor, self._platform)
        return etag_of(os.fstat(descriptor))

    def _create(self, staged: Path, final: Path) -> None:
        try:
            try:
                os.link(staged, final)
            except FileNotFoundError:
                self._synced_folders.discard(final.parent)  # if a user deleted it, its new name is not durable yet
                final.parent.mkdir(parents=True, exist_ok=True)
                os.link(staged, final)
        except FileExistsError as error:
            self._sync_folders(final.parent)  # see _put
            if staged.samefile(final):  # an earlier attempt has made the link
                return
            raise AlreadyExists(f"object exists: {self._key(final)}") from error

    def _publish(self, staged: Path, key: str) -> None:
        """Link a sealed file to its durable final name."""
        final = self._root / key
        self._create(staged, final)
        self._sync_folders(final.parent)

    def _replace(self, staged: Path, final: Path, if_match: str) -> None:
        with self._locked():
            try:
                found: str | None = etag_of(final.stat())
            except FileNotFoundError:
                found = None
            if found != if_match:
                if found is not None:
                    self._sync_folders(final.parent)  # see _put
                raise EtagMismatch(f"object with etag {found}, expected {if_match}: {self._key(final)}")
            staged.replace(final)

    def _read(self, key: str, position: int, length: int | None) -> bytes:
        try:
            descriptor = os.open(self._root / key, os.O_RDONLY | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise NotFound(f"no object: {key}") from error
        try:
            status = os.fstat(descriptor)
            if stat.S_ISDIR(status.st_mode):
                raise NotFound(f"no object but a folder of objects: {key}")
            size = status.st_size
            wanted = size if length is None else min(length, size - position)
            if length is not None and wanted < 1:
                raise range_beyond(key, position, length)
            return read_all(descriptor, position, wanted)
        finally:
            os.close(descriptor)

    def _list(self, prefix: str, after: str, limit: int) -> Listing:
        return [
            ObjectInfo(key, status.st_size, etag_of(status), status.st_mtime_ns // 1_000_000)
            for key, status in islice(keys_in_order(self._root, prefix, after), limit)
        ]

    def _unlink(self, keys: Sequence[str], failures: dict[str, OSError]) -> _ByFolder:
        """Delete the files, each independently; returns the keys by folder: a sync of the folder makes it durable."""
        by_folder: _ByFolder = {}
        with self._locked():
            for key in keys:
                path = self._root / key
                by_folder.setdefault(path.parent, []).append(key)
                with _recorded(failures, [key]), contextlib.suppress(*_NOT_A_FILE):
                    path.unlink()
        return by_folder

    def _staged(self, key: str) -> Path:
        return self._staging / staged_name(key, self._entropy.take(16))

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Exclude other threads and processes that replace or delete; the lock ends with the process."""
        descriptor = os.open(self._staging / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def _sync_folders(self, folder: Path) -> None:
        """Make a new name in `folder` durable, and once per folder its own name and those of its parents."""
        sync(folder)
        if folder in self._synced_folders:
            return
        if len(self._synced_folders) >= self._limits.folders_known_max:
            self._synced_folders.clear()
        parent = folder
        while parent != self._root:
            parent = parent.parent
            sync(parent)
        self._synced_folders.add(folder)

    def _key(self, path: Path) -> str:
        return path.relative_to(self._root).as_posix()


@contextlib.contextmanager
def _recorded(failures: dict[str, OSError], keys: Sequence[str]) -> Iterator[None]:
    """Record an error of the operating system as the failure of these keys."""
    try:
        yield
    except OSError as error:
        failures.update(dict.fromkeys(keys, error))


def _sync_recorded(folder: Path, keys: Sequence[str], failures: dict[str, OSError]) -> None:
    """Make the deletion of these keys from the folder durable."""
    with _recorded(failures, keys), contextlib.suppress(*_NOT_A_FILE):
        sync(folder)

"""The protocol of an object store: five verbs over keys, uploads in parts, and the rules for keys."""

import re
from collections.abc import Sequence
from typing import Protocol

import msgspec

from penstock.contracts.codec import Buffer
from penstock.contracts.errors import Invalid

LIST_LIMIT_MAX = 1000  # the limit of one listing in S3
DELETE_KEYS_MAX = 1000  # the limit of one delete in S3
PART_BYTES_MIN = 5 * 1024 * 1024  # the limit of S3 for parts other than the last
PART_BYTES_UNIT = 64 * 1024  # a part has whole chunks of `encryption`
PARTS_MAX = 10_000  # the limit of S3 for one object
UNFINISHED_KEY_BYTES_MAX = 200  # a key and the name of an attempt must fit into one file name
KEY_BYTES_MAX = 900  # S3 accepts 1,024, with the prefix of the store
# A file name that every file system accepts. Hidden names are reserved for the store.
_PART = r"[A-Za-z0-9_=+@-][A-Za-z0-9._=+@-]{0,199}"
_KEY = re.compile(rf"{_PART}(?:/{_PART})*")
_PREFIX = re.compile(rf"(?:{_PART}/)*(?:{_PART})?")


class ObjectInfo(msgspec.Struct, frozen=True):
    """One listed object; `etag` names its version."""

    key: str
    size_bytes: int
    etag: str
    modified_ms: int  # since 1970, by the store's clock


Listing = list[ObjectInfo]


class Unfinished(msgspec.Struct, frozen=True):
    """An upload that is neither complete nor aborted; its object is not visible.

    A store may cut `key` to its first UNFINISHED_KEY_BYTES_MAX bytes.
    """

    key: str  # of the object
    name: str  # the store's name for this attempt
    begun_ms: int  # when it began or, in a folder, was last written; since 1970, by the store's clock


class PartedPut(Protocol):
    """An upload in parts; its object is not visible before it is complete.

    Calls may raise `Unavailable`. All but `abort` raise `NotFound` if the store does not have the upload any more.
    """

    async def put_part(self, number: int, body: Sequence[Buffer]) -> None:
        """Store the part with this number, counted from 0; a second part with the same number replaces the first.

        Parts may be stored in parallel. All parts but the last have exactly the length given to `begin_parts`.
        """

    async def complete(self) -> str:
        """Make one object of all parts and return its etag; `AlreadyExists` if its key has an object."""

    async def abort(self) -> None:
        """Abort the upload and delete its parts. No other call may run; an unknown upload is no error."""


class ObjectStore(Protocol):
    """An object is complete or absent, durable when `put` returns, and visible to every later call of any process.

    Every call may raise `Unavailable`: the store did not answer, and the outcome of a put or delete is unknown. A
    malformed key is `Invalid`.
    """

    @property
    def has_local_reads(self) -> bool:
        """Whether this machine has the objects, so that a read costs no request and no caches are needed.

        Its page cache is then the cache that all processes share.
        """

    async def put(self, key: str, body: Sequence[Buffer], *, if_match: str | None = None) -> str:
        """Store the buffers as one object and return its etag.

        Without `if_match` it only creates: `AlreadyExists` if the key has an object. With `if_match` it only replaces
        the version with this etag: `EtagMismatch` if there is another version or none.
        """

    async def get(self, key: str) -> bytes:
        """The bytes of the object; `NotFound` if there is none."""

    async def get_range(self, key: str, position: int, length: int) -> bytes:
        """Exactly `length` bytes, at least one, from `position`.

        `NotFound` if there is no object, `Invalid` if it ends before the end of the range.
        """

    async def get_range_into(self, key: str, position: int, buffer: Buffer) -> None:
        """As `get_range`, into a writable buffer, which the store fills. Nothing writes to it after the call ended.

        After an error or a cancellation the buffer may have any bytes.
        """

    async def get_up_to(self, key: str, position: int, length: int) -> bytes:
        """As `get_range`, but fewer bytes, at least one, if the object ends before the end of the range."""

    async def list(self, prefix: str, after: str = "", limit: int = LIST_LIMIT_MAX) -> Listing:
        """The first `limit` objects (1 to 1,000), sorted by key, whose key has this prefix and is above `after`."""

    async def delete(self, keys: Sequence[str]) -> None:
        """Delete these objects, at most 1,000; an absent object counts as deleted.

        `NotDeleted` names the keys in doubt; after any other `Unavailable` all keys are in doubt.
        """

    async def begin_parts(self, key: str, part_bytes: int) -> PartedPut:
        """Begin an upload in parts of `part_bytes`, at least 5 MiB and a multiple of 64 KiB; see `streaming`.

        The caller must complete or abort it. An upload that a crash leaves is invisible but costs space; `unfinished`
        lists it.
        """

    async def unfinished(self, prefix: str, limit: int = LIST_LIMIT_MAX) -> Sequence[Unfinished]:
        """Up to `limit` (1 to 1,000) uploads to keys with this prefix, sorted by key and name; also running ones."""

    async def abort_unfinished(self, unfinished: Unfinished) -> None:
        """Abort an upload of any process and free its space; an absent upload is no error.

        If its owner still uses it, the owner's calls raise `NotFound` or `Unavailable`. A completed object stays.
        """

    async def close(self) -> None:
        """Finish running calls and release all resources; no call may follow."""


def check_key(key: str) -> str:
    """`key` if it is valid in every store, else `Invalid`."""
    if not _KEY.fullmatch(key) or len(key) > KEY_BYTES_MAX:
        raise Invalid(f"not an object key: {key!r}")
    return key


def check_keys(keys: Sequence[str]) -> None:
    """`Invalid` unless every store can delete these objects in one call."""
    if len(keys) > DELETE_KEYS_MAX:
        raise Invalid(f"delete of {len(keys)} objects, allowed are {DELETE_KEYS_MAX}")
    for key in keys:
        check_key(key)


def check_listing(prefix: str, after: str, limit: int) -> None:
    """`Invalid` unless every store can do this listing.

    `after` may be any text: a bucket may have objects whose names are no keys, and a listing goes on after them.
    """
    if not _PREFIX.fullmatch(prefix) or len(prefix) > KEY_BYTES_MAX:
        raise Invalid(f"not a prefix of object keys: {prefix!r}")
    if not 1 <= limit <= LIST_LIMIT_MAX:
        raise Invalid(f"listing of {limit} objects, allowed are 1 to {LIST_LIMIT_MAX}")


def check_range(key: str, position: int, length: int) -> None:
    """`Invalid` unless this can be a range of an object."""
    check_key(key)
    if position < 0 or length < 1:
        raise Invalid(f"range of {length} bytes at {position} of {key}")


def copy_into(buffer: Buffer, data: Buffer) -> None:
    """Fill a writable buffer with exactly as many bytes."""
    memoryview(buffer)[:] = data


def check_parts(key: str, part_bytes: int) -> None:
    """`Invalid` unless every store accepts an object in parts of this size."""
    check_key(key)
    if part_bytes < PART_BYTES_MIN:
        raise Invalid(f"parts of {part_bytes} bytes for {key}, at least {PART_BYTES_MIN} are required")


class PartSizes:
    """The numbers and sizes of the parts of one upload."""

    def __init__(self, key: str, part_bytes: int) -> None:
        self._key = key
        self._part_bytes = part_bytes
        self._sizes: dict[int, int] = {}

    def check(self, number: int, body: Sequence[Buffer]) -> int:
        """The size of a part; `Invalid` if the part may not be stored."""
        size = sum(map(len, body))
        if not 0 <= number < PARTS_MAX or not 1 <= size <= self._part_bytes:
            raise Invalid(f"part {number} of {size} bytes for {self._key}")
        return size

    def record(self, number: int, size: int) -> None:
        """Record that the part is stored."""
        self._sizes[number] = size

    def check_complete(self) -> int:
        """The size of the object; `Invalid` if a part is missing, or a part before the last is too short."""
        count = len(self._sizes)
        if not count or max(self._sizes) != count - 1:
            raise Invalid(f"{count} parts up to number {max(self._sizes, default=-1)} for {self._key}")
        if any(size != self._part_bytes for number, size in self._sizes.items() if number != count - 1):
            raise Invalid(f"a part of less than {self._part_bytes} bytes in the middle of {self._key}")
        return sum(self._sizes.values())

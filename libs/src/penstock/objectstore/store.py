"""The protocol of an object store: five verbs over keys, parts for large objects, and the rules for keys."""

import re
from collections.abc import Sequence
from typing import Protocol

import msgspec

from penstock.contracts.codec import Buffer
from penstock.contracts.errors import Invalid

LIST_LIMIT_MAX = 1000  # what S3 returns at once
DELETE_KEYS_MAX = 1000  # what S3 deletes at once
PART_BYTES_MIN = 5 * 1024 * 1024  # what S3 takes as a part that is not the last
PARTS_MAX = 10_000  # what S3 takes of one object
UNFINISHED_KEY_BYTES_MAX = 200  # with a name of its own an attempt has to be a file's name
KEY_BYTES_MAX = 900  # S3 takes 1,024, and a store's own prefix has to fit in as well
_PART = (
    r"[A-Za-z0-9_=+@-][A-Za-z0-9._=+@-]{0,199}"  # a file's name in any file system; hidden names are the store's own
)
_KEY = re.compile(rf"{_PART}(?:/{_PART})*")
_PREFIX = re.compile(rf"(?:{_PART}/)*(?:{_PART})?")


class ObjectInfo(msgspec.Struct, frozen=True):
    """One listed object; `etag` names this version of it."""

    key: str
    size_bytes: int
    etag: str
    modified_ms: int  # since 1970, by the store's clock


Listing = list[ObjectInfo]


class Unfinished(msgspec.Struct, frozen=True):
    """An object that somebody began to store, and that is neither complete nor given up; nobody sees anything of it.

    Stores cut `key` to its first UNFINISHED_KEY_BYTES_MAX bytes where they keep no more.
    """

    key: str  # that the object was to have
    name: str  # the store's own, for this attempt
    begun_ms: int  # when it was begun or, in a folder, last written to; since 1970, by the store's clock


class PartedPut(Protocol):
    """An object on its way to the store part by part; nobody sees anything of it before it is complete.

    Calls may raise `Unavailable`, and all but `abort` raise `NotFound` where the store has forgotten about it.
    """

    async def put_part(self, number: int, body: Sequence[Buffer]) -> None:
        """Store the part with that number, from 0; again for the same number it takes the place of the one before.

        Parts may be stored side by side. All but the last are exactly as long as was said in the beginning.
        """

    async def complete(self) -> str:
        """Make all parts one object, and return its etag; `AlreadyExists` if its key has an object."""

    async def abort(self) -> None:
        """Give it up; nothing is left of it. No other call is under way. Void where the store knows nothing of it."""


class ObjectStore(Protocol):
    """Objects are whole or absent, durable when `put` returns, and seen by every later call of anybody.

    Every call may raise `Unavailable`: the store did not answer, and a put or delete may or may not have happened. A
    malformed key is `Invalid`.
    """

    async def put(self, key: str, body: Sequence[Buffer], *, if_match: str | None = None) -> str:
        """Store the buffers, one after the other, and return the new etag.

        Creates only: `AlreadyExists` if the key has an object. With `if_match` replaces only the version with that
        etag: `EtagMismatch` if the object has another or is absent.
        """

    async def get(self, key: str) -> bytes:
        """The whole object; `NotFound` if there is none."""

    async def get_range(self, key: str, position: int, length: int) -> bytes:
        """Exactly `length` bytes, at least one, from `position`.

        `NotFound` if there is no object, `Invalid` if it does not have all of these bytes.
        """

    async def list(self, prefix: str, after: str = "", limit: int = LIST_LIMIT_MAX) -> Listing:
        """The first `limit` (1 to 1,000) objects whose key begins with `prefix` and is above `after`, sorted by key."""

    async def delete(self, keys: Sequence[str]) -> None:
        """Delete these objects, at most 1,000; an absent one counts as deleted.

        `NotDeleted` says which are in doubt; with any other `Unavailable` all of them are.
        """

    async def begin_parts(self, key: str, part_bytes: int) -> PartedPut:
        """Begin an object that is stored in parts of `part_bytes`, at least 5 MiB; see `streaming`.

        Whoever begins must complete or abort. What a crash leaves is invisible, costs space, and is `unfinished`.
        """

    async def unfinished(self, prefix: str, limit: int = LIST_LIMIT_MAX) -> Sequence[Unfinished]:
        """Up to `limit` (1 to 1,000) of what was begun under keys that begin with `prefix`, also what is under way.

        Sorted by key and name.
        """

    async def abort_unfinished(self, unfinished: Unfinished) -> None:
        """Give up what somebody began, and free its space; void if it is gone.

        If somebody is still at it, calls raise `NotFound` or `Unavailable` from now on; an object that is complete
        stays.
        """

    async def close(self) -> None:
        """Finish what is under way and let everything go; nothing can be called afterwards."""


def check_key(key: str) -> str:
    """`key` if every store can hold it, else `Invalid`."""
    if not _KEY.fullmatch(key) or len(key) > KEY_BYTES_MAX:
        raise Invalid(f"not an object key: {key!r}")
    return key


def check_keys(keys: Sequence[str]) -> None:
    """`Invalid` unless every store can delete these at once."""
    if len(keys) > DELETE_KEYS_MAX:
        raise Invalid(f"delete of {len(keys)} objects, allowed are {DELETE_KEYS_MAX}")
    for key in keys:
        check_key(key)


def check_listing(prefix: str, after: str, limit: int) -> None:
    """`Invalid` unless every store can list this."""
    if not _PREFIX.fullmatch(prefix) or len(prefix) > KEY_BYTES_MAX:
        raise Invalid(f"not the beginning of object keys: {prefix!r}")
    if after:
        check_key(after)
    if not 1 <= limit <= LIST_LIMIT_MAX:
        raise Invalid(f"listing of {limit} objects, allowed are 1 to {LIST_LIMIT_MAX}")


def check_range(key: str, position: int, length: int) -> None:
    """`Invalid` unless this can be a range of an object."""
    check_key(key)
    if position < 0 or length < 1:
        raise Invalid(f"range of {length} bytes at {position} of {key}")


def range_beyond(key: str, position: int, length: int) -> Invalid:
    """The error for a range that the object does not have."""
    return Invalid(f"range of {length} bytes at {position} goes beyond the end of {key}")


def check_parts(key: str, part_bytes: int) -> None:
    """`Invalid` unless every store can take an object in parts of this size."""
    check_key(key)
    if part_bytes < PART_BYTES_MIN:
        raise Invalid(f"parts of {part_bytes} bytes for {key}, {PART_BYTES_MIN} or more are allowed")


class PartSizes:
    """The parts that one upload has so far."""

    def __init__(self, key: str, part_bytes: int) -> None:
        self._key = key
        self._part_bytes = part_bytes
        self._sizes: dict[int, int] = {}

    def check(self, number: int, body: Sequence[Buffer]) -> int:
        """The size of a part that may be stored; `Invalid` for any other."""
        size = sum(map(len, body))
        if not 0 <= number < PARTS_MAX or not 1 <= size <= self._part_bytes:
            raise Invalid(f"part {number} of {size} bytes for {self._key}")
        return size

    def record(self, number: int, size: int) -> None:
        """The part is stored."""
        self._sizes[number] = size

    def check_complete(self) -> int:
        """The size of the object; `Invalid` if parts are missing, or one but the last is short."""
        count = len(self._sizes)
        if not count or max(self._sizes) != count - 1:
            raise Invalid(f"{count} parts up to number {max(self._sizes, default=-1)} for {self._key}")
        if any(size != self._part_bytes for number, size in self._sizes.items() if number != count - 1):
            raise Invalid(f"a part of less than {self._part_bytes} bytes in the middle of {self._key}")
        return sum(self._sizes.values())

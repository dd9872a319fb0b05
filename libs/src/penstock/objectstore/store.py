"""What an object store is to everybody else: five verbs over keys, and the rules for keys."""

import re
from collections.abc import Sequence
from typing import Protocol

import msgspec

from penstock.contracts.codec import Buffer
from penstock.contracts.errors import Invalid

LIST_LIMIT_MAX = 1000  # what S3 returns at once
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
        """Delete these objects; an absent one counts as deleted."""

    async def close(self) -> None:
        """Finish what is under way and let everything go; nothing can be called afterwards."""


def check_key(key: str) -> str:
    """`key` if every store can hold it, else `Invalid`."""
    if not _KEY.fullmatch(key) or len(key) > KEY_BYTES_MAX:
        raise Invalid(f"not an object key: {key!r}")
    return key


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

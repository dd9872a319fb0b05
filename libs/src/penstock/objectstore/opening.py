"""Opens the store that an address names: file://, s3:// or memory://; and makes its bucket."""

import random
from collections.abc import Callable
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

import prometheus_client

from penstock.contracts.errors import Invalid
from penstock.objectstore.file import open_file_store
from penstock.objectstore.measured import MeasuredStore
from penstock.objectstore.memory import MemoryStore
from penstock.objectstore.retrying import RetryingStore
from penstock.objectstore.store import ObjectStore


async def open_store(
    url: str,
    *,
    registry: prometheus_client.CollectorRegistry | None = None,
    now_ms: Callable[[], int] = lambda: 0,
    jitter: Callable[[], float] | None = None,
) -> ObjectStore:
    """The store at an address, retrying and, with a registry, measured.

    Raises `Invalid` or `Unavailable` with one clear sentence if it cannot be used. The addresses are
    file:///absolute/folder or file://./relative/folder;
    s3://bucket/prefix?endpoint=http://host:port&region=...&access_key=...&secret_key=...&addressing=path|virtual, all
    options optional; memory://name, whose objects bear the times of `now_ms`. `jitter` is even from 0 to 1.
    """
    store = await _open(url, now_ms)
    if registry is not None:
        store = MeasuredStore(store, registry)
    return RetryingStore(store, jitter=jitter or random.SystemRandom().random)


async def make_bucket(url: str) -> bool:
    """Make the bucket of an s3:// address unless it is there; whether it was made.

    Raises `Invalid` or `Unavailable` with one clear sentence if there is none afterwards, or if it cannot be listed.
    """
    if not url.startswith("s3://"):
        raise Invalid("only a store at s3://bucket has a bucket")
    from penstock.objectstore.s3 import make_s3_bucket

    parts = urlsplit(url)
    return await make_s3_bucket(parts.netloc, _options(parts.query))


async def _open(url: str, now_ms: Callable[[], int]) -> ObjectStore:
    scheme, separator, rest = url.partition("://")
    if not separator or not rest:
        raise Invalid("a store address is file://folder, s3://bucket/prefix or memory://name")
    if scheme == "file":
        return await open_file_store(Path(unquote(rest)))
    if scheme == "memory":
        return MemoryStore(rest, now_ms=now_ms)
    if scheme == "s3":
        from penstock.objectstore.s3 import open_s3_store  # its libraries are an extra, and slow to import

        parts = urlsplit(url)
        return await open_s3_store(parts.netloc, unquote(parts.path).strip("/"), _options(parts.query))
    raise Invalid(f"no store of kind {scheme!r}; there are file, s3 and memory")


def _options(query: str) -> dict[str, str]:
    try:
        return dict(parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query)))
    except ValueError as error:
        raise Invalid("the options of a store address are name=value, joined by '&'") from error

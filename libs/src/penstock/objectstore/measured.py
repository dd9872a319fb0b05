"""A wrapper that counts a store's requests, bytes and seconds for Prometheus."""

import contextlib
from collections.abc import Iterator, Sequence

from prometheus_client import CollectorRegistry, Counter, Histogram

from penstock.contracts.codec import Buffer
from penstock.contracts.errors import Conflict, Corrupt, Fenced, Invalid, PenstockError, Unavailable
from penstock.objectstore.errors import NotDeleted, NotFound, Throttled
from penstock.objectstore.store import LIST_LIMIT_MAX, Listing, ObjectStore, PartedPut, Unfinished
from penstock.runtime.clock import Clock, SystemClock

# From a read of a file in the page cache to a put that almost reaches its time-out.
SECONDS_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 15.0)
_OUTCOMES: tuple[tuple[type[PenstockError], str], ...] = (
    (NotFound, "not_found"),
    (Throttled, "throttled"),
    (NotDeleted, "partial"),
    (Unavailable, "unavailable"),
    (Conflict, "conflict"),
    (Invalid, "invalid"),
    (Corrupt, "corrupt"),
    (Fenced, "fenced"),
)


class MeasuredStore:
    """Measures every call of the wrapped store, so it counts the requests that a provider bills."""

    def __init__(self, inner: ObjectStore, registry: CollectorRegistry, *, clock: Clock | None = None) -> None:
        self._inner = inner
        self._clock = clock or SystemClock()
        self._requests = Counter(
            "penstock_store_requests",
            "Requests to the object store, by verb and outcome; they are what the store bills.",
            ["verb", "outcome"],
            registry=registry,
        )
        self._bytes = Counter(
            "penstock_store_bytes", "Bytes written to and read from the object store.", ["verb"], registry=registry
        )
        self._seconds = Histogram(
            "penstock_store_request_seconds",
            "Time from a request to the object store to its answer.",
            ["verb"],
            registry=registry,
            buckets=SECONDS_BUCKETS,
        )

    @property
    def has_local_reads(self) -> bool:
        return self._inner.has_local_reads

    async def put(self, key: str, body: Sequence[Buffer], *, if_match: str | None = None) -> str:
        with self.measured("put"):
            etag = await self._inner.put(key, body, if_match=if_match)
        self.count_bytes("put", sum(map(len, body)))
        return etag

    async def get(self, key: str) -> bytes:
        with self.measured("get"):
            data = await self._inner.get(key)
        self.count_bytes("get", len(data))
        return data

    async def get_range(self, key: str, position: int, length: int) -> bytes:
        with self.measured("get_range"):
            data = await self._inner.get_range(key, position, length)
        self.count_bytes("get_range", len(data))
        return data

    async def get_range_into(self, key: str, position: int, buffer: Buffer) -> None:
        with self.measured("get_range"):
            await self._inner.get_range_into(key, position, buffer)
        self.count_bytes("get_range", len(buffer))

    async def get_up_to(self, key: str, position: int, length: int) -> bytes:
        with self.measured("get_range"):
            data = await self._inner.get_up_to(key, position, length)
        self.count_bytes("get_range", len(data))
        return data

    async def list(self, prefix: str, after: str = "", limit: int = LIST_LIMIT_MAX) -> Listing:
        with self.measured("list"):
            return await self._inner.list(prefix, after, limit)

    async def delete(self, keys: Sequence[str]) -> None:
        with self.measured("delete"):
            await self._inner.delete(keys)

    async def begin_parts(self, key: str, part_bytes: int) -> "MeasuredParts":
        with self.measured("begin_parts"):
            return MeasuredParts(self, await self._inner.begin_parts(key, part_bytes))

    async def unfinished(self, prefix: str, limit: int = LIST_LIMIT_MAX) -> Sequence[Unfinished]:
        with self.measured("unfinished"):
            return await self._inner.unfinished(prefix, limit)

    async def abort_unfinished(self, unfinished: Unfinished) -> None:
        with self.measured("abort_unfinished"):
            await self._inner.abort_unfinished(unfinished)

    async def close(self) -> None:
        await self._inner.close()

    def count_bytes(self, verb: str, size: int) -> None:
        """Count the bytes of a request."""
        self._bytes.labels(verb).inc(size)

    @contextlib.contextmanager
    def measured(self, verb: str) -> Iterator[None]:
        """Count and time one request."""
        started_s = self._clock.monotonic_s()
        outcome = "abandoned"  # cancelled, most likely by a time-out
        try:
            yield
            outcome = "ok"
        except PenstockError as error:
            outcome = next((name for kind, name in _OUTCOMES if isinstance(error, kind)), "other")
            raise
        finally:
            self._requests.labels(verb, outcome).inc()
            self._seconds.labels(verb).observe(self._clock.monotonic_s() - started_s)


class MeasuredParts:
    """Measures every request of an upload."""

    def __init__(self, store: MeasuredStore, inner: PartedPut) -> None:
        self._store = store
        self._inner = inner

    async def put_part(self, number: int, body: Sequence[Buffer]) -> None:
        with self._store.measured("put_part"):
            await self._inner.put_part(number, body)
        self._store.count_bytes("put_part", sum(map(len, body)))

    async def complete(self) -> str:
        with self._store.measured("complete_parts"):
            return await self._inner.complete()

    async def abort(self) -> None:
        with self._store.measured("abort_parts"):
            await self._inner.abort()

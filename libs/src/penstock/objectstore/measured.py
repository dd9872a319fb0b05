"""A store that counts its requests, bytes and seconds for Prometheus."""

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence

from prometheus_client import CollectorRegistry, Counter, Histogram

from penstock.contracts.codec import Buffer
from penstock.contracts.errors import Conflict, Corrupt, Fenced, Invalid, PenstockError, Unavailable
from penstock.objectstore.errors import NotFound, Throttled
from penstock.objectstore.store import LIST_LIMIT_MAX, Listing, ObjectStore

# From a file in the page cache to a put that is about to be given up.
SECONDS_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 15.0)
_OUTCOMES: tuple[tuple[type[PenstockError], str], ...] = (
    (NotFound, "not_found"),
    (Throttled, "throttled"),
    (Unavailable, "unavailable"),
    (Conflict, "conflict"),
    (Invalid, "invalid"),
    (Corrupt, "corrupt"),
    (Fenced, "fenced"),
)


class MeasuredStore:
    """Measures every call of the store that it wraps: what is counted is what a store's owner bills."""

    def __init__(
        self, inner: ObjectStore, registry: CollectorRegistry, *, monotonic_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._inner = inner
        self._monotonic_s = monotonic_s
        self._requests = Counter(
            "penstock_store_requests", "Requests to the object store.", ["verb", "outcome"], registry=registry
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

    async def put(self, key: str, body: Sequence[Buffer], *, if_match: str | None = None) -> str:
        with self._measured("put"):
            etag = await self._inner.put(key, body, if_match=if_match)
        self._bytes.labels("put").inc(sum(map(len, body)))
        return etag

    async def get(self, key: str) -> bytes:
        with self._measured("get"):
            data = await self._inner.get(key)
        self._bytes.labels("get").inc(len(data))
        return data

    async def get_range(self, key: str, position: int, length: int) -> bytes:
        with self._measured("get_range"):
            data = await self._inner.get_range(key, position, length)
        self._bytes.labels("get_range").inc(len(data))
        return data

    async def list(self, prefix: str, after: str = "", limit: int = LIST_LIMIT_MAX) -> Listing:
        with self._measured("list"):
            return await self._inner.list(prefix, after, limit)

    async def delete(self, keys: Sequence[str]) -> None:
        with self._measured("delete"):
            await self._inner.delete(keys)

    async def close(self) -> None:
        await self._inner.close()

    @contextlib.contextmanager
    def _measured(self, verb: str) -> Iterator[None]:
        started_s = self._monotonic_s()
        outcome = "abandoned"  # cancelled, most likely by a time-out
        try:
            yield
            outcome = "ok"
        except PenstockError as error:
            outcome = next((name for kind, name in _OUTCOMES if isinstance(error, kind)), "other")
            raise
        finally:
            self._requests.labels(verb, outcome).inc()
            self._seconds.labels(verb).observe(self._monotonic_s() - started_s)

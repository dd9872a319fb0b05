"""The objects of the simulated store, with the etags of S3, and an observer of the clusters' records."""

import hashlib
from collections.abc import Callable, Sequence

import msgspec

from penstock.clusters.record import ClusterRecord, decode_record
from penstock.contracts.codec import Buffer
from penstock.contracts.errors import Invalid
from penstock.objectstore.memory import MemoryStore
from penstock.segment.keys import parse_cluster_record_key


class RecordedStore(MemoryStore):
    """A store in memory whose etags depend on the bytes only: an object that gets its old bytes gets its old etag."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        super().__init__(now_ms=now_ms)
        self.on_record: Callable[[ClusterRecord], None] = lambda record: None

    async def put(self, key: str, body: Sequence[Buffer], *, if_match: str | None = None) -> str:
        await super().put(key, body, if_match=if_match)
        held = self._objects.held
        stored = held[key]
        etag = hashlib.md5(stored.data, usedforsecurity=False).hexdigest()
        held[key] = msgspec.structs.replace(stored, etag=etag)
        try:
            parse_cluster_record_key(key)
        except Invalid:
            return etag
        self.on_record(decode_record(key, stored.data))
        return etag

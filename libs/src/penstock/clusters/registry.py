"""The registry of virtual clusters: one small object for each, which only conditional writes change.

A record is created once, and then replaced by comparison with its version. It is never deleted. A write that was sent
long ago therefore cannot hit the record of a later cluster with the same name.
"""

import msgspec

from penstock.clusters.record import ClusterRecord, ClusterState, check_record, decode_record, encode_record
from penstock.contracts.errors import Conflict, Corrupt, Unavailable
from penstock.objectstore import AlreadyExists, EtagMismatch, NotFound, ObjectInfo, ObjectStore
from penstock.segment.keys import cluster_prefix, cluster_record_key, cluster_records_prefix

_LIST_LIMIT = 1_000


class Registered(msgspec.Struct, frozen=True):
    """A record, and the version of its object."""

    record: ClusterRecord
    etag: str


async def read_clusters(store: ObjectStore) -> list[ClusterRecord]:
    """All clusters whose name is in use, sorted by name; `Corrupt` if a record cannot be read."""
    return [found.record for found in await ClusterRegistry(store).read_all()]


class ClusterRegistry:
    """The records in a store."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    async def versions(self) -> list[ObjectInfo]:
        """The objects of all records, also of clusters that are gone."""
        prefix, found = cluster_records_prefix(""), list[ObjectInfo]()
        while True:
            page = await self._store.list(prefix, found[-1].key if found else "", _LIST_LIMIT)
            found += page
            if len(page) < _LIST_LIMIT:
                return found

    async def read(self, version: ObjectInfo) -> ClusterRecord | None:
        """The record in an object of `versions`, or a newer one; None if the object vanished."""
        try:
            return decode_record(version.key, await self._store.get(version.key))
        except NotFound:
            return None

    async def read_all(self) -> list[Registered]:
        """All records whose name is in use, sorted by name."""
        found = []
        for version in await self.versions():
            record = await self.read(version)
            if record is not None and record.state != ClusterState.GONE:
                found.append(Registered(record, version.etag))
        return found

    async def find(self, name: str) -> Registered | None:
        """The record of this name, also of a cluster that is gone; None if there never was one."""
        # The version is read first. If the record changes in between, a write that relies on the version fails.
        version = await self.version(name)
        record = await self.read(version) if version is not None else None
        return Registered(record, version.etag) if version is not None and record is not None else None

    async def version(self, name: str) -> ObjectInfo | None:
        """The object of this name's record, None if there is none."""
        key = cluster_record_key("", name)
        return next((found for found in await self._store.list(key, limit=1) if found.key == key), None)

    async def has_data(self, name: str) -> bool:
        """Whether the store has any object of a cluster with this name."""
        return bool(await self._store.list(cluster_prefix("", name), limit=1))

    async def create(self, record: ClusterRecord) -> Registered:
        """Register a cluster under a free name; `Conflict` if the name is in use, or another creator was faster."""
        check_record(record)
        found = await self.find(record.name)
        if found is not None and found.record.state != ClusterState.GONE:
            raise Conflict(f"the cluster {record.name} exists: its state is {found.record.state}")
        return await self._write(record, found)

    async def replace(self, found: Registered, record: ClusterRecord) -> Registered:
        """Store a changed record; `Conflict` if the record is not `found` any more."""
        assert record.name == found.record.name, f"{found.record.name} is not {record.name}"
        return await self._write(check_record(record), found)

    async def _write(self, record: ClusterRecord, found: Registered | None) -> Registered:
        """Store the record, with the next revision; `found` is the one that it replaces."""
        key, etag = cluster_record_key("", record.name), None
        if found is not None:
            record, etag = msgspec.structs.replace(record, revision=found.record.revision + 1), found.etag
        try:
            return Registered(record, await self._store.put(key, [encode_record(record)], if_match=etag))
        except (AlreadyExists, EtagMismatch, Unavailable) as error:
            # The store may have taken an earlier attempt of this write.
            stored = await self._look(record.name)
            if stored is not None and stored.record == record:
                return stored
            if isinstance(error, Unavailable):
                raise
            raise Conflict(
                f"the cluster {record.name} was changed at the same time; look at it, then repeat"
            ) from error

    async def _look(self, name: str) -> Registered | None:
        try:
            return await self.find(name)
        except Corrupt:
            return None

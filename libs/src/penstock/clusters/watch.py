"""Follows the registry of clusters: reads it again and again, and reports differences."""

import asyncio
from collections.abc import Callable, Mapping

import msgspec
import structlog

from penstock.clusters.record import ClusterRecord
from penstock.clusters.registry import ClusterRegistry
from penstock.contracts.errors import Corrupt, Invalid, PenstockError
from penstock.objectstore import ObjectStore
from penstock.segment.keys import parse_cluster_record_key

INTERVAL_S = 5.0  # a listing costs 0.000005 dollars: 2.60 dollars a month

log = structlog.get_logger()


class ClusterChanges(msgspec.Struct, frozen=True):
    """The differences between two looks at the active clusters. A cluster made anew under its name is both."""

    added: tuple[ClusterRecord, ...] = ()
    removed: tuple[ClusterRecord, ...] = ()  # deleted, or first seen as deleted
    changed: tuple[ClusterRecord, ...] = ()  # with other quotas or names, as they are now

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.changed)


class ClusterWatch:
    """The registry's clusters, kept up to date while `run` runs.

    If the store does not answer, the clusters stay as they were. A record that cannot be read is kept as it was, or
    left out if it is new. In both cases `set_degraded` gets "registry" and the problem.
    """

    def __init__(
        self,
        store: ObjectStore,
        *,
        on_changes: Callable[[ClusterChanges], None] = lambda changes: None,
        set_degraded: Callable[[str, str], None] = lambda name, reason: None,
        interval_s: float = INTERVAL_S,
    ) -> None:
        self._registry = ClusterRegistry(store)
        self._on_changes = on_changes
        self._set_degraded = set_degraded
        self._interval_s = interval_s
        self._known: dict[str, tuple[str, ClusterRecord]] = {}  # by key: the version and its record

    @property
    def records(self) -> Mapping[str, ClusterRecord]:
        """All records by name, in any state."""
        return {record.name: record for _, record in self._known.values()}

    @property
    def clusters(self) -> Mapping[str, ClusterRecord]:
        """The active clusters by name."""
        return {name: record for name, record in self.records.items() if record.is_active}

    async def open(self) -> None:
        """Look for the first time; `Unavailable` if the store does not answer."""
        await self.look()

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            await asyncio.sleep(self._interval_s)
            try:
                await self.look()
            except PenstockError as error:
                log.warning("registry_not_read", error=str(error))
                self._set_degraded("registry", f"the registry of clusters cannot be read: {error}")

    async def look(self) -> None:
        """Read the records that changed since the last look, and report the differences."""
        before = self.records
        problem = ""
        known: dict[str, tuple[str, ClusterRecord]] = {}
        for version in await self._registry.versions():
            last = self._known.get(version.key)
            try:
                record = last[1] if last is not None and last[0] == version.etag else await self._registry.read(version)
                if record is not None and record.name != parse_cluster_record_key(version.key):
                    raise Corrupt(f"the object {version.key} is the record of {record.name}")
            except (Corrupt, Invalid) as error:
                problem = str(error)
                log.warning("cluster_record_not_read", key=version.key, error=problem)
                if last is not None:
                    known[version.key] = last
                continue
            if record is not None:
                known[version.key] = (version.etag, record)
        self._known = known
        self._set_degraded("registry", problem)
        changes = _changes(before, self.records)
        if changes:
            self._on_changes(changes)


def _changes(before: Mapping[str, ClusterRecord], after: Mapping[str, ClusterRecord]) -> ClusterChanges:
    """The differences. A cluster with the same name and another `created_id` is removed, then added."""
    old = {name: record for name, record in before.items() if record.is_active}
    new = {name: record for name, record in after.items() if record.is_active}

    def stays(name: str) -> bool:
        return name in old and name in new and old[name].created_id == new[name].created_id

    unknown = [record for name, record in after.items() if name not in before and name not in new]
    return ClusterChanges(
        added=tuple(record for name, record in new.items() if not stays(name)),
        removed=(*(record for name, record in old.items() if not stays(name)), *unknown),
        changed=tuple(record for name, record in new.items() if stays(name) and record != old[name]),
    )

"""Checks whether a rebuild may run: the journal must be lost, and no sequencer may run.

A rebuild beside a running cluster, at another NATS, would split the cluster in two. The archive of a running cluster
grows.
"""

from collections.abc import Callable

import msgspec
import structlog

from penstock.contracts.errors import Invalid
from penstock.contracts.subjects import journal_stream
from penstock.objectstore import ObjectStore
from penstock.segment.keys import journal_archive_prefix, parse_journal_archive_key
from penstock_sequencer.storage.journal_marker import JournalIdentity, Marker, marker_key
from penstock_sequencer.storage.journal_stream import MADE_BY_REBUILD, FoundStream
from penstock_sequencer.storage.snapshot_store import NO_PREFIX

# The archive of a running cluster grows at least every minute; this allows for retries and for clocks that differ.
ARCHIVE_AGE_MIN_MS = 3 * 60_000

log = structlog.get_logger()


def check_is_lost(cluster: str, marker: Marker | None, found: FoundStream | None) -> FoundStream | None:
    """`Invalid` if the journal exists; returns the stream that an earlier rebuild has made, if there is one."""
    if found is None:
        return None
    if marker is not None and found.created == marker.identity.created:
        raise Invalid(
            f"the journal of cluster {cluster}, made at {found.created}, exists. Nothing was changed. If "
            f"it is damaged and cannot be repaired, back its stream up, remove it, and then rebuild"
        )
    if found.made_by != MADE_BY_REBUILD:
        raise Invalid(
            f"a stream made at {found.created} has the journal's name of cluster {cluster}, but the object store names "
            f"another. Nothing was changed. Remove the stream if it is not needed, and then rebuild"
        )
    if found.last_sequence > found.first_sequence:
        raise _in_use(cluster, found)
    log.info("rebuild_resumed", first_sequence=found.first_sequence)
    return found


def _in_use(cluster: str, found: FoundStream) -> Invalid:
    identity = JournalIdentity(journal_stream(cluster), found.created)
    return Invalid(
        f"the stream made at {found.created} by a rebuild was used since, up to entry {found.last_sequence}. It "
        f"is the journal of cluster {cluster}, but the object {marker_key(cluster)} does not name it. "
        f"Nothing was changed. If nothing else is missing in the store, write this into that object: "
        f"{msgspec.json.encode(identity).decode()}"
    )


async def check_archive_is_silent(
    store: ObjectStore, cluster: str, now_ms: Callable[[], int], age_min_ms: int, before_sequence: int | None
) -> None:
    """`Invalid` if the archive grew less than `age_min_ms` ago.

    Objects that begin with `before_sequence` or later do not count: an earlier rebuild stored them.
    """
    newest_ms = await _newest_modified_ms(store, cluster, before_sequence)
    if newest_ms is None or not age_min_ms:
        return
    age_ms = now_ms() - newest_ms
    if age_ms < age_min_ms:
        raise Invalid(
            f"the archive of cluster {cluster} grew {age_ms // 1000} s ago, so a sequencer may be running, perhaps at "
            f"another NATS. Nothing was changed. Check the address of NATS and stop all sequencers. Wait "
            f"until the archive has not grown for {age_min_ms // 1000} s, and then rebuild"
        )


async def _newest_modified_ms(store: ObjectStore, cluster: str, before_sequence: int | None) -> int | None:
    newest_ms = None
    after = ""
    while page := await store.list(journal_archive_prefix(NO_PREFIX, cluster), after):
        for info in page:
            try:
                first, _ = parse_journal_archive_key(info.key)
            except Invalid:
                continue  # not an archive object
            if before_sequence is None or first < before_sequence:
                newest_ms = max(newest_ms or 0, info.modified_ms)
        after = page[-1].key
    return newest_ms

"""Whether a rebuild may run: the journal is lost, and the cluster does not live.

A rebuild beside a living cluster, at another NATS, would split it in two. A living cluster shows itself by its archive.
"""

from collections.abc import Callable

import msgspec
import structlog

from penstock.contracts.errors import Invalid
from penstock.contracts.subjects import journal_stream
from penstock.objectstore import ObjectStore
from penstock.segment.keys import journal_archive_prefix, parse_journal_archive_key
from penstock_sequencer.rebuild.stream import FoundStream
from penstock_sequencer.storage.journal_marker import JournalIdentity, Marker, marker_key
from penstock_sequencer.storage.snapshot_store import NO_PREFIX

# While a cluster lives its archive grows at least every minute; this leaves room for retries and clocks that differ.
ARCHIVE_AGE_MIN_MS = 3 * 60_000

log = structlog.get_logger()


def check_is_lost(cluster: str, marker: Marker | None, found: FoundStream | None) -> FoundStream | None:
    """`Invalid` if the journal is there; the stream that an earlier rebuild has begun with, if there is one."""
    if found is None:
        return None
    if marker is not None and found.created == marker.identity.created:
        raise Invalid(
            f"the journal of cluster {cluster}, made at {found.created}, is there; nothing was changed. If "
            f"it is damaged and cannot be mended, back its stream up, remove it, and rebuild then"
        )
    if not found.is_rebuilt:
        raise Invalid(
            f"a stream made at {found.created} has the name of the journal of cluster {cluster} and is not "
            f"the one that the store knows; nothing was changed. Remove it if nobody needs it, and rebuild then"
        )
    if found.last_sequence > found.first_sequence:
        raise _in_use(cluster, found)
    log.info("rebuild_goes_on", first_sequence=found.first_sequence)
    return found


def _in_use(cluster: str, found: FoundStream) -> Invalid:
    identity = JournalIdentity(journal_stream(cluster), found.created)
    return Invalid(
        f"the stream made at {found.created} by a rebuild was in use since, up to entry {found.last_sequence}: it "
        f"is the journal of cluster {cluster}, but the object {marker_key(cluster)} does not name it; "
        f"nothing was changed. If nothing else is missing in the store, put that object there again: "
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
            f"the archive of cluster {cluster} grew {age_ms // 1000} s ago, so a sequencer may be at work, perhaps at "
            f"another NATS than this one; nothing was changed. Check the address of NATS, stop all sequencers, wait "
            f"until the archive has not grown for {age_min_ms // 1000} s, and rebuild then"
        )


async def _newest_modified_ms(store: ObjectStore, cluster: str, before_sequence: int | None) -> int | None:
    newest_ms = None
    after = ""
    while page := await store.list(journal_archive_prefix(NO_PREFIX, cluster), after):
        for info in page:
            try:
                first, _ = parse_journal_archive_key(info.key)
            except Invalid:
                continue  # not the archive's
            if before_sequence is None or first < before_sequence:
                newest_ms = max(newest_ms or 0, info.modified_ms)
        after = page[-1].key
    return newest_ms

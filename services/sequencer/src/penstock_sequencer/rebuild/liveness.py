"""Whether the cluster lives, told by its archive: a rebuild beside it, at another NATS, would split it in two."""

from collections.abc import Callable

from penstock.contracts.errors import Invalid
from penstock.objectstore import ObjectStore
from penstock.segment.keys import journal_archive_prefix, parse_journal_archive_key
from penstock_sequencer.custodian.archiver import NO_PREFIX

# While a cluster lives its archive grows at least every minute; this leaves room for retries and clocks that differ.
ARCHIVE_AGE_MIN_MS = 3 * 60_000


async def check_is_silent(
    store: ObjectStore, cluster: str, now_ms: Callable[[], int], age_min_ms: int, before_sequence: int | None
) -> None:
    """`Invalid` if the archive grew less than `age_min_ms` ago; what begins with `before_sequence` or later is ours."""
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

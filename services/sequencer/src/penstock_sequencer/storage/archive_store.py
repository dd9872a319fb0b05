"""The journal's archive in the object store: list its objects, and read one."""

import contextlib

from penstock.contracts.errors import Corrupt, Invalid
from penstock.objectstore import ObjectStore
from penstock.segment.keys import journal_archive_key, journal_archive_prefix, parse_journal_archive_key
from penstock_sequencer.storage.archive_format import Archive, decode_archive
from penstock_sequencer.storage.snapshot_format import UnknownVersion
from penstock_sequencer.storage.snapshot_store import NO_PREFIX


async def list_archive(store: ObjectStore, cluster: str) -> list[tuple[int, int]]:
    """(First, last) sequence of every archive object, ascending; other objects under the prefix are ignored."""
    spans = []
    prefix = journal_archive_prefix(NO_PREFIX, cluster)
    after = ""
    while page := await store.list(prefix, after):
        for info in page:
            with contextlib.suppress(Invalid):
                spans.append(parse_journal_archive_key(info.key))
        after = page[-1].key
    return sorted(spans)


async def read_archive(store: ObjectStore, cluster: str, first: int, last: int) -> Archive:
    """One object of the archive; `NotFound` if there is none, else the errors of `decode_archive`.

    `Corrupt` if it differs from its key.
    """
    key = journal_archive_key(NO_PREFIX, cluster, first, last)
    try:
        archive = decode_archive(await store.get(key))
    except UnknownVersion as error:
        raise UnknownVersion(f"{key}: {error}") from error
    except Corrupt as error:
        raise Corrupt(f"{key}: {error}") from error
    if (archive.first, archive.last) != (first, last):
        raise Corrupt(f"{key} holds entries {archive.first} to {archive.last}")
    return archive

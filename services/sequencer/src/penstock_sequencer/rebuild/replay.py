"""The exact part of a rebuild: the newest good snapshot, then archived entries up to the first gap."""

from collections.abc import Iterator

import msgspec

from penstock.contracts.entries import GENESIS_HASH, Entry, decode_entry, is_of_later_release, next_hash
from penstock.contracts.errors import Corrupt, Invalid
from penstock.objectstore import NotFound, ObjectStore
from penstock_sequencer.core.machine import apply_entry
from penstock_sequencer.core.state.cluster import State, new_state
from penstock_sequencer.rebuild.report import Report
from penstock_sequencer.storage.archive_format import Archive, hash_after
from penstock_sequencer.storage.archive_store import list_archive, read_archive
from penstock_sequencer.storage.snapshot_format import UnknownVersion
from penstock_sequencer.storage.snapshot_store import find_newest_snapshot


class JournalState(msgspec.Struct):
    """A state, and the journal's running hash after the state's last entry."""

    state: State
    hash: bytes


async def replay_archive(store: ObjectStore, cluster: str, report: Report) -> JournalState:
    """The state at the end of snapshots and archive; `Invalid` without any, `UnknownVersion` if too new."""
    known = await _from_snapshot(store, cluster, report)
    await _replay(store, cluster, known, report)
    state = known.state
    if not state.sequence:
        raise Invalid(f"the store has no good snapshot of cluster {cluster}, and no archive from entry 1 on")
    report.archived_sequence, report.archived_until_ms = state.sequence, state.clock_ms
    return known


async def _from_snapshot(store: ObjectStore, cluster: str, report: Report) -> JournalState:
    found = await find_newest_snapshot(store, cluster)
    report.damaged_snapshots = found.damaged
    if found.snapshot is None:
        return JournalState(new_state(), GENESIS_HASH)
    report.snapshot_sequence = found.snapshot.state.sequence
    return JournalState(found.snapshot.state, found.snapshot.hashes[-1])


async def _replay(store: ObjectStore, cluster: str, known: JournalState, report: Report) -> None:
    """Apply archived entries up to the first gap."""
    spans = await list_archive(store, cluster)
    tried: set[tuple[int, int]] = set()
    while span := next(_continuing(spans, known.state.sequence, tried), None):
        tried.add(span)
        try:
            archive = await read_archive(store, cluster, *span)
            _check_continues(archive, known)
            _apply(archive, known)
            report.archive_objects += 1
        except UnknownVersion:  # undamaged: all entries from there on would be left out
            raise
        except (Corrupt, NotFound) as error:
            report.damaged_archive.append(f"entries {span[0]} to {span[1]}: {error}")
    report.unreached_archive = sum(first > known.state.sequence + 1 for first, _ in spans)


def _continuing(spans: list[tuple[int, int]], sequence: int, tried: set[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Objects with the entry after `sequence` that were not tried; those that reach furthest come first."""
    found = [span for span in spans if span[0] <= sequence + 1 <= span[1] and span not in tried]
    return iter(sorted(found, key=lambda span: -span[1]))


def _check_continues(archive: Archive, known: JournalState) -> None:
    if hash_after(archive, known.state.sequence) != known.hash:
        raise Corrupt(f"it builds on another past than the state at entry {known.state.sequence}")


def _apply(archive: Archive, known: JournalState) -> None:
    for data in archive.entries[known.state.sequence + 1 - archive.first :]:
        sequence = known.state.sequence + 1
        entry = _decoded(sequence, data)
        apply_entry(known.state, sequence, entry.requests, announce=False)
        known.hash = next_hash(known.hash, data)


def _decoded(sequence: int, data: bytes) -> Entry:
    try:
        return decode_entry(data)
    except Corrupt as error:
        kind = UnknownVersion if is_of_later_release(data, error) else Corrupt
        raise kind(f"entry {sequence}: {error}") from error

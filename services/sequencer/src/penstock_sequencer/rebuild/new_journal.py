"""Makes the new journal: a stream that starts far after the old journal's end, and the snapshot before its first entry.

The steps have this order. A step that was done before does nothing, so the next rebuild completes an interrupted one:

 1. The stream is made; its first entry will be `first_sequence`. Sequencers reject it: the marker names another.
 2. The snapshot just before that entry is stored, and read back.
 3. The entry is appended and archived. A second snapshot is stored after it, as the fallback of the first.
 4. The marker names the new stream. From here on sequencers start.

The gap after the old journal has a reason. Gateways and flushers have seen sequences of lost entries, and replicas of
the old journal may still archive some. None of these sequences is used again.
"""

import structlog

from penstock.contracts.commands import Command, RecordArchived, RecordSnapshot, TakeCustody, Tick
from penstock.contracts.entries import Entry, decode_entry, encode_entry, next_hash
from penstock.contracts.errors import Conflict, Corrupt, Invalid
from penstock.objectstore import AlreadyExists, ObjectStore
from penstock.runtime.journal import Journal
from penstock.segment.keys import journal_archive_key, snapshot_key
from penstock_sequencer.core.machine import apply_entry
from penstock_sequencer.core.state.cluster import Custody
from penstock_sequencer.rebuild.replay import JournalState
from penstock_sequencer.storage.archive_format import Archive, encode_archive
from penstock_sequencer.storage.snapshot_format import Snapshot, encode_snapshot
from penstock_sequencer.storage.snapshot_store import NO_PREFIX, read_stored_snapshot

AUTHOR = "rebuild"
# More entries than can be appended between the archive's end and the loss, even at the highest rate.
SEQUENCES_SKIPPED = 1_000_000_000

log = structlog.get_logger()


def start_journal(known: JournalState, first_sequence: int) -> JournalState:
    """The state just before the new journal's first entry; its running hash occurs in no older journal.

    `Invalid` if the state already includes that entry.
    """
    state = known.state
    if state.sequence >= first_sequence:
        raise Invalid(
            f"the store has journal entries up to {state.sequence}, and the stream that a rebuild made starts at "
            f"entry {first_sequence}. Nothing was changed. Remove that stream if it is not needed, and then rebuild"
        )
    state.sequence = first_sequence - 1
    state.custody = Custody()
    return JournalState(state, next_hash(known.hash, first_sequence.to_bytes(8, "big")))


def first_entry(known: JournalState) -> bytes:
    """The new journal's first entry, with housekeeping only; it is the same in each run."""
    state = known.state
    now_ms = state.clock_ms
    commands: list[Command] = [
        Tick(now_ms),
        TakeCustody(now_ms, AUTHOR),
        RecordArchived(now_ms, AUTHOR, state.sequence),
        RecordSnapshot(now_ms, AUTHOR, state.sequence),
    ]
    entry_id = f"{AUTHOR}-{state.sequence + 1}"
    return encode_entry(Entry(entry_id, AUTHOR, state.sequence, known.hash, [commands]))


async def store_snapshot(store: ObjectStore, cluster: str, known: JournalState, hashes: list[bytes]) -> None:
    """Store the state, and read it back; `Corrupt` if it cannot be read."""
    sequence = known.state.sequence
    data = encode_snapshot(Snapshot(cluster, hashes, known.state))
    try:
        await store.put(snapshot_key(NO_PREFIX, cluster, sequence), [data])
    except AlreadyExists:
        log.info("snapshot_exists_already", sequence=sequence)
    stored = await read_stored_snapshot(store, cluster, sequence)
    if stored.hashes[-1] != known.hash:
        raise Corrupt(f"the snapshot at entry {sequence} is of another journal")


async def put_first_entry(store: ObjectStore, cluster: str, journal: Journal, known: JournalState) -> None:
    """Append the first entry unless it exists, archive it, and store the snapshot after it."""
    before = known.hash
    sequence = known.state.sequence + 1
    data = first_entry(known)
    await _append(journal, sequence, data)
    try:
        archive = encode_archive(Archive(sequence, before, [data]))
        await store.put(journal_archive_key(NO_PREFIX, cluster, sequence, sequence), [archive])
    except AlreadyExists:
        log.info("archive_exists_already", sequence=sequence)
    after = _applied(known, data)
    await store_snapshot(store, cluster, after, [before, after.hash])


async def _append(journal: Journal, sequence: int, data: bytes) -> None:
    if (await journal.describe()).last_sequence < sequence:
        appended = await journal.append(f"{AUTHOR}-{sequence}", data)
        if appended != sequence:
            raise Conflict(f"the first entry got sequence {appended}, expected {sequence}: another process appends")
    async for group in journal.tail(sequence - 1):
        if group[0].data != data:
            raise Invalid(f"the stream's entry {sequence} is not the first entry of this rebuild")
        return


def _applied(known: JournalState, data: bytes) -> JournalState:
    state = known.state
    apply_entry(state, state.sequence + 1, decode_entry(data).requests, announce=False)
    return JournalState(state, next_hash(known.hash, data))

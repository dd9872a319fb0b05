"""Faults of replicas and the custodian: the hash chain, the place in the journal, archive, snapshots and purges."""

from tests.testkit.mutants.mutant import Change, Mutant

CHAIN = "penstock_sequencer.replication.hash_chain"
REPLICA = "penstock_sequencer.replication.replica"
SNAPSHOTTER = "penstock_sequencer.custodian.snapshotter"
REPLICATION_TESTS = (
    "tests/unit/sequencer/replication/test_sequencer_chain.py",
    "tests/unit/sequencer/replication/test_sequencer_replicas.py",
)

MUTANTS = [
    Mutant(
        "skip_hash_chain",
        "A replica does not compare hashes: it applies an entry that was written on another past, and forks.",
        [Change(CHAIN, "        if ours != entry.author_hash:\n", "        if False:\n")],
        REPLICATION_TESTS,
    ),
    Mutant(
        "accept_entries_from_the_future",
        "A replica accepts an entry that builds on an entry that does not exist: the journal went back unnoticed.",
        [Change(CHAIN, "        if behind < 0:\n", "        if behind < -1:\n")],
        REPLICATION_TESTS,
    ),
    Mutant(
        "compare_one_hash_too_new",
        "A replica compares an author's hash with the one of the next entry: sound entries halt it.",
        [Change(CHAIN, "self._hash_of(self.sequence - behind)", "self._hash_of(self.sequence - max(behind - 1, 0))")],
        REPLICATION_TESTS,
    ),
    Mutant(
        "skip_place_of_snapshot",
        "A replica does not compare the snapshot's last entry with the journal: it continues another journal.",
        [
            Change(
                REPLICA,
                "if item.sequence != self._chain.sequence or not self._chain.ends_with(item.data):",
                "if item.sequence != self._chain.sequence:",
            )
        ],
        ("tests/unit/sequencer/custodian/test_sequencer_snapshots.py",),
    ),
    Mutant(
        "serve_journal_that_ends_before_its_archive",
        "A sequencer starts with a journal from an older backup: acknowledged records are lost without a word.",
        [
            Change(
                "penstock_sequencer.journal_guard.completeness",
                "    if info.last_sequence < archived:\n",
                "    if info.last_sequence < 0:\n",
            )
        ],
        ("tests/simulation/test_simulated_backups.py", "tests/unit/sequencer/custodian"),
    ),
    Mutant(
        "adopt_journal_of_another_store",
        "A sequencer takes over a journal with entries although its store knows none: entries name missing objects.",
        [
            Change(
                "penstock_sequencer.journal_guard.identity",
                "    if marker is None and described.last_sequence:\n        raise Halted(",
                "    if False:\n        raise Halted(",
            )
        ],
        ("tests/unit/sequencer/journal_guard",),
    ),
    Mutant(
        "follow_a_remade_journal",
        "A sequencer starts with a journal that was made again: it serves an empty cluster.",
        [Change("penstock_sequencer.journal_guard.identity", "    if marker != found:\n", "    if False:\n")],
        ("tests/unit/sequencer/journal_guard",),
    ),
    Mutant(
        "trust_snapshots_unread",
        "The custodian does not read its snapshot back: it purges the journal because of a wrong snapshot.",
        [
            Change(
                SNAPSHOTTER,
                "    if _fingerprint(read_snapshot_file(out, known_level=known_level)) != _fingerprint(snapshot):\n",
                "    if False:\n",
            )
        ],
        ("tests/unit/sequencer/custodian",),
    ),
    Mutant(
        "purge_without_checking_the_snapshot",
        "The custodian purges the journal although the older snapshot is damaged: no start can fall back to it.",
        [Change(SNAPSHOTTER, "if oldest is None or not await self._is_good(oldest) or", "if oldest is None or")],
        ("tests/unit/sequencer/custodian",),
    ),
]

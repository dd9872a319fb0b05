"""Faults of janitors: objects that are deleted while a reader, a commit or a rebuild may still need them."""

from tests.testkit.mutants.mutant import Change, Mutant

CLASSIFICATION = "penstock_janitor.rules.classification"
APP = "penstock_janitor.app"
REAPER = "penstock_janitor.deletion.reaper"
RULES = "Rules(config.grace_ms, config.orphan_age_ms)"
NOW = "Now(clock_ms, self._clock.now_ms(), secured_sequence, watched_sequence)"

MUTANTS = [
    Mutant(
        "delete_without_grace",
        "The janitor deletes dead segments at once: a consumer that still reads one fails.",
        [
            Change(APP, RULES, "Rules(0, config.orphan_age_ms)"),
            Change(APP, "Checkpoints(config.grace_ms / 1000)", "Checkpoints(0)"),
        ],
    ),
    Mutant(
        "count_grace_by_wall_clock",
        "The janitor counts the grace by its own wall clock only: a clock that is fast ends the grace early.",
        [Change(REAPER, NOW, "Now(self._clock.now_ms(), self._clock.now_ms(), secured_sequence, 2**62)")],
    ),
    Mutant(
        "age_orphans_by_wall_clock",
        "The janitor counts orphans' ages by its own wall clock only: a fast clock deletes one before its commit.",
        [Change("penstock_janitor.rules.classification", "min(self.clock_ms, self.own_ms)", "self.own_ms")],
    ),
    Mutant(
        "sweep_young_segments",
        "The janitor treats each segment without a commit as an orphan: a flusher commits a deleted segment.",
        [Change(APP, RULES, "Rules(config.grace_ms, -(2**62))")],
    ),
    Mutant(
        "remove_segments_before_deletion",
        "The janitor removes segments from the journal and deletes their objects later: a failure leaves objects "
        "without any record of them.",
        [
            Change(
                REAPER,
                """\
deleted = await self._deleter.delete(await self._still_dead(segment_ids))
        await self._end(job_id, deleted)
""",
                """\
pending_delete = await self._still_dead(segment_ids)
        await self._end(job_id, Deleted(pending_delete))
        deleted = await self._deleter.delete(pending_delete)
""",
            )
        ],
    ),
    Mutant(
        "delete_before_snapshots",
        "The janitor deletes objects before they are dead in two snapshots: a rebuilt journal names missing objects.",
        [Change(REAPER, NOW, "Now(clock_ms, self._clock.now_ms(), 2**62, watched_sequence)")],
    ),
    Mutant(
        "count_grace_from_the_journal_only",
        "The janitor does not count the grace by its monotonic clock: a journal clock that leaps ends the grace early.",
        [Change(CLASSIFICATION, "    if dead_sequence > now.watched_sequence:\n", "    if False:\n")],
    ),
    Mutant(
        "delete_orphans_after_a_rebuild",
        "The janitor deletes orphans at once after a rebuild: segments that the rebuild missed are lost for good.",
        [Change(CLASSIFICATION, "    if now.rebuilt_ms != NEVER and", "    if now.rebuilt_ms != now.rebuilt_ms and")],
    ),
    Mutant(
        "abort_young_uploads",
        "The janitor aborts uploads that are still in progress: a compactor's job fails again and again.",
        [
            Change(
                CLASSIFICATION,
                """\
    if age_ms < rules.orphan_age_ms:
        return Classification(ObjectState.YOUNG, f"{upload}""",
                """\
    if age_ms < 0:
        return Classification(ObjectState.YOUNG, f"{upload}""",
            )
        ],
    ),
]

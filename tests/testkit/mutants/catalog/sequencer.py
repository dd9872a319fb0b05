"""Faults of sequencers: too early answers, and batches, extents and segments in the state machine."""

from tests.testkit.mutants.mutant import Change, Mutant

REQUEST_SERVER = "penstock_sequencer.serving.request_server"
SEGMENT_COMMIT = "penstock_sequencer.core.commits.segment_commit"
PRODUCERS = "penstock_sequencer.core.log.producers"
ACCEPT = "                exception = accept(state, partition, batch, offset, origin)\n"

MUTANTS = [
    Mutant(
        "take_a_missing_option_for_a_loss",
        "A rebuild without the option for the landing store takes all express segments for lost, though they exist.",
        [Change("penstock_sequencer.rebuild.lost_landing", "if slots and not has_landing:", "if False:")],
        ("tests/unit/sequencer/rebuild/test_rebuild_lost_landing.py",),
    ),
    Mutant(
        "answer_before_journal_commit",
        "The sequencer answers before the journal holds the entry: an acknowledged command can be lost.",
        [
            Change(
                REQUEST_SERVER,
                "sequence, outcomes = await self._proposer.propose(request.commands, request.trace)\n",
                """\
import copy

                from penstock_sequencer.core import machine

                async def propose_later() -> None:
                    with contextlib.suppress(Unavailable):  # it is answered already
                        await self._proposer.propose(request.commands)

                self._owner.create_task(propose_later())
                guess = copy.deepcopy(self._replica.state)
                guessed, _ = machine.apply_entry(guess, guess.sequence + 1, [request.commands])
                outcomes = guessed[0]
""",
            )
        ],
    ),
    Mutant(
        "serve_before_catching_up",
        "A replica serves before it has applied the entries that were there at its start: its answers are too old.",
        [Change("penstock_sequencer.service", "            await self._catch_up()\n", "")],
    ),
    Mutant(
        "skip_read_index",
        "A replica answers fresh reads without asking how far the journal reaches: it can miss committed entries.",
        [Change(REQUEST_SERVER, 'if getattr(query, "fresh", False):', "if False:")],
    ),
    Mutant(
        "store_duplicate_batches",
        "The machine stores a batch that it has already: an idempotent producer's records are duplicated.",
        [
            Change(
                SEGMENT_COMMIT,
                ACCEPT,
                ACCEPT
                + """\
                if exception is not None and not exception.rejection:
                    exception = None
""",
            )
        ],
    ),
    Mutant(
        "answer_duplicates_with_new_offset",
        "The machine answers a duplicate with the offset of a new batch: another record is at that offset.",
        [
            Change(
                SEGMENT_COMMIT,
                ACCEPT,
                ACCEPT
                + """\
                if exception is not None and not exception.rejection:
                    exception = BatchResult(0, offset, log_start_offset)
""",
            )
        ],
    ),
    Mutant(
        "reuse_producer_ids",
        "The machine assigns the id of an earlier producer again: batches of two producers are confused.",
        [
            Change(
                PRODUCERS,
                "    return ProducerAllocated(new_producer_id(state), 0)\n",
                "    return ProducerAllocated(max(1, new_producer_id(state) - 2), 0)\n",
            )
        ],
    ),
    Mutant(
        "replace_extents_without_check",
        "The machine replaces extents that are not those of the compactor's plan: records are lost or duplicated.",
        [
            Change(
                "penstock_sequencer.core.maintenance.replace_extents",
                "if not _are_inputs(state, job, run, partition, start, stop) or _is_new_range(changes, run):",
                "if _is_new_range(changes, run):",
            )
        ],
    ),
    Mutant(
        "commit_expired_segments",
        "The machine commits a segment that is so old that janitors may have deleted it: its records cannot be read.",
        [
            Change(
                SEGMENT_COMMIT,
                "    return born_ms + state.limits.log.segment_commit_age_max_ms < state.clock_ms\n",
                "    return born_ms + 2**62 < state.clock_ms\n",
            )
        ],
    ),
    Mutant(
        "expire_one_extent_too_many",
        "Retention drops one extent that it must keep: records are lost before their time.",
        [
            Change(
                "penstock_sequencer.core.log.retention",
                """\
        expired = count_expired(state, step.clock_ms, partition, configs, step.left + 1)
""",
                """\
        expired = count_expired(state, step.clock_ms, partition, configs, step.left + 1)
        expired = min(expired + 1, step.left + 1, len(partition.extents))
""",
            )
        ],
    ),
]

"""Faults of the state machine's logs: epochs, last stable offsets, retention, and the replacement of extents."""

from tests.testkit.mutants.mutant import Change, Mutant

LIFECYCLE = "penstock_sequencer.core.transactions.lifecycle"
PRODUCERS = "penstock_sequencer.core.log.producers"
PRODUCER_TABLE = "penstock_sequencer.core.log.producer_table"
RETENTION = "penstock_sequencer.core.log.retention"
REPLACE = "penstock_sequencer.core.maintenance.replace_extents"
PARTITIONS = "penstock_sequencer.core.log.partitions"
TRANSACTION_TESTS = ("tests/unit/sequencer/core/transactions",)
LOG_TESTS = ("tests/unit/sequencer/core/log",)
MAINTENANCE_TESTS = ("tests/unit/sequencer/core/maintenance", "tests/unit/sequencer/test_sequencer_compaction.py")

MUTANTS = [
    Mutant(
        "accept_older_epochs",
        "The machine accepts batches of an older producer epoch: a fenced producer continues to write.",
        [
            Change(
                PRODUCERS,
                "        if batch.producer_epoch < producer.epoch:\n",
                "        if batch.producer_epoch < producer.epoch - 1:\n",
            )
        ],
        LOG_TESTS,
    ),
    Mutant(
        "keep_epoch_when_fencing",
        "The machine aborts the former producer's transaction and keeps its epoch: two producers write with one id.",
        [
            Change(
                LIFECYCLE,
                "        end(state, transaction, committed=False, bumps=True, changes=changes)\n",
                "        end(state, transaction, committed=False, bumps=False, changes=changes)\n",
            )
        ],
        TRANSACTION_TESTS,
    ),
    Mutant(
        "keep_epoch_of_idle_producer",
        "The machine gives a new producer the epoch of the former one, which is not fenced.",
        [Change(LIFECYCLE, "        _bump(state, transaction)\n        _touch(", "        _touch(")],
        TRANSACTION_TESTS,
    ),
    Mutant(
        "end_transactions_without_timeout",
        "The machine aborts transactions only long after their timeouts: readers wait for a dead producer.",
        [
            Change(
                LIFECYCLE,
                "    while alarms and alarms[0][0] <= state.clock_ms:\n",
                "    while alarms and alarms[0][0] + 3_600_000 <= state.clock_ms:\n",
            )
        ],
        TRANSACTION_TESTS,
    ),
    Mutant(
        "drop_offsets_sent_last",
        "The machine commits a transaction's offset over a later commit: the group's offset goes back.",
        [
            Change(
                "penstock_sequencer.core.groups.pending_offsets",
                "        if before is not None and before.sequence > committed.sequence:\n",
                "        if False:\n",
            )
        ],
        ("tests/unit/sequencer/core/transactions", "tests/unit/sequencer/core/groups"),
    ),
    Mutant(
        "stable_after_newest_transaction",
        "The machine counts records as decided up to the newest open transaction: readers see undecided records.",
        [
            Change(
                PARTITIONS, "max(next(iter(transactions.open.values())),", "max(list(transactions.open.values())[-1],"
            )
        ],
        TRANSACTION_TESTS,
    ),
    Mutant(
        "stable_before_log_start",
        "The machine reports a last stable offset before the log's start: a reader gets an offset out of range.",
        [
            Change(
                PARTITIONS,
                "    return max(next(iter(transactions.open.values())), partition.log_start_offset)\n",
                "    return next(iter(transactions.open.values()))\n",
            )
        ],
        (*TRANSACTION_TESTS, *LOG_TESTS),
    ),
    Mutant(
        "accept_older_generations",
        "The machine accepts offsets of an earlier generation: a former owner replaces the present offset.",
        [
            Change(
                "penstock_sequencer.core.groups.offset_commit",
                "    if command.generation != group.generation:\n",
                "    if command.generation > group.generation:\n",
            )
        ],
        ("tests/unit/sequencer/core/groups",),
    ),
    Mutant(
        "keep_generation_in_rebalances",
        "The machine keeps the generation in a rebalance: members of two generations commit for one partition.",
        [Change("penstock_sequencer.core.groups.classic_group", "    group.generation += 1\n", "")],
        ("tests/unit/sequencer/core/groups",),
    ),
    Mutant(
        "retain_less_than_bytes",
        "Retention counts the extent that it drops as part of the rest: it keeps less than retention.bytes.",
        [
            Change(
                RETENTION,
                "        size_bytes -= columns.lengths[row]\n",
                "        size_bytes -= columns.lengths[row] * (row > head)\n",
            )
        ],
        LOG_TESTS,
    ),
    Mutant(
        "retain_less_than_time",
        "Retention expires a record in the millisecond in which it is exactly as old as retention.ms.",
        [
            Change(
                RETENTION,
                "overdue_ms(state, clock_ms, partition, configs, row) <= 0:",
                "overdue_ms(state, clock_ms, partition, configs, row) < 0:",
            )
        ],
        LOG_TESTS,
    ),
    Mutant(
        "expire_undecided_records",
        "Retention drops records of an open transaction: its commit names records that are gone.",
        [
            Change(
                RETENTION,
                "columns.find_offset(last_stable_offset(partition)) if has_transactions else columns.end",
                "columns.end",
            )
        ],
        (*LOG_TESTS, *TRANSACTION_TESTS),
    ),
    Mutant(
        "expire_by_one_clock",
        "Retention uses the machine's clock alone: a sequencer with a wrong clock empties all logs.",
        [
            Change(
                "penstock_sequencer.core.log.reclaim",
                "    return min(state.clock_ms, now_ms)\n",
                "    return state.clock_ms\n",
            )
        ],
        LOG_TESTS,
    ),
    Mutant(
        "delete_records_after_the_end",
        "DeleteRecords moves a log's start after its end: records that come later cannot be read.",
        [Change(RETENTION, "if not 0 <= offset <= partition.high_watermark:", "if not 0 <= offset:")],
        LOG_TESTS,
    ),
    Mutant(
        "replace_undecided_records",
        "The machine lets a compaction leave out aborted records where transactions are open: committed ones are lost.",
        [
            Change(
                REPLACE,
                "    if run.without_aborted and run.last_offset >= last_stable_offset(partition):\n",
                "    if False:\n",
            )
        ],
        TRANSACTION_TESTS,
    ),
    Mutant(
        "replace_extents_twice_in_a_job",
        "The machine accepts two runs of one job over the same extents: records are counted and read twice.",
        [Change(REPLACE, "    if _touches(spans, start, stop) or (run", "    if (run")],
        MAINTENANCE_TESTS,
    ),
    Mutant(
        "replace_extents_of_the_same_entry",
        "The machine replaces extents that the same entry appended: gateways miss them in the announcement.",
        [Change(REPLACE, "start, stop) or _is_new_range(changes, run):", "start, stop):")],
        MAINTENANCE_TESTS,
    ),
    Mutant(
        "replace_extents_before_the_log_start",
        "The machine replaces extents before the log's start: deleted records live on in the new extent.",
        [
            Change(
                REPLACE,
                "state.level >= JANITOR_LEVEL and start < partition.extents.find_offset(partition.log_start_offset):",
                "False:",
            )
        ],
        MAINTENANCE_TESTS,
    ),
    Mutant(
        "continue_a_broken_cleaning_pass",
        "The machine accepts a cleaned run after a rejected one of its pass: older records of a key stay for ever.",
        [Change(REPLACE, " or (run.topic_id, run.partition) in job.ended:", ":")],
        MAINTENANCE_TESTS,
    ),
    Mutant(
        "decide_a_repeated_job_again",
        "The machine decides a repeated ReplaceExtents anew: the compactor deletes the output that is in use.",
        [
            Change(
                REPLACE,
                "    if remembered is not None:\n        return _answer_again",
                "    if False:\n        return _answer_again",
            )
        ],
        MAINTENANCE_TESTS,
    ),
    Mutant(
        "commit_a_repeated_segment_again",
        "The machine decides a repeated CommitSegment anew: a producer without idempotence gets its records twice.",
        [
            Change(
                "penstock_sequencer.core.commits.segment_commit",
                "    if remembered is not None:\n        return _answer_again",
                "    if False:\n        return _answer_again",
            )
        ],
        LOG_TESTS,
    ),
    Mutant(
        "evict_producers_that_may_retry",
        "The machine evicts producers from a full table that may still send a batch again: it is stored twice.",
        [
            Change(PRODUCER_TABLE, "if each.active_ms < before_ms and each_id", "if each_id"),
            Change(PRODUCER_TABLE, "    if partition.idlest_ms >= before_ms:\n", "    if False:\n"),
        ],
        LOG_TESTS,
    ),
    Mutant(
        "evict_producers_in_transactions",
        "The machine evicts a producer with an open transaction: its next batch is rejected as out of order.",
        [Change(PRODUCER_TABLE, " and each_id not in is_open", "")],
        LOG_TESTS,
    ),
    Mutant(
        "begin_evicted_producers_again",
        "The machine accepts a late copy of a batch whose producer was evicted since: the batch is stored twice.",
        [Change(PRODUCERS, "    if origin.born_ms < evicted_ms(partition, owner):", "    if False:")],
        LOG_TESTS,
    ),
]

"""Faults of transactions: markers, isolation, fencing, and the offsets that belong to a transaction."""

from tests.testkit.mutants.mutant import Change, Mutant

MACHINE = "penstock_sequencer.core.machine"
QUERIES = "penstock_sequencer.core.queries"
COORDINATOR = "penstock_sequencer.core.transactions.coordinator"
LIFECYCLE = "penstock_sequencer.core.transactions.lifecycle"
PARTITION_TRANSACTIONS = "penstock_sequencer.core.state.partition_transactions"
ABORTED_FOUND = "        return found, end_offset\n"

MUTANTS = [
    Mutant(
        "read_undecided_records",
        "The gateway reads up to the high watermark for read_committed: consumers see records that are aborted later.",
        [
            Change(
                "penstock_gateway.fetch.fetch_partition",
                "return view.last_stable_offset if known_end < 0 else min(view.last_stable_offset, known_end)",
                "return view.high_watermark",
            )
        ],
    ),
    Mutant(
        "announce_no_markers",
        "The sequencer announces markers' extents without the markers: consumers do not know how transactions ended.",
        [Change(MACHINE, "        markers_among(partition, first, end),\n", "        [],\n")],
    ),
    Mutant(
        "announce_high_watermark_as_stable",
        "The sequencer announces the high watermark as last stable offset: consumers see undecided records.",
        [Change(MACHINE, "        last_stable_offset(partition),\n", "        partition.high_watermark,\n")],
    ),
    Mutant(
        "plan_high_watermark_as_stable",
        "The sequencer plans with the high watermark as last stable offset: consumers see undecided records.",
        [
            Change(QUERIES, "        last_stable_offset(partition),\n", "        partition.high_watermark,\n"),
            Change(
                QUERIES,
                "epoch, start, stable = state.leader_epoch, partition.log_start_offset, last_stable_offset(partition)",
                "epoch, start, stable = state.leader_epoch, partition.log_start_offset, partition.high_watermark",
            ),
        ],
    ),
    Mutant(
        "remember_aborted_batches",
        "The machine remembers batches of aborted transactions: records with their sequence numbers are lost.",
        [
            Change(
                "penstock_sequencer.core.log.control_markers",
                "    if not committed and state.level >= ABORTED_BATCHES_LEVEL:\n",
                "    if False:\n",
            )
        ],
    ),
    Mutant(
        "skip_transaction_epoch_of_batches",
        "The machine does not compare a batch's epoch with its transaction's: a fenced producer continues to write.",
        [
            Change(
                "penstock_sequencer.core.commits.transactional_batches",
                "    if batch.producer_epoch != transaction.epoch:\n        return _FENCED\n",
                "",
            )
        ],
    ),
    Mutant(
        "commit_offsets_before_transaction_ends",
        "The machine commits a transaction's offsets when they are sent: an abort leaves the group's offset moved.",
        [
            Change(
                "penstock_sequencer.core.groups.pending_offsets",
                """\
    pending.setdefault(topic.topic_id, {})[item.partition] = committed
""",
                """\
    pending.setdefault(topic.topic_id, {})[item.partition] = committed
    _commit(state, group_id, topic.topic_id, dict(pending[topic.topic_id]))
""",
            )
        ],
    ),
    Mutant(
        "drop_offsets_of_committed_transactions",
        "The machine commits a transaction without its offsets: the group reads its input again.",
        [Change(LIFECYCLE, "(commit_pending if committed else release_pending)(", "release_pending(")],
    ),
    Mutant(
        "begin_aborted_ranges_late",
        "The machine reports aborted transactions from their second offset on: consumers see the first aborted record.",
        [
            Change(
                PARTITION_TRANSACTIONS,
                ABORTED_FOUND,
                """\
        found = [AbortedTransaction(each.producer_id, each.first_offset + 1, each.last_offset) for each in found]
        return found, end_offset
""",
            )
        ],
    ),
    Mutant(
        "omit_last_aborted_transaction",
        "The machine does not report the last aborted transaction: consumers see its records.",
        [Change(PARTITION_TRANSACTIONS, ABORTED_FOUND, "        return found[:-1], end_offset\n")],
    ),
    Mutant(
        "skip_producer_fencing",
        "The machine accepts transaction commands of a fenced producer: it ends its successor's transaction.",
        [
            Change(
                COORDINATOR,
                "    if transaction is None or transaction.producer_id != command.producer_id:\n",
                "    if transaction is None:\n",
            ),
            Change(
                COORDINATOR,
                "return transaction if transaction.epoch == command.producer_epoch else "
                "Rejected(Rejection.PRODUCER_FENCED)",
                "return transaction",
            ),
        ],
    ),
    Mutant(
        "write_commit_markers_for_aborts",
        "The machine writes a commit marker when it aborts a transaction: consumers see aborted records.",
        [Change(LIFECYCLE, "epoch, committed=committed, changes=changes)", "epoch, committed=True, changes=changes)")],
    ),
    Mutant(
        "end_transactions_in_one_partition",
        "The machine ends a transaction in its first partition only: the others never get a marker.",
        [
            Change(
                COORDINATOR,
                "    end(state, transaction, committed=command.committed,",
                """\
    transaction.partitions = dict(list(transaction.partitions.items())[:1])
    end(state, transaction, committed=command.committed,""",
            )
        ],
    ),
    Mutant(
        "return_unstable_offsets",
        "The sequencer returns a group's offset while an open transaction may replace it: input is processed twice.",
        [
            Change(
                "penstock_sequencer.core.all_groups.queries",
                "    pending = pending_partitions(state, query.group_id)\n",
                "    pending: dict[str, set[int]] = {}\n",
            )
        ],
    ),
    Mutant(
        "accept_offsets_of_former_members",
        "The machine accepts transactional offsets of a member that has left the group: input is processed twice.",
        [Change(COORDINATOR, "rejection = _offsets_rejection(state, command)", "rejection = Rejection.NONE")],
    ),
    Mutant(
        "end_transactions_without_seen_sequence",
        "The gateway ends transactions without its seen sequence: a late EndTxn ends the next transaction.",
        [
            Change(
                "penstock_gateway.handlers.transactions.end_txn",
                "        seen_sequence=client.seen_sequence,\n",
                "        seen_sequence=-1,\n",
            )
        ],
    ),
]

"""The complete part of a rebuild: commits segments to the state again whose commits are lost (pure).

Lost entries may have ended transactions, committed or aborted, with offsets of groups. None of that is known, and half
of a transaction must never be committed. So batches are restored as part of their transaction, and then all ongoing
transactions are aborted. No transactional id is known afterwards: live producers ask for an id, and get a new one.
"""

from array import array
from collections import Counter

import msgspec

from penstock.contracts.batches import NO_PRODUCER, TRANSACTIONAL, BatchMeta, BatchRun
from penstock.contracts.commands import (
    CommitSegment,
    CreatePartitions,
    CreateTopic,
    InitTransactionalProducer,
    Outcome,
    Rejected,
    SegmentCommitted,
    Tick,
)
from penstock.contracts.ids import TopicId, segment_born_ms
from penstock.contracts.rejections import Rejection
from penstock.segment import SegmentIndex
from penstock_sequencer.core.log.producer_table import remember
from penstock_sequencer.core.machine import apply_entry
from penstock_sequencer.core.state.cluster import NOT_NAMED, Partition, Producer, State
from penstock_sequencer.core.state.limits import SEQUENCE_MAX
from penstock_sequencer.core.state.producer_clock import producer_ms
from penstock_sequencer.core.state.shares import count_transactional_id
from penstock_sequencer.rebuild.order import Leap, Place, ProducerKey, in_order, is_behind
from penstock_sequencer.rebuild.report import Report, adopted_name, segment_name

# Producer ids that lost entries may have given to producers without stored batches: more than the producers that start
# within the lost seconds. An id used twice would make one producer's records duplicates of another's.
PRODUCER_IDS_SKIPPED = 1_000_000
UNKNOWN_ZONE = ""  # so no service asks the writer for the segment; the store has it


def commit_lost_segments(state: State, indexes: list[SegmentIndex], now_ms: int, report: Report) -> None:
    """Commit the segments to the state in an order that keeps every producer's sequences.

    Topics, partitions, producer ids and producers' positions that the state lacks are added before. The state's clock
    advances with the births of segments, but never beyond `now_ms`.
    """
    limits, log = state.limits, state.limits.log
    # The lost clock may have been ahead: the search for segments has left out those born too far in the future.
    log = msgspec.structs.replace(log, segment_ahead_max_ms=log.segment_commit_age_max_ms)
    state.limits = msgspec.structs.replace(limits, log=log)
    _commit(state, indexes, now_ms, report)
    state.limits = limits


def _commit(state: State, indexes: list[SegmentIndex], now_ms: int, report: Report) -> None:
    _create_missing_partitions(state, indexes, report)
    _skip_producer_ids(state, indexes)
    report.next_producer_id = state.next_producer_id
    zones = _zones(state)
    for placed in in_order(indexes, lambda key: _place(state, key)):
        for leap in placed.leaps:
            report.leaps += _leap(state, leap)
        index = placed.index
        tally = _Tally(state, index)
        then_ms = min(segment_born_ms(index.segment_id), now_ms)
        zone = zones.get(index.writer, UNKNOWN_ZONE)
        runs = [_with_transactions(run) for run in index.runs]
        commit = CommitSegment(then_ms, index.segment_id, index.size_bytes, index.writer, zone, runs)
        _, outcome = _apply(state, Tick(then_ms), commit)
        if isinstance(outcome, SegmentCommitted):
            tally.record(outcome, report)
        else:
            assert isinstance(outcome, Rejected), f"a commit was answered with {type(outcome).__name__}"
            report.refused_segments[segment_name(index.segment_id)] = outcome.message
    _end_transactions(state, report)


def _with_transactions(run: BatchRun) -> BatchRun:
    """The run with transactional batches that add their partition: all that is known is that they were accepted."""
    if not any(batch.attributes & TRANSACTIONAL for batch in run.batches):
        return run
    batches = [
        msgspec.structs.replace(batch, adds_partition=True) if batch.attributes & TRANSACTIONAL else batch
        for batch in run.batches
    ]
    return msgspec.structs.replace(run, batches=batches)


def _end_transactions(state: State, report: Report) -> None:
    """Abort all ongoing transactions, and remove all transactional ids.

    An epoch that a lost entry has given out must not be used again: it would fence no producer.
    """
    report.aborted_transactions = len(state.ongoing)
    for transaction in list(state.ongoing.values()):
        _apply(
            state,
            InitTransactionalProducer(state.clock_ms, transaction.transactional_id, transaction.timeout_ms),
        )
    assert not state.ongoing, "a producer that starts aborts its transaction"
    report.forgotten_transactional_ids = len(state.transactions)
    for transaction in state.transactions.values():
        count_transactional_id(state, transaction.owner, -1)
    state.transactions.clear()
    state.transactions_by_producer.clear()


_Command = Tick | CommitSegment | CreateTopic | CreatePartitions | InitTransactionalProducer


def _apply(state: State, *commands: _Command) -> list[Outcome]:
    (outcomes,), _ = apply_entry(state, state.sequence + 1, [list(commands)], announce=False)
    return outcomes


def _is_done(state: State, command: CreateTopic | CreatePartitions) -> bool:
    (outcome,) = _apply(state, command)
    return not isinstance(outcome, Rejected)


def _create_missing_partitions(state: State, indexes: list[SegmentIndex], report: Report) -> None:
    """Make topics and partitions that segments have batches of, and that are newer than the state."""
    counts: dict[TopicId, int] = {}
    for index in sorted(indexes, key=lambda each: each.segment_id):
        for run in index.runs:
            counts[run.topic_id] = max(counts.get(run.topic_id, 0), run.partition + 1)
    for topic_id, count in counts.items():
        topic = state.topics_by_id.get(topic_id)
        if topic is None and not _was_deleted(state, topic_id):
            name = adopted_name(topic_id)
            if _is_done(state, CreateTopic(state.clock_ms, name, topic_id, count, {})):
                report.adopted_topics[name] = 0
        elif (
            topic is not None
            and count > len(topic.partitions)
            and _is_done(state, CreatePartitions(state.clock_ms, topic.name, count))
        ):
            report.grown_topics[topic.name] = count


def _was_deleted(state: State, topic_id: TopicId) -> bool:
    """Whether the topic is deleted, recoverable or not; later batches for it were never acknowledged."""
    return topic_id in state.deleted_topics or topic_id in state.recoverable


def _skip_producer_ids(state: State, indexes: list[SegmentIndex]) -> None:
    first = state.next_producer_id
    # Clients write the ids into their batches: an id that no lost entry can have given out would use up all ids.
    end = first + PRODUCER_IDS_SKIPPED
    ids = (batch.producer_id for index in indexes for run in index.runs for batch in run.batches)
    seen = (producer_id for producer_id in ids if producer_id < end)
    state.next_producer_id = max(first, max(seen, default=0) + 1) + PRODUCER_IDS_SKIPPED
    state.producer_births.append((producer_ms(state), first))


def _zones(state: State) -> dict[str, str]:
    """The zone of each flusher with a segment in the state."""
    segments = state.segments
    pairs = {segments.writers[slot]: segments.zones[slot] for slot in segments.by_number}
    return {segments.names[writer]: segments.names[zone] for writer, zone in pairs.items()}


def _partition(state: State, topic_id: TopicId, number: int) -> Partition | None:
    topic = state.topics_by_id.get(topic_id)
    return topic.partitions[number] if topic is not None and 0 <= number < len(topic.partitions) else None


def _place(state: State, key: ProducerKey) -> Place | None:
    """The producer's position in the state."""
    topic_id, number, producer_id = key
    partition = _partition(state, topic_id, number)
    producer = partition.producers.get(producer_id) if partition is not None else None
    return Place(producer.epoch, (producer.last_sequence + 1) & SEQUENCE_MAX) if producer is not None else None


def _leap(state: State, leap: Leap) -> bool:
    """Set the producer's position, so that the machine accepts the batch after the gap; earlier batches are unknown.

    False if there can be no such producer.
    """
    topic_id, number, producer_id = leap.producer
    partition = _partition(state, topic_id, number)
    if partition is None or producer_id >= state.next_producer_id:
        return False
    known = partition.producers.get(producer_id)
    owner = NOT_NAMED if known is None else known.owner
    last_sequence = (leap.place.next_sequence - 1) & SEQUENCE_MAX
    recovered = Producer(leap.place.epoch, last_sequence, producer_ms(state), array("q"), owner)
    remember(state, partition, producer_id, recovered)
    return True


class _Tally:
    """The results of a segment's batches, by comparison of the state before and after."""

    def __init__(self, state: State, index: SegmentIndex) -> None:
        self._state = state
        self._index = index
        self._ends = [self._end(run) for run in index.runs]

    def _end(self, run: BatchRun) -> int:
        partition = _partition(self._state, run.topic_id, run.partition)
        return partition.high_watermark if partition is not None else 0

    def record(self, outcome: SegmentCommitted, report: Report) -> None:
        """Add the results to the report."""
        recovered = 0
        rejected = Counter(report.refused_batches)
        for run, results, end in zip(self._index.runs, outcome.runs, self._ends, strict=True):
            records = 0
            for batch, result in zip(run.batches, results, strict=True):
                if result.rejection == Rejection.NONE and result.base_offset == end + records:
                    records += batch.record_count
                    report.recovered_batches += 1
                elif result.rejection == Rejection.NONE or self._is_duplicate(run, batch):
                    report.repeated_batches += 1
                elif _was_deleted(self._state, run.topic_id):
                    report.deleted_topic_batches += 1
                else:
                    rejected[Rejection(result.rejection).name.lower()] += 1
            recovered += records
            self._record_adopted(run.topic_id, records, report)
        report.recovered_records += recovered
        report.refused_batches = dict(rejected)
        if recovered:
            report.recovered_segments.append(segment_name(self._index.segment_id))

    def _is_duplicate(self, run: BatchRun, batch: BatchMeta) -> bool:
        """Whether the batch was rejected as an old duplicate, which the machine no longer remembers."""
        if batch.producer_id == NO_PRODUCER:
            return False
        place = _place(self._state, (run.topic_id, run.partition, batch.producer_id))
        if place is None or place.epoch != batch.producer_epoch:
            return False
        return is_behind(batch.base_sequence, place.next_sequence)

    def _record_adopted(self, topic_id: TopicId, records: int, report: Report) -> None:
        name = adopted_name(topic_id)
        if name in report.adopted_topics:
            report.adopted_topics[name] += records

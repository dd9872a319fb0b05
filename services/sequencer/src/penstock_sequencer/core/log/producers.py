"""Idempotent producers: which of their batches are next in sequence, duplicate, or rejected (ADR 0025).

A producer that the partition does not know may begin at sequence 0. It may begin at any sequence in a partition that is
younger than its id, as Kafka allows: the partition's topic was deleted and made again meanwhile.

A full table evicts the producers that were idle longest, if no client repeats their batches any more. A copy of such a
batch may still wait in the segment of a slow flusher. So after an eviction the partition takes no batch of an
unknown producer from an older segment.
"""

from array import array
from heapq import nsmallest

from penstock.contracts.batches import TRANSACTIONAL, BatchMeta, BatchResult
from penstock.contracts.commands import AllocateProducer, ProducerAllocated
from penstock.contracts.levels import PRODUCERS_LEVEL
from penstock.contracts.rejections import Rejection
from penstock_sequencer.core.state.cluster import Changes, Partition, Producer, State
from penstock_sequencer.core.state.limits import BATCHES_REMEMBERED, PRODUCER_EPOCH_MAX, SEQUENCE_MAX
from penstock_sequencer.core.state.producer_clock import producer_ms

_RECENT_LENGTH = 3 * BATCHES_REMEMBERED


def allocate_producer(state: State, command: AllocateProducer, changes: Changes) -> ProducerAllocated:
    """Assign a producer id that was never assigned before."""
    return ProducerAllocated(new_producer_id(state), 0)


def new_producer_id(state: State) -> int:
    """Take the next producer id, and record about when it was assigned."""
    births, clock_ms = state.producer_births, producer_ms(state)
    if not births or births[-1][0] + state.limits.producers.producer_births_step_ms <= clock_ms:
        births.append((clock_ms, state.next_producer_id))
    producer_id = state.next_producer_id
    state.next_producer_id += 1
    return producer_id


def accept(state: State, partition: Partition, batch: BatchMeta, offset: int, born_ms: int) -> BatchResult | None:
    """None if the batch is the next one of its producer, which is then remembered; else the result to answer.

    `born_ms` is the birth of the segment that holds the batch.
    """
    producer = partition.producers.get(batch.producer_id)
    first = batch.base_sequence
    # The usual case first: the next batch in the epoch of a known producer.
    if producer is not None and producer.epoch == batch.producer_epoch:
        last = (first + batch.record_count - 1) & SEQUENCE_MAX
        if first == (producer.last_sequence + 1) & SEQUENCE_MAX:
            recent = producer.recent
            if len(recent) == _RECENT_LENGTH:
                del recent[:3]
            recent.extend((first, last, offset))
            producer.last_sequence = last
            producer.active_ms = producer_ms(state)
            return None
        return _repeated(partition, producer, first, last)
    rejection = _validation_error(state, partition, producer, batch, born_ms)
    if rejection:
        # The Java client repeats the batch for ever if UNKNOWN_PRODUCER has no log start offset.
        has_start = rejection == Rejection.UNKNOWN_PRODUCER and state.level >= PRODUCERS_LEVEL
        return BatchResult(rejection, -1, partition.log_start_offset if has_start else -1)
    last = (first + batch.record_count - 1) & SEQUENCE_MAX
    _remember(
        state,
        partition,
        batch.producer_id,
        Producer(batch.producer_epoch, last, producer_ms(state), _first_batch(first, last, offset)),
    )
    return None


def find_repeated(partition: Partition, batch: BatchMeta) -> BatchResult | None:
    """The first result of this batch if the partition remembers it; None if not."""
    producer = partition.producers.get(batch.producer_id)
    if producer is None or producer.epoch != batch.producer_epoch:
        return None
    first, last = batch.base_sequence, (batch.base_sequence + batch.record_count - 1) & SEQUENCE_MAX
    found = _repeated(partition, producer, first, last)
    return None if found.rejection else found


def remove_batches(partition: Partition, producer_id: int) -> None:
    """Remove the batches of a producer, but not its place in the sequence: its transaction was aborted (ADR 0029).

    librdkafka may use the sequence numbers of such a batch again, for records of its next transaction. Answered as a
    duplicate, they would be lost.
    """
    producer = partition.producers.get(producer_id)
    if producer is not None:
        del producer.recent[:]


def _first_batch(first: int, last: int, offset: int) -> "array[int]":
    return array("q", (first, last, offset))


def _repeated(partition: Partition, producer: Producer, first: int, last: int) -> BatchResult:
    recent = producer.recent
    for place in range(0, len(recent), 3):
        if recent[place] == first and recent[place + 1] == last:
            return BatchResult(Rejection.NONE, recent[place + 2], partition.log_start_offset)
    return BatchResult(Rejection.OUT_OF_ORDER_SEQUENCE)


def _validation_error(
    state: State, partition: Partition, producer: Producer | None, batch: BatchMeta, born_ms: int
) -> Rejection:
    """Why a batch that does not continue an epoch is rejected; NONE if it may begin one."""
    if not (0 <= batch.producer_epoch <= PRODUCER_EPOCH_MAX and 0 <= batch.base_sequence <= SEQUENCE_MAX):
        return Rejection.INVALID_REQUEST
    if not 0 < batch.producer_id < state.next_producer_id:
        return Rejection.UNKNOWN_PRODUCER
    if producer is not None:
        if batch.producer_epoch < producer.epoch:
            return Rejection.PRODUCER_FENCED
        return Rejection.OUT_OF_ORDER_SEQUENCE if batch.base_sequence else Rejection.NONE
    if state.level >= PRODUCERS_LEVEL:
        return _newcomer_error(state, partition, batch, born_ms)
    if batch.base_sequence:
        young = batch.producer_id >= _first_young_id(state)
        return Rejection.OUT_OF_ORDER_SEQUENCE if young else Rejection.UNKNOWN_PRODUCER
    return Rejection.NONE if _has_room(state, partition) else Rejection.OVERLOADED


def _newcomer_error(state: State, partition: Partition, batch: BatchMeta, born_ms: int) -> Rejection:
    """Why a producer that the partition does not know may not begin with this batch; NONE if it may."""
    if born_ms < partition.evicted_ms:  # this may be a late copy of a batch whose producer was evicted
        return Rejection.PRODUCERS_FULL
    if batch.base_sequence and not _may_be_under_way(partition, batch):
        was_removed = batch.producer_id <= partition.evicted_id_max or batch.producer_id < _first_young_id(state)
        return Rejection.UNKNOWN_PRODUCER if was_removed else Rejection.OUT_OF_ORDER_SEQUENCE
    limits = state.limits.producers
    if len(partition.producers) >= limits.producers_per_partition_max or state.producer_count >= limits.producers_max:
        return Rejection.NONE if _evict_idlest(state, partition) else Rejection.PRODUCERS_FULL
    return Rejection.NONE


def _may_be_under_way(partition: Partition, batch: BatchMeta) -> bool:
    """Whether the producer may have written to a topic of the same name that was deleted.

    As in Kafka, a transaction of the new protocol (KIP-890) begins at sequence 0 in each partition.
    """
    is_new_protocol = batch.attributes & TRANSACTIONAL and batch.adds_partition
    is_older = partition.evicted_id_max < batch.producer_id < partition.first_new_producer_id
    return is_older and not is_new_protocol


def _first_young_id(state: State) -> int:
    """The smallest id that may have been assigned within `producer_expiry_ms`, or at most one step earlier."""
    limits = state.limits.producers
    births = state.producer_births
    oldest_ms = producer_ms(state) - limits.producer_expiry_ms - limits.producer_births_step_ms
    while births and births[0][0] < oldest_ms:
        births.popleft()
    return births[0][1] if births else state.next_producer_id


def _remember(state: State, partition: Partition, producer_id: int, producer: Producer) -> None:
    if producer_id not in partition.producers:
        state.producer_count += 1
        partition.idlest_ms = min(partition.idlest_ms, producer.active_ms)
    partition.producers[producer_id] = producer
    if not partition.in_sweep:
        partition.in_sweep = True
        state.producer_sweep.append(partition)


def _has_room(state: State, partition: Partition) -> bool:
    """Below PRODUCERS_LEVEL: whether one more producer fits, after the removal of producers that are idle for long."""
    limits = state.limits.producers
    if len(partition.producers) < limits.producers_per_partition_max and state.producer_count < limits.producers_max:
        return True
    return _remove_idle(state, partition, limits.producer_idle_min_ms) > 0


def _remove_idle(state: State, partition: Partition, idle_ms: int) -> int:
    before_ms = producer_ms(state) - idle_ms
    idle = [producer_id for producer_id, producer in partition.producers.items() if producer.active_ms < before_ms]
    _remove(state, partition, idle)
    return len(idle)


def _remove(state: State, partition: Partition, producer_ids: list[int]) -> None:
    for producer_id in producer_ids:
        del partition.producers[producer_id]
    state.producer_count -= len(producer_ids)


def _evict_idlest(state: State, partition: Partition) -> int:
    """Evict the producers of a partition that were idle longest, if they were idle long enough; return how many."""
    limits = state.limits.producers
    return _evict(state, partition, limits.producer_idle_min_ms, limits.producers_evicted_at_once)


def _evict(state: State, partition: Partition, idle_ms: int, count_max: int) -> int:
    """Evict producers that were idle for so long, the idlest first; one with an open transaction stays."""
    before_ms = producer_ms(state) - idle_ms
    if partition.idlest_ms >= before_ms:
        return 0  # a full partition is not searched for each batch
    is_open = {} if partition.transactions is None else partition.transactions.open
    closed = [(each.active_ms, each_id) for each_id, each in partition.producers.items() if each_id not in is_open]
    idle = [each_id for active_ms, each_id in nsmallest(count_max, closed) if active_ms < before_ms]
    _remove(state, partition, idle)
    partition.idlest_ms = min((each.active_ms for each in partition.producers.values()), default=before_ms)
    if idle:
        partition.evicted_ms = state.clock_ms
        partition.evicted_id_max = max(partition.evicted_id_max, *idle)
    return len(idle)


def sweep_producers(state: State) -> None:
    """Remove expired producers of the next few partitions in turn; bounded work for each Tick."""
    sweep, limits = state.producer_sweep, state.limits.producers
    is_full = state.level >= PRODUCERS_LEVEL and state.producer_count >= limits.producers_pressure_min
    visited_max = limits.producers_swept_under_pressure if is_full else limits.producers_swept_per_tick
    visited = 0
    for _ in range(len(sweep)):
        if visited >= visited_max:
            return
        partition = sweep.popleft()
        visited += 1 + len(partition.producers)
        if not partition.deleted:
            _remove_idle(state, partition, limits.producer_expiry_ms)
            if state.level >= PRODUCERS_LEVEL and state.producer_count >= limits.producers_pressure_min:
                _evict(state, partition, _idle_under_pressure_ms(state), len(partition.producers))
        if partition.producers:
            sweep.append(partition)
        else:
            partition.in_sweep = False


def _idle_under_pressure_ms(state: State) -> int:
    """For how long producers may be idle: the fuller the table of all producers, the shorter."""
    limits = state.limits.producers
    spare = max(limits.producers_max - state.producer_count, 0)
    spare_max = max(limits.producers_max - limits.producers_pressure_min, 1)
    return max(limits.producer_expiry_ms * spare // spare_max, limits.producer_idle_min_ms)


def remove_producers(state: State, partition: Partition) -> None:
    """Remove all producers of a deleted partition; the sweep drops the partition when its turn comes."""
    state.producer_count -= len(partition.producers)
    partition.producers.clear()

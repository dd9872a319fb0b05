"""Idempotent producers: which of their batches are next in sequence, duplicate, or rejected."""

from array import array

from penstock.contracts.batches import BatchMeta, BatchResult
from penstock.contracts.commands import AllocateProducer, ProducerAllocated
from penstock.contracts.rejections import Rejection
from penstock_sequencer.core.state.cluster import Changes, Partition, Producer, State
from penstock_sequencer.core.state.limits import BATCHES_REMEMBERED, PRODUCER_EPOCH_MAX, SEQUENCE_MAX

_RECENT_LENGTH = 3 * BATCHES_REMEMBERED


def allocate_producer(state: State, command: AllocateProducer, changes: Changes) -> ProducerAllocated:
    """Assign a producer id that was never assigned before."""
    return ProducerAllocated(new_producer_id(state), 0)


def new_producer_id(state: State) -> int:
    """Take the next producer id, and record about when it was assigned."""
    births = state.producer_births
    if not births or births[-1][0] + state.limits.producers.producer_births_step_ms <= state.clock_ms:
        births.append((state.clock_ms, state.next_producer_id))
    producer_id = state.next_producer_id
    state.next_producer_id += 1
    return producer_id


def accept(state: State, partition: Partition, batch: BatchMeta, offset: int) -> BatchResult | None:
    """None if the batch is the next one of its producer, which is then remembered; else the result to answer."""
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
            producer.active_ms = state.clock_ms
            return None
        return _repeated(partition, producer, first, last)
    rejection = _validation_error(state, partition, producer, batch)
    if rejection:
        return BatchResult(rejection)
    last = (first + batch.record_count - 1) & SEQUENCE_MAX
    _remember(
        state,
        partition,
        batch.producer_id,
        Producer(batch.producer_epoch, last, state.clock_ms, _first_batch(last, offset)),
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


def _first_batch(last: int, offset: int) -> "array[int]":
    return array("q", (0, last, offset))


def _repeated(partition: Partition, producer: Producer, first: int, last: int) -> BatchResult:
    recent = producer.recent
    for place in range(0, len(recent), 3):
        if recent[place] == first and recent[place + 1] == last:
            return BatchResult(Rejection.NONE, recent[place + 2], partition.log_start_offset)
    return BatchResult(Rejection.OUT_OF_ORDER_SEQUENCE)


def _validation_error(state: State, partition: Partition, producer: Producer | None, batch: BatchMeta) -> Rejection:
    """Why a batch that does not continue an epoch is rejected; NONE if it may begin one at sequence 0."""
    if not (0 <= batch.producer_epoch <= PRODUCER_EPOCH_MAX and 0 <= batch.base_sequence <= SEQUENCE_MAX):
        return Rejection.INVALID_REQUEST
    if not 0 < batch.producer_id < state.next_producer_id:
        return Rejection.UNKNOWN_PRODUCER
    if producer is not None:
        if batch.producer_epoch < producer.epoch:
            return Rejection.PRODUCER_FENCED
        return Rejection.OUT_OF_ORDER_SEQUENCE if batch.base_sequence else Rejection.NONE
    if batch.base_sequence:
        young = batch.producer_id >= _first_young_id(state)
        return Rejection.OUT_OF_ORDER_SEQUENCE if young else Rejection.UNKNOWN_PRODUCER
    return Rejection.NONE if _has_room(state, partition) else Rejection.OVERLOADED


def _first_young_id(state: State) -> int:
    """The smallest id that may have been assigned within `producer_expiry_ms`, or at most one step earlier."""
    limits = state.limits.producers
    births = state.producer_births
    oldest_ms = state.clock_ms - limits.producer_expiry_ms - limits.producer_births_step_ms
    while births and births[0][0] < oldest_ms:
        births.popleft()
    return births[0][1] if births else state.next_producer_id


def _remember(state: State, partition: Partition, producer_id: int, producer: Producer) -> None:
    if producer_id not in partition.producers:
        state.producer_count += 1
    partition.producers[producer_id] = producer
    if not partition.in_sweep:
        partition.in_sweep = True
        state.producer_sweep.append(partition)


def _has_room(state: State, partition: Partition) -> bool:
    """Whether one more producer fits; if not, producers idle for long are removed, but none that may still retry."""
    limits = state.limits.producers
    if len(partition.producers) < limits.producers_per_partition_max and state.producer_count < limits.producers_max:
        return True
    return _remove_idle(state, partition, limits.producer_idle_min_ms) > 0


def _remove_idle(state: State, partition: Partition, idle_ms: int) -> int:
    before_ms = state.clock_ms - idle_ms
    idle = [producer_id for producer_id, producer in partition.producers.items() if producer.active_ms < before_ms]
    for producer_id in idle:
        del partition.producers[producer_id]
    state.producer_count -= len(idle)
    return len(idle)


def sweep_producers(state: State) -> None:
    """Remove expired producers of the next few partitions in turn; bounded work for each Tick."""
    sweep, limits = state.producer_sweep, state.limits.producers
    visited = 0
    for _ in range(len(sweep)):
        if visited >= limits.producers_swept_per_tick:
            return
        partition = sweep.popleft()
        visited += 1 + len(partition.producers)
        if not partition.deleted:
            _remove_idle(state, partition, limits.producer_expiry_ms)
        if partition.producers:
            sweep.append(partition)
        else:
            partition.in_sweep = False


def remove_producers(state: State, partition: Partition) -> None:
    """Remove all producers of a deleted partition; the sweep drops the partition when its turn comes."""
    state.producer_count -= len(partition.producers)
    partition.producers.clear()

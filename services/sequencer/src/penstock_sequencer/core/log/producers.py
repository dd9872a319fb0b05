"""Idempotent producers: which of their batches are next in sequence, duplicate, or rejected (ADR 0025).

A producer that the partition does not know may begin at sequence 0. It may begin at any sequence in a partition that is
younger than its id, as Kafka allows: the partition's topic was deleted and made again meanwhile.

`producer_table.py` decides whether there is room for such a producer.
"""

from array import array
from collections.abc import Sequence

import msgspec

from penstock.contracts.batches import TRANSACTIONAL, BatchMeta, BatchResult
from penstock.contracts.commands import AllocateProducer, ProducerAllocated
from penstock.contracts.levels import PRODUCERS_LEVEL
from penstock.contracts.rejections import Rejection
from penstock_sequencer.core.log.producer_table import evicted_ms, has_room, make_room, may_have_more, remember
from penstock_sequencer.core.state.cluster import Changes, Partition, Producer, State
from penstock_sequencer.core.state.limits import BATCHES_REMEMBERED, PRODUCER_EPOCH_MAX, SEQUENCE_MAX
from penstock_sequencer.core.state.producer_clock import producer_ms
from penstock_sequencer.core.state.shares import enter, number_of

_RECENT_LENGTH = 3 * BATCHES_REMEMBERED


class Origin(msgspec.Struct, frozen=True, gc=False):
    """The segment that holds a batch: its birth, and the principals that batches name by their places, from 1 on."""

    born_ms: int
    principals: Sequence[str] = ()


def _sender(origin: Origin, batch: BatchMeta) -> str:
    place = batch.principal
    return origin.principals[place - 1] if 0 < place <= len(origin.principals) else ""


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


def accept(state: State, partition: Partition, batch: BatchMeta, offset: int, origin: Origin) -> BatchResult | None:
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
            producer.active_ms = producer_ms(state)
            return None
        return _repeated(partition, producer, first, last)
    rejection = _validation_error(state, partition, producer, batch, origin)
    if rejection:
        # The Java client repeats the batch for ever if UNKNOWN_PRODUCER has no log start offset.
        has_start = rejection == Rejection.UNKNOWN_PRODUCER and state.level >= PRODUCERS_LEVEL
        return BatchResult(rejection, -1, partition.log_start_offset if has_start else -1)
    last = (first + batch.record_count - 1) & SEQUENCE_MAX
    owner = enter(state, _sender(origin, batch)) if producer is None else producer.owner
    recent = _first_batch(first, last, offset)
    begun = Producer(batch.producer_epoch, last, producer_ms(state), recent, owner)
    remember(state, partition, batch.producer_id, begun)
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
    state: State, partition: Partition, producer: Producer | None, batch: BatchMeta, origin: Origin
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
        return _newcomer_error(state, partition, batch, origin)
    if batch.base_sequence:
        young = batch.producer_id >= _first_young_id(state)
        return Rejection.OUT_OF_ORDER_SEQUENCE if young else Rejection.UNKNOWN_PRODUCER
    return Rejection.NONE if has_room(state, partition) else Rejection.OVERLOADED


def _newcomer_error(state: State, partition: Partition, batch: BatchMeta, origin: Origin) -> Rejection:
    """Why a producer that the partition does not know may not begin with this batch; NONE if it may."""
    owner = number_of(state, _sender(origin, batch))
    if origin.born_ms < evicted_ms(partition, owner):
        return Rejection.PRODUCERS_FULL  # this may be a late copy of a batch whose producer was evicted
    if batch.base_sequence and not _may_be_under_way(partition, batch):
        was_removed = batch.producer_id <= partition.evicted_id_max or batch.producer_id < _first_young_id(state)
        return Rejection.UNKNOWN_PRODUCER if was_removed else Rejection.OUT_OF_ORDER_SEQUENCE
    is_room = may_have_more(state, partition, owner) or make_room(state, partition, owner)
    return Rejection.NONE if is_room else Rejection.PRODUCERS_FULL


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

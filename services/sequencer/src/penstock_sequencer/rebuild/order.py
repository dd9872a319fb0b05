"""Finds the order in which to commit segments whose commits are lost, from their footers (pure).

These facts are known, and the order follows them where possible:

 1. Segments of one flusher were committed in the order of their ids, which begin with their birth in milliseconds.
 2. The batches of one producer in one partition were accepted in the order of their epochs and sequences, even through
    different flushers.

Between flushers, and within one millisecond of a flusher, the ids decide if the second fact does not. That is about the
order of the commits. Any order is correct for producers that did not wait for each other.

So the next segment is the oldest of all flushers' next ones. It waits if a batch in it follows a batch in another
segment that may come before it. If segments wait for each other in a circle, something was rejected at that time
already: the oldest is next.
"""

import itertools
from collections import defaultdict, deque
from collections.abc import Callable, Iterator

import msgspec

from penstock.contracts.batches import NO_PRODUCER, BatchMeta
from penstock.contracts.ids import SegmentId, TopicId, segment_born_ms
from penstock.segment import SegmentIndex
from penstock_sequencer.core.state.limits import SEQUENCE_MAX

# A sequence that is further ahead than this is behind: sequences wrap, and no producer loses so many records.
AHEAD_MAX = SEQUENCE_MAX // 2

ProducerKey = tuple[TopicId, int, int]  # topic id, partition, producer id


class Place(msgspec.Struct, frozen=True):
    """A producer's position in a partition."""

    epoch: int
    next_sequence: int


class Leap(msgspec.Struct, frozen=True):
    """A gap of a producer: the batch before `place` does not exist, lost with its segment or never acknowledged."""

    producer: ProducerKey
    place: Place


class Placed(msgspec.Struct, frozen=True):
    """The next segment to commit. Its `leaps` must be applied before, or the machine rejects its batches."""

    index: SegmentIndex
    leaps: list[Leap]


def is_behind(sequence: int, next_sequence: int) -> bool:
    """Whether a batch that begins with `sequence` was accepted before, when `next_sequence` is expected."""
    return (sequence - next_sequence) & SEQUENCE_MAX > AHEAD_MAX


def in_order(indexes: list[SegmentIndex], known: Callable[[ProducerKey], Place | None]) -> Iterator[Placed]:
    """All segments, each once, in order; `known` returns each producer's position in the state."""
    return _Merge(indexes, known).run()


class _Merge:
    """The segments of each flusher in a queue, and the batches of each producer in segments that are not placed."""

    def __init__(self, indexes: list[SegmentIndex], known: Callable[[ProducerKey], Place | None]) -> None:
        self._known = known
        self._places: dict[ProducerKey, Place | None] = {}
        self._queues: dict[str, deque[SegmentIndex]] = defaultdict(deque)
        # Segments not placed yet: those with a batch that begins at this place, and those with a batch of this epoch.
        self._starts: dict[tuple[ProducerKey, Place], dict[SegmentId, SegmentIndex]] = defaultdict(dict)
        self._epochs: dict[ProducerKey, dict[int, dict[SegmentId, SegmentIndex]]] = defaultdict(dict)
        for index in sorted(indexes, key=_id):
            self._queues[index.writer].append(index)
            for key, batch in _idempotent(index):
                self._starts[key, _start(batch)][index.segment_id] = index
                self._epochs[key].setdefault(batch.producer_epoch, {})[index.segment_id] = index

    def run(self) -> Iterator[Placed]:
        while self._queues:
            heads = sorted((head for queue in self._queues.values() for head in _heads(queue)), key=_id)
            index = next((each for each in heads if not self._waits(each)), heads[0])
            leaps = self._advance(index)
            self._drop(index)
            yield Placed(index, leaps)

    def _drop(self, index: SegmentIndex) -> None:
        for key, batch in _idempotent(index):
            self._starts[key, _start(batch)].pop(index.segment_id, None)
            self._epochs[key][batch.producer_epoch].pop(index.segment_id, None)
        queue = self._queues[index.writer]
        queue.remove(index)
        if not queue:
            del self._queues[index.writer]

    def _waits(self, index: SegmentIndex) -> bool:
        """Whether a batch in the segment follows a batch in another segment that may come before it."""
        places: dict[ProducerKey, Place | None] = {}
        for key, batch in _idempotent(index):
            place = places[key] if key in places else self._place(key)
            due = _due(place, batch)
            awaited = list(self._older_epochs(key, place, batch))
            if _is_gap(due, batch):
                awaited.extend(self._starts.get((key, due), {}).values())
            if any(_may_come_before(other, index) for other in awaited):
                return True
            places[key] = _after(place, batch)
        return False

    def _advance(self, index: SegmentIndex) -> list[Leap]:
        """Record the producers' positions after the segment; returns its leaps."""
        leaps = []
        touched: set[ProducerKey] = set()
        for key, batch in _idempotent(index):
            place = self._place(key)
            due = _due(place, batch)
            if _is_gap(due, batch) and key not in touched and not self._starts.get((key, due)):
                place = _start(batch)
                leaps.append(Leap(key, place))
            touched.add(key)
            self._places[key] = _after(place, batch)
        return leaps

    def _place(self, key: ProducerKey) -> Place | None:
        if key not in self._places:
            self._places[key] = self._known(key)
        return self._places[key]

    def _older_epochs(self, key: ProducerKey, place: Place | None, batch: BatchMeta) -> Iterator[SegmentIndex]:
        """Segments not placed yet with batches of older epochs, which this batch ends."""
        first = place.epoch if place is not None else 0
        for epoch, segments in self._epochs[key].items():
            if first <= epoch < batch.producer_epoch:
                yield from segments.values()


def _id(index: SegmentIndex) -> SegmentId:
    return index.segment_id


def _heads(queue: deque[SegmentIndex]) -> Iterator[SegmentIndex]:
    """The segments of one flusher that can be next: those of its next millisecond."""
    born_ms = segment_born_ms(queue[0].segment_id)
    return itertools.takewhile(lambda index: segment_born_ms(index.segment_id) == born_ms, queue)


def _may_come_before(other: SegmentIndex, index: SegmentIndex) -> bool:
    if other.writer != index.writer:
        return True
    return other is not index and segment_born_ms(other.segment_id) == segment_born_ms(index.segment_id)


def _idempotent(index: SegmentIndex) -> Iterator[tuple[ProducerKey, BatchMeta]]:
    for run in index.runs:
        for batch in run.batches:
            if batch.producer_id != NO_PRODUCER:
                yield (run.topic_id, run.partition, batch.producer_id), batch


def _start(batch: BatchMeta) -> Place:
    return Place(batch.producer_epoch, batch.base_sequence)


def _due(place: Place | None, batch: BatchMeta) -> Place:
    """The position that the machine expects for a batch of this epoch; a newer epoch begins at 0."""
    if place is None or batch.producer_epoch > place.epoch:
        return Place(batch.producer_epoch, 0)
    return place


def _is_gap(due: Place, batch: BatchMeta) -> bool:
    """Whether batches are missing before the batch; never for an older epoch, whose batches are rejected."""
    if batch.producer_epoch != due.epoch or batch.base_sequence == due.next_sequence:
        return False
    return not is_behind(batch.base_sequence, due.next_sequence)


def _after(place: Place | None, batch: BatchMeta) -> Place | None:
    """The producer's position after the machine has seen the batch, accepted or rejected."""
    if _start(batch) != _due(place, batch):
        return place
    return Place(batch.producer_epoch, (batch.base_sequence + batch.record_count) & SEQUENCE_MAX)

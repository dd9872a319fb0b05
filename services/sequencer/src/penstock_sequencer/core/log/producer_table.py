"""The producers of partitions as a table: room for one more, evictions, expiry (ADR 0025, ADR 0040).

A full table evicts the producers that were idle longest, if no client repeats their batches any more. A copy of such a
batch may still wait in the segment of a slow flusher. So after an eviction the partition takes no batch of the same
principal's unknown producers from an older segment.
"""

from collections.abc import Callable
from heapq import nsmallest

from penstock.contracts.levels import PRODUCERS_LEVEL
from penstock_sequencer.core.state.cluster import NOT_NAMED, OwnedProducers, Partition, Producer, State
from penstock_sequencer.core.state.producer_clock import producer_ms
from penstock_sequencer.core.state.shares import count_producers, fits, is_large, pressure_min, row_of

_NO_PRODUCERS = OwnedProducers()  # of a principal without producers in a partition; only read


def _is_any(owner: int) -> bool:
    return True


def evicted_ms(partition: Partition, owner: int) -> int:
    """When a producer was evicted last that may be the principal's.

    A batch without a name may be of any principal: flushers of older releases name none.
    """
    evictions = partition.evictions or {}
    if owner == NOT_NAMED:
        return max((partition.evicted_ms, *evictions.values()))
    return max(partition.evicted_ms, evictions.get(owner, 0))


def may_have_more(state: State, partition: Partition, owner: int) -> bool:
    """Whether the principal may have one more producer in the partition, and in all partitions together."""
    limits = state.limits.producers
    count, count_max = len(partition.producers), limits.producers_per_partition_max
    if not fits(state, row_of(state, owner).producers, state.producer_count, limits.producers_max):
        return False
    if fits(state, count, count, count_max):
        return True  # even if all producers of the partition were its own
    return count < count_max and fits(state, owned_producers(partition, owner).count, count, count_max)


def make_room(state: State, partition: Partition, owner: int) -> bool:
    """Evict idle producers: of all principals if a table is full, or of one that has reached its share."""
    limits = state.limits.producers
    is_full = len(partition.producers) >= limits.producers_per_partition_max
    if is_full or state.producer_count >= limits.producers_max:
        return _evict(state, partition, limits.producer_idle_min_ms, limits.producers_evicted_at_once) > 0
    before_ms = producer_ms(state) - limits.producer_idle_min_ms
    owned = owned_producers(partition, owner)
    if not owned.count or owned.idlest_ms >= before_ms:
        return False  # the partition is not searched for each batch
    evicted = _evict_of(state, partition, before_ms, limits.producers_evicted_at_once, lambda each: each == owner)
    owned.idlest_ms = min(
        (each.active_ms for each in partition.producers.values() if each.owner == owner), default=before_ms
    )
    return evicted > 0


def owned_producers(partition: Partition, owner: int) -> OwnedProducers:
    """The principal's producers in the partition. They are counted once, and from then on while producers come and go.

    Most partitions are far from full, and count nothing.
    """
    if partition.owned is None:
        partition.owned = {}
        for producer in partition.producers.values():
            _count_owned(partition.owned, producer)
    return partition.owned.get(owner, _NO_PRODUCERS)


def _count_owned(owned: dict[int, OwnedProducers], producer: Producer) -> None:
    counted = owned.get(producer.owner)
    if counted is None:
        owned[producer.owner] = OwnedProducers(1, producer.active_ms)
    else:
        counted.count += 1
        counted.idlest_ms = min(counted.idlest_ms, producer.active_ms)


def remember(state: State, partition: Partition, producer_id: int, producer: Producer) -> None:
    """Add a producer to the partition, or set the state of a known one, which keeps its owner."""
    if producer_id not in partition.producers:
        state.producer_count += 1
        count_producers(state, producer.owner, 1)
        partition.idlest_ms = min(partition.idlest_ms, producer.active_ms)
        if partition.owned is not None:
            _count_owned(partition.owned, producer)
    partition.producers[producer_id] = producer
    if not partition.in_sweep:
        partition.in_sweep = True
        state.producer_sweep.append(partition)


def has_room(state: State, partition: Partition) -> bool:
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


def _remove(state: State, partition: Partition, producer_ids: list[int]) -> dict[int, int]:
    """Remove producers; return how many each principal had."""
    removed: dict[int, int] = {}
    for producer_id in producer_ids:
        owner = partition.producers.pop(producer_id).owner
        removed[owner] = removed.get(owner, 0) + 1
    state.producer_count -= len(producer_ids)
    for owner, count in removed.items():
        count_producers(state, owner, -count)
        if partition.owned is not None:
            partition.owned[owner].count -= count
            if not partition.owned[owner].count:
                del partition.owned[owner]
    count = len(partition.producers)
    if producer_ids and fits(state, count, count, state.limits.producers.producers_per_partition_max):
        partition.owned = None
    return removed


def _evict(
    state: State, partition: Partition, idle_ms: int, count_max: int, is_chosen: Callable[[int], bool] = _is_any
) -> int:
    """Evict producers that were idle for so long, the idlest first; one with an open transaction stays."""
    before_ms = producer_ms(state) - idle_ms
    if partition.idlest_ms >= before_ms:
        return 0  # a full partition is not searched for each batch
    evicted = _evict_of(state, partition, before_ms, count_max, is_chosen)
    partition.idlest_ms = min((each.active_ms for each in partition.producers.values()), default=before_ms)
    return evicted


def _evict_of(
    state: State, partition: Partition, before_ms: int, count_max: int, is_chosen: Callable[[int], bool]
) -> int:
    """Evict producers of the chosen principals that were not active since `before_ms`; return how many."""
    is_open = {} if partition.transactions is None else partition.transactions.open
    closed = [
        (each.active_ms, each_id)
        for each_id, each in partition.producers.items()
        if each.active_ms < before_ms and each_id not in is_open and is_chosen(each.owner)
    ]
    idle = [each_id for _, each_id in nsmallest(count_max, closed)]
    for owner in _remove(state, partition, idle):
        _mark(state, partition, owner)
    if idle:
        partition.evicted_id_max = max(partition.evicted_id_max, *idle)
    return len(idle)


def _mark(state: State, partition: Partition, owner: int) -> None:
    """Record that producers of the principal were evicted now. Older marks end when no segment can be that old."""
    if owner == NOT_NAMED:
        partition.evicted_ms = state.clock_ms
        return
    too_old_ms = state.clock_ms - state.limits.log.segment_commit_age_max_ms
    kept = {} if partition.evictions is None else partition.evictions
    partition.evictions = {each: at_ms for each, at_ms in kept.items() if at_ms >= too_old_ms}
    partition.evictions[owner] = state.principals[owner].evicted_ms = state.clock_ms


def sweep_producers(state: State) -> None:
    """Remove expired producers of the next few partitions in turn; bounded work for each Tick."""
    sweep, limits, rows = state.producer_sweep, state.limits.producers, state.principals
    least = pressure_min(state, limits.producers_max, limits.producers_pressure_min)
    is_full = state.level >= PRODUCERS_LEVEL and state.producer_count >= least
    large: dict[int, bool] = {}  # principals
    if is_full:
        large = {each: is_large(state, row.producers, state.producer_count) for each, row in rows.items()}
    visited_max = limits.producers_swept_under_pressure if is_full else limits.producers_swept_per_tick
    visited = 0
    for _ in range(len(sweep)):
        if visited >= visited_max:
            return
        partition = sweep.popleft()
        visited += 1 + len(partition.producers)
        if not partition.deleted:
            _remove_idle(state, partition, limits.producer_expiry_ms)
            if is_full and state.producer_count >= least:
                idle_ms = _idle_under_pressure_ms(state, least)
                _evict(state, partition, idle_ms, len(partition.producers), large.__getitem__)
        if partition.producers:
            sweep.append(partition)
        else:
            partition.in_sweep = False


def _idle_under_pressure_ms(state: State, least: int) -> int:
    """For how long producers may be idle: the fuller the table of all producers, the shorter.

    With `least` producers they may be idle as long as in an empty table.
    """
    limits = state.limits.producers
    spare_max = max(limits.producers_max - limits.producers_pressure_min, 1)
    spare = max(least + spare_max - state.producer_count, 0)
    return max(limits.producer_expiry_ms * spare // spare_max, limits.producer_idle_min_ms)


def remove_producers(state: State, partition: Partition) -> None:
    """Remove all producers of a deleted partition; the sweep drops the partition when its turn comes."""
    counts: dict[int, int] = {}
    for each in partition.producers.values():
        counts[each.owner] = counts.get(each.owner, 0) + 1
    for owner, count in counts.items():
        count_producers(state, owner, -count)
    state.producer_count -= len(partition.producers)
    partition.producers.clear()
    partition.owned = None

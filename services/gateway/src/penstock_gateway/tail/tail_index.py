"""The newest extents of partitions that clients read, so that reads near the end of a log need no plan. Pure.

The extents come from the sequencers' announcements. Two rules keep the index correct. First, announcements are applied
in the order of the journal, each once. If one is missing and does not come, the index is cleared. Second, a partition
is known only from a journal sequence on: `since` is the last one applied when a reader first asked for the partition.
An older plan is not learnt. It could miss a change whose announcement came before the index followed the partition.

An extent is used for a limited time only. Compaction may have replaced it, and then its segment is deleted after a
grace that is much longer.

Aborted transactions are known from their markers, which are extents of the tail, and from plans. So all of them with
records in the extents are known, from the offset of the first extent's plan on.
"""

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Sequence

import msgspec

from penstock.contracts.batches import AbortedTransaction, Extent
from penstock.contracts.ids import TopicId
from penstock.contracts.messages import Advanced, PartitionAdvance
from penstock.contracts.queries.log import PartitionPlan
from penstock.contracts.rejections import Rejection
from penstock_gateway.tail.control_batches import aborted_by, with_markers

PartitionKey = tuple[TopicId, int]


class TailLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Memory and waits of the tail index."""

    extents_max: int = 65_536  # about 25 MB; a partition counts as one more
    aborted_max: int = 1_000  # of one plan, about 100 KB; beyond it the extents are not worth the memory
    # Announcements after a missing one. Fewer arrive within `hold_back_s`; with more, the missing one counts as lost.
    held_back_max: int = 1_000
    hold_back_s: float = 0.1  # each replica announces on its own connection, so they differ by about a millisecond
    # An extent is kept for this time. When it is read, it is at most twice as old. That is safe, because the objects of
    # replaced segments stay for 10 minutes.
    extent_age_s_max: float = 120.0


class PartitionView(msgspec.Struct, frozen=True, gc=False):
    """A partition's extents to read from an offset on; none at its end, or if the byte budget ended.

    `aborted` has the aborted transactions with records from the offset on, in the order of their last offsets. It is
    complete below `aborted_end_offset`, or everywhere if that is -1.
    """

    log_start_offset: int
    high_watermark: int
    last_stable_offset: int
    extents: list[Extent]
    aborted: Sequence[AbortedTransaction] = ()
    aborted_end_offset: int = -1


def view_of(plan: PartitionPlan) -> PartitionView:
    """The view that a plan gives of its partition."""
    return PartitionView(
        plan.log_start_offset,
        plan.high_watermark,
        plan.last_stable_offset,
        with_markers(plan.extents, plan.markers),
        plan.aborted,
        plan.aborted_end_offset,
    )


class Received(msgspec.Struct, frozen=True):
    """The partitions and topics that an announcement changed; with `lost`, any may have changed."""

    partitions: list[PartitionKey] = []
    topics: list[str] = []
    lost: bool = False


class _Partition:
    """`extents[first:]` follow each other up to `end`, the high watermark at journal sequence `sequence`.

    `received_s` has the time at which each of `extents` was received. `aborted` has all aborted transactions with
    records in `extents[first:]` from `known_from` on, in the order of their last offsets.
    """

    __slots__ = (
        "aborted",
        "end",
        "extents",
        "first",
        "known_from",
        "last_stable_offset",
        "log_start_offset",
        "received_s",
        "sequence",
        "since",
    )

    def __init__(self, since: int) -> None:
        self.since = since
        self.sequence = since
        self.end: int | None = None
        self.log_start_offset = 0
        self.last_stable_offset = 0
        self.extents: list[Extent] = []
        self.received_s: list[float] = []
        self.first = 0
        self.aborted: list[AbortedTransaction] = []
        self.known_from = 0


class TailIndex:
    """Partitions by key, in bounded memory; the least recently read are removed first."""

    def __init__(self, limits: TailLimits | None = None, *, monotonic_s: Callable[[], float] = lambda: 0.0) -> None:
        self.limits = limits or TailLimits()
        self._monotonic_s = monotonic_s
        self._partitions: OrderedDict[PartitionKey, _Partition] = OrderedDict()
        self.held_extents = 0
        self.applied: int | None = None  # the journal sequence of the last announcement; None: there was none yet

    def lookup(self, key: PartitionKey, offset: int, bytes_max: int) -> PartitionView | None:
        """Extents from the one that holds `offset` on, up to a byte budget, at least one; None: ask for a plan."""
        partition = self._partitions.get(key)
        if partition is None:
            self._begin(key)
            return None
        self._partitions.move_to_end(key)
        if partition.end is None or not partition.log_start_offset <= offset <= partition.end:
            return None
        extents: list[Extent] = []
        if offset < partition.end:
            self._drop_old(partition)
            if partition.first == len(partition.extents) or offset < _first_known(partition):
                return None
            extents = _from_offset(partition, offset, bytes_max)
        return PartitionView(
            partition.log_start_offset,
            partition.end,
            partition.last_stable_offset,
            extents,
            _aborted_from(partition, offset),
        )

    def learn(self, sequence: int, plan: PartitionPlan, offset: int) -> None:
        """Take over a plan from `offset` on, which was made at a journal sequence, unless newer data is known."""
        partition = self._partitions.get((plan.topic_id, plan.partition))
        if partition is None or plan.rejection is not Rejection.NONE or sequence < partition.since:
            return
        if partition.end is None or sequence > partition.sequence:
            self._take(partition, sequence, plan, offset if plan.aborted_end_offset >= 0 else 0)
            _learn_aborted(partition, plan)
            has_all = not plan.extents or not 0 <= plan.aborted_end_offset <= plan.extents[-1].last_offset
            if not has_all or len(plan.aborted) > self.limits.aborted_max:
                self._drop_extents(partition)
            self._trim()

    def apply(self, sequence: int, advances: Sequence[PartitionAdvance]) -> None:
        """Apply the announcement that follows the last one."""
        for advance in advances:
            partition = self._partitions.get((advance.topic_id, advance.partition))
            if partition is not None and sequence > partition.sequence:
                self._take(partition, sequence, advance)
        self.applied = sequence
        self._trim()

    def remove(self, key: PartitionKey) -> None:
        """Remove a partition."""
        partition = self._partitions.pop(key, None)
        if partition is not None:
            self.held_extents -= len(partition.extents) - partition.first

    def remove_all(self, applied: int) -> None:
        """Remove all partitions, and continue after this journal sequence."""
        self._partitions.clear()
        self.held_extents = 0
        self.applied = applied

    def _begin(self, key: PartitionKey) -> None:
        """Follow a partition from now on; before the first announcement the journal sequence of `now` is unknown."""
        if self.applied is not None:
            self._partitions[key] = _Partition(self.applied)
            self._trim()

    def _take(
        self, partition: _Partition, sequence: int, update: PartitionAdvance | PartitionPlan, known_from: int = 0
    ) -> None:
        for extent in with_markers(update.extents, update.markers):
            self._append(partition, extent, known_from)
        last = partition.extents[-1] if len(partition.extents) > partition.first else None
        if last is not None and last.last_offset + 1 != update.high_watermark:
            self._drop_extents(partition)
        partition.end = update.high_watermark
        partition.log_start_offset = update.log_start_offset
        partition.last_stable_offset = update.last_stable_offset
        partition.sequence = sequence
        while len(partition.extents) > partition.first and (
            partition.extents[partition.first].last_offset < update.log_start_offset
        ):
            self._drop_first(partition)
        _remove_aborted(partition)

    def _append(self, partition: _Partition, extent: Extent, known_from: int) -> None:
        """Add the next extent; after a gap, or across the end, it replaces all extents before it."""
        held = len(partition.extents) > partition.first
        end = partition.extents[-1].last_offset + 1 if held else partition.end
        if end is not None and extent.last_offset < end:
            return
        if held and extent.base_offset != end:
            self._drop_extents(partition)
        if len(partition.extents) == partition.first:
            partition.known_from, partition.aborted = known_from, []
        partition.extents.append(extent)
        partition.received_s.append(self._monotonic_s())
        self.held_extents += 1
        aborted = aborted_by(extent)
        if aborted is not None:
            partition.aborted.append(aborted)

    def _drop_extents(self, partition: _Partition) -> None:
        self.held_extents -= len(partition.extents) - partition.first
        partition.extents = []
        partition.received_s = []
        partition.first = 0
        partition.aborted = []

    def _drop_old(self, partition: _Partition) -> None:
        oldest_s = self._monotonic_s() - self.limits.extent_age_s_max
        while partition.first < len(partition.extents) and partition.received_s[partition.first] <= oldest_s:
            self._drop_first(partition)

    def _drop_first(self, partition: _Partition) -> None:
        partition.first += 1
        self.held_extents -= 1
        if 2 * partition.first >= len(partition.extents):
            del partition.extents[: partition.first]
            del partition.received_s[: partition.first]
            partition.first = 0

    def _trim(self) -> None:
        while self.held_extents + len(self._partitions) > self.limits.extents_max:
            key, partition = next(iter(self._partitions.items()))
            if len(self._partitions) > 1:
                self.remove(key)
            elif len(partition.extents) > partition.first:
                self._drop_first(partition)
            else:
                return


def _from_offset(partition: _Partition, offset: int, bytes_max: int) -> list[Extent]:
    held = partition.extents
    index = bisect_left(held, offset, lo=partition.first, key=_last_offset)
    found: list[Extent] = []
    while index < len(held) and (bytes_max > 0 or not found):
        found.append(held[index])
        bytes_max -= held[index].length
        index += 1
    return found


def _last_offset(extent: Extent | AbortedTransaction) -> int:
    return extent.last_offset


def _first_known(partition: _Partition) -> int:
    """The first offset with known extents and known aborted transactions; the partition must have extents."""
    return max(partition.extents[partition.first].base_offset, partition.known_from)


def _aborted_from(partition: _Partition, offset: int) -> Sequence[AbortedTransaction]:
    aborted = partition.aborted
    return aborted[bisect_left(aborted, offset, key=_last_offset) :] if aborted else ()


def _learn_aborted(partition: _Partition, plan: PartitionPlan) -> None:
    """Merge a plan's aborted transactions with those known from markers or from before."""
    if plan.aborted and len(partition.extents) > partition.first:
        known = {each.last_offset: each for each in (*partition.aborted, *plan.aborted)}
        partition.aborted = sorted(known.values(), key=_last_offset)


def _remove_aborted(partition: _Partition) -> None:
    """Remove aborted transactions whose last records are no longer in the extents."""
    if not partition.aborted:
        return
    held = len(partition.extents) > partition.first
    start = partition.extents[partition.first].base_offset if held else partition.end or 0
    del partition.aborted[: bisect_left(partition.aborted, start, key=_last_offset)]


class Tail:
    """A tail index fed by announcements as they arrive: late, twice, out of order, or never."""

    def __init__(self, index: TailIndex) -> None:
        self.index = index
        self._held_back: dict[int, Advanced] = {}
        self._missing_since_s = 0.0

    def overdue_s(self, now_s: float) -> float | None:
        """How much longer to wait for a missing announcement; None if none is missing."""
        return self._missing_since_s + self.index.limits.hold_back_s - now_s if self._held_back else None

    def receive(self, advanced: Advanced, now_s: float) -> Received:
        """Apply an announcement, and the held-back ones that follow it."""
        applied = self.index.applied
        if applied is None:
            return self._lose(advanced.sequence)
        if advanced.sequence <= applied or advanced.sequence in self._held_back:
            return Received()
        if advanced.sequence > applied + 1:
            return self._hold_back(advanced, now_s)
        received = Received([], [])
        ready: Advanced | None = advanced
        while ready is not None:
            self.index.apply(ready.sequence, ready.partitions)
            received.partitions.extend((change.topic_id, change.partition) for change in ready.partitions)
            received.topics.extend(ready.topics)
            ready = self._held_back.pop(ready.sequence + 1, None)
        self._missing_since_s = now_s
        return received

    def expire(self, now_s: float) -> Received:
        """Give up on a missing announcement if it is overdue."""
        overdue_s = self.overdue_s(now_s)
        if overdue_s is None or overdue_s > 0:
            return Received()
        return self._lose(max(self._held_back))

    def _hold_back(self, advanced: Advanced, now_s: float) -> Received:
        if not self._held_back:
            self._missing_since_s = now_s
        self._held_back[advanced.sequence] = advanced
        return (
            self._lose(max(self._held_back)) if len(self._held_back) > self.index.limits.held_back_max else Received()
        )

    def _lose(self, sequence: int) -> Received:
        """Clear the index; changes after this sequence are known again."""
        self._held_back.clear()
        self.index.remove_all(sequence)
        return Received(lost=True)

"""The newest extents of the partitions that are being read, as the sequencers announce them, so that a reader near the
end of the log asks nobody. Pure.

Two things keep it right. Announcements are applied in the order of the journal, each once; where one is missing and
does not come, everything is forgotten. And a partition is known only from a journal sequence on: `since` is what had
been applied when somebody first asked for it, so an answer of the sequencers from before that could miss something
that went by unnoticed, and is not learnt.

An extent is believed for a while only: compaction may have put others in its place, and then its segment is deleted
after a grace that is much longer.
"""

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Sequence

import msgspec

from penstock.contracts.batches import Extent
from penstock.contracts.ids import TopicId
from penstock.contracts.messages import Advanced, PartitionAdvance
from penstock.contracts.queries import PartitionPlan
from penstock.contracts.refusals import Refusal

TAIL_EXTENTS_MAX = 65_536  # about 25 MB; a partition counts as one more
HELD_BACK_MAX = 1_000  # announcements behind a missing one; more than come in HOLD_BACK_S, so it is surely lost
# By the time that an extent is read it is twice as old at most: the objects of replaced segments stay for 10 minutes.
BELIEVED_S = 120.0
HOLD_BACK_S = 0.1  # replicas announce on their own connections, a millisecond or so apart

PartitionKey = tuple[TopicId, int]


class PartitionView(msgspec.Struct, frozen=True, gc=False):
    """What there is to read of a partition from an offset on; no extents at its end, or where a byte budget ended."""

    log_start_offset: int
    high_watermark: int
    last_stable_offset: int
    extents: list[Extent]


class Received(msgspec.Struct, frozen=True):
    """What an announcement changed: these partitions and topics; with `lost`, perhaps any."""

    partitions: list[PartitionKey] = []
    topics: list[str] = []
    lost: bool = False


class _Partition:
    """`extents[first:]` follow each other up to `end`, the high watermark at journal sequence `sequence`.

    `told_s` has the time at which each of `extents` was told.
    """

    __slots__ = ("end", "extents", "first", "last_stable_offset", "log_start_offset", "sequence", "since", "told_s")

    def __init__(self, since: int) -> None:
        self.since = since
        self.sequence = since
        self.end: int | None = None
        self.log_start_offset = 0
        self.last_stable_offset = 0
        self.extents: list[Extent] = []
        self.told_s: list[float] = []
        self.first = 0


class TailIndex:
    """Partitions by key, bounded; those that nobody asked for lately go first."""

    def __init__(self, extents_max: int = TAIL_EXTENTS_MAX, *, monotonic_s: Callable[[], float] = lambda: 0.0) -> None:
        self._extents_max = extents_max
        self._monotonic_s = monotonic_s
        self._partitions: OrderedDict[PartitionKey, _Partition] = OrderedDict()
        self.held_extents = 0
        self.applied: int | None = None  # the journal sequence of the last announcement; None: there was none yet

    def lookup(self, key: PartitionKey, offset: int, bytes_max: int) -> PartitionView | None:
        """Extents from the one that holds `offset` on, up to a byte budget and one at least; None: ask for a plan."""
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
            if partition.first == len(partition.extents) or offset < partition.extents[partition.first].base_offset:
                return None
            extents = _from_offset(partition, offset, bytes_max)
        return PartitionView(partition.log_start_offset, partition.end, partition.last_stable_offset, extents)

    def learn(self, sequence: int, plan: PartitionPlan) -> None:
        """Take over what a plan says that was true at a journal sequence, unless newer things are known."""
        partition = self._partitions.get((plan.topic_id, plan.partition))
        if partition is None or plan.refusal is not Refusal.NONE or sequence < partition.since:
            return
        if partition.end is None or sequence > partition.sequence:
            self._take(partition, sequence, plan)
            self._trim()

    def apply(self, sequence: int, advances: Sequence[PartitionAdvance]) -> None:
        """Apply the announcement that follows the last one."""
        for advance in advances:
            partition = self._partitions.get((advance.topic_id, advance.partition))
            if partition is not None and sequence > partition.sequence:
                self._take(partition, sequence, advance)
        self.applied = sequence
        self._trim()

    def forget(self, key: PartitionKey) -> None:
        """Know nothing of a partition any more."""
        partition = self._partitions.pop(key, None)
        if partition is not None:
            self.held_extents -= len(partition.extents) - partition.first

    def forget_all(self, applied: int) -> None:
        """Know nothing any more, and go on behind this journal sequence."""
        self._partitions.clear()
        self.held_extents = 0
        self.applied = applied

    def _begin(self, key: PartitionKey) -> None:
        """Follow a partition from now on; before the first announcement there is no saying what `now` is."""
        if self.applied is not None:
            self._partitions[key] = _Partition(self.applied)
            self._trim()

    def _take(self, partition: _Partition, sequence: int, news: PartitionAdvance | PartitionPlan) -> None:
        for extent in news.extents:
            self._append(partition, extent)
        last = partition.extents[-1] if len(partition.extents) > partition.first else None
        if last is not None and last.last_offset + 1 != news.high_watermark:
            self._drop_extents(partition)
        partition.end = news.high_watermark
        partition.log_start_offset = news.log_start_offset
        partition.last_stable_offset = news.last_stable_offset
        partition.sequence = sequence
        while len(partition.extents) > partition.first and (
            partition.extents[partition.first].last_offset < news.log_start_offset
        ):
            self._drop_first(partition)

    def _append(self, partition: _Partition, extent: Extent) -> None:
        """Add an extent that follows; one behind a hole, or across the end, takes the place of all before it."""
        held = len(partition.extents) > partition.first
        end = partition.extents[-1].last_offset + 1 if held else partition.end
        if end is not None and extent.last_offset < end:
            return
        if held and extent.base_offset != end:
            self._drop_extents(partition)
        partition.extents.append(extent)
        partition.told_s.append(self._monotonic_s())
        self.held_extents += 1

    def _drop_extents(self, partition: _Partition) -> None:
        self.held_extents -= len(partition.extents) - partition.first
        partition.extents = []
        partition.told_s = []
        partition.first = 0

    def _drop_old(self, partition: _Partition) -> None:
        oldest_s = self._monotonic_s() - BELIEVED_S
        while partition.first < len(partition.extents) and partition.told_s[partition.first] <= oldest_s:
            self._drop_first(partition)

    def _drop_first(self, partition: _Partition) -> None:
        partition.first += 1
        self.held_extents -= 1
        if 2 * partition.first >= len(partition.extents):
            del partition.extents[: partition.first]
            del partition.told_s[: partition.first]
            partition.first = 0

    def _trim(self) -> None:
        while self.held_extents + len(self._partitions) > self._extents_max:
            key, partition = next(iter(self._partitions.items()))
            if len(self._partitions) > 1:
                self.forget(key)
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


def _last_offset(extent: Extent) -> int:
    return extent.last_offset


class Tail:
    """A tail index fed by announcements as they come: late, twice, in another order, or never."""

    def __init__(self, index: TailIndex) -> None:
        self.index = index
        self._held_back: dict[int, Advanced] = {}
        self._missing_since_s = 0.0

    def overdue_s(self, now_s: float) -> float | None:
        """How long to go on waiting for a missing announcement; None if none is missing."""
        return self._missing_since_s + HOLD_BACK_S - now_s if self._held_back else None

    def receive(self, advanced: Advanced, now_s: float) -> Received:
        """Take an announcement in, and those that it makes good."""
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
        return self._lose(max(self._held_back)) if len(self._held_back) > HELD_BACK_MAX else Received()

    def _lose(self, sequence: int) -> Received:
        """Forget everything: what comes after this sequence is known again."""
        self._held_back.clear()
        self.index.forget_all(sequence)
        return Received(lost=True)

"""Queues the members of a share group on this gateway, so that one at a time fetches a partition.

Two members that read the same records at once could not both acquire them. So one member at a time fetches a partition
through one gateway, as in Kafka. This is not needed for correctness: members on two gateways may both try, and the
state machine gives each record to one of them.

New data of a partition wakes all members that wait for it. One of them has the slot, and the others queue behind it. A
member that leaves records behind gives the slot to the next one. So the number of reads depends on the new data, and
not on the number of members.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from penstock_gateway.tail.tail_index import PartitionKey
from penstock_gateway.tail.tail_subscriber import TailWatch

Place = tuple[str, PartitionKey]  # a group's partition
Key = TypeVar("Key")


@dataclass(slots=True)
class QueueSlot:
    """The partitions that one member may fetch now, and those of them without records for any member (`empty`)."""

    keys: list[PartitionKey] = field(default_factory=list)
    empty: set[PartitionKey] = field(default_factory=set)


class PartitionQueues:
    """The slots and queues of all groups."""

    def __init__(self) -> None:
        self._taken: set[Place] = set()
        # Members are woken in the order in which they queued.
        self._queues: dict[Place, dict[TailWatch, None]] = {}
        self._watches: dict[str, dict[TailWatch, None]] = {}

    @property
    def places(self) -> int:
        """The number of taken slots, queues and groups with waiting members; 0 when no member is active."""
        return len(self._taken) + len(self._queues) + len(self._watches)

    @property
    def queued(self) -> int:
        """How many members queue for a slot."""
        return sum(len(queue) for queue in self._queues.values())

    @contextmanager
    def take(self, group_id: str, keys: Iterable[PartitionKey], watch: TailWatch) -> Iterator[QueueSlot]:
        """Take the free slots of these partitions for the block; `watch` queues for the other partitions.

        The end of a slot does not wake its owner: members without success would wake each other for ever.
        """
        slot = QueueSlot()
        for key in keys:
            place = group_id, key
            if place in self._taken:
                self._queues.setdefault(place, {})[watch] = None
            else:
                self._taken.add(place)
                slot.keys.append(key)
        try:
            yield slot
        finally:
            self._end(group_id, slot, watch)

    @contextmanager
    def waiting(self, group_id: str, keys: Iterable[PartitionKey], watch: TailWatch) -> Iterator[None]:
        """Within the block, wake this member also when records of the group are released.

        At the end of the block the member leaves the queues of these partitions.
        """
        self._watches.setdefault(group_id, {})[watch] = None
        try:
            yield
        finally:
            _drop(self._watches, group_id, watch)
            for key in keys:
                _drop(self._queues, (group_id, key), watch)

    def wake(self, group_id: str) -> None:
        """Wake the waiting members of the group, because records are available again."""
        for watch in self._watches.get(group_id, ()):
            watch.wake()

    def _end(self, group_id: str, slot: QueueSlot, watch: TailWatch) -> None:
        for key in slot.keys:
            self._taken.discard((group_id, key))
        for key in slot.keys:
            if key not in slot.empty or watch.woken_s is not None:  # if woken, there may be newer data than it saw
                self._hand_on((group_id, key))

    def _hand_on(self, place: Place) -> None:
        """Wake the members in the queue up to the first that waits, because that one is sure to look.

        Members that do not wait yet are busy with other partitions, and may return with records from there.
        """
        for waiting in self._queues.get(place, ()):
            waiting.wake()
            if waiting.has_waited:
                return


def _drop(watches: dict[Key, dict[TailWatch, None]], key: Key, watch: TailWatch) -> None:
    others = watches.get(key)
    if others is not None:
        others.pop(watch, None)
        if not others:
            del watches[key]

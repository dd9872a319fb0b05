"""Who of a share group's members on this gateway fetches a partition now, and who waits to.

Two who read the same records at once could not both have them. So one member at a time fetches a partition through one
gateway, as in Kafka. Nothing depends on it: through two gateways two may try, and the machine gives each record to one.

News of a partition wakes all who wait for it. One of them has the slot, the others queue behind it, and each who leaves
something hands the slot on to one: members look as often as there is news for them, however many they are.
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
    """What one member may fetch now, and where it found nothing that anybody could have."""

    keys: list[PartitionKey] = field(default_factory=list)
    bare: set[PartitionKey] = field(default_factory=set)


class PartitionQueues:
    """The turns of all groups."""

    def __init__(self) -> None:
        self._taken: set[Place] = set()
        # Woken in the order in which they came.
        self._queues: dict[Place, dict[TailWatch, None]] = {}
        self._watches: dict[str, dict[TailWatch, None]] = {}

    @property
    def places(self) -> int:
        """How many partitions somebody has the slot at, or queues for, or waits for in a group."""
        return len(self._taken) + len(self._queues) + len(self._watches)

    @property
    def queued(self) -> int:
        """How many queue for a slot."""
        return sum(len(queue) for queue in self._queues.values())

    @contextmanager
    def take(self, group_id: str, keys: Iterable[PartitionKey], watch: TailWatch) -> Iterator[QueueSlot]:
        """Those of the partitions whose slot nobody has, for this block; `watch` queues for the others.

        Who has had a slot is not woken by its end: members without success would wake each other for ever.
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
        """Wake this one, too, when records of the group come back; it may queue for these partitions."""
        self._watches.setdefault(group_id, {})[watch] = None
        try:
            yield
        finally:
            _drop(self._watches, group_id, watch)
            for key in keys:
                _drop(self._queues, (group_id, key), watch)

    def wake(self, group_id: str) -> None:
        """Records of the group are free again."""
        for watch in self._watches.get(group_id, ()):
            watch.wake()

    def _end(self, group_id: str, slot: QueueSlot, watch: TailWatch) -> None:
        for key in slot.keys:
            self._taken.discard((group_id, key))
        for key in slot.keys:
            if key not in slot.bare or watch.woken_s is not None:  # what came meanwhile may be newer than what was seen
                self._hand_on((group_id, key))

    def _hand_on(self, place: Place) -> None:
        """Wake the first in the queue who is sure to look, and whoever is before it.

        Those that do not wait yet are busy with other partitions, and may leave with what they find there.
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

"""Who of a share group's members on this gateway fetches a partition now, and who waits to.

Two who read the same records at once could not both have them. So one member at a time fetches a partition through one
gateway, as in Kafka. Nothing depends on it: through two gateways two may try, and the machine gives each record to one.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from gateway.tail import PartitionKey
from gateway.tail_feed import Watch


class ShareTurns:
    """The turns of all groups."""

    def __init__(self) -> None:
        self._taken: dict[tuple[str, PartitionKey], list[Watch]] = {}  # with those who came meanwhile
        self._watches: dict[str, dict[Watch, None]] = {}  # by group, woken in the order in which they came

    @contextmanager
    def take(self, group_id: str, keys: Iterable[PartitionKey], watch: Watch) -> Iterator[list[PartitionKey]]:
        """Those of the partitions whose turn nobody has, for this block; `watch` is woken when it can be had of others.

        Nobody else is: members without success would wake each other for ever.
        """
        mine: list[PartitionKey] = []
        for key in keys:
            taken = self._taken.get((group_id, key))
            if taken is None:
                self._taken[group_id, key] = []
                mine.append(key)
            else:
                taken.append(watch)
        try:
            yield mine
        finally:
            for key in mine:
                for waiting in self._taken.pop((group_id, key)):
                    waiting.wake()

    @contextmanager
    def waiting(self, group_id: str, watch: Watch) -> Iterator[None]:
        """Wake this one, too, when records of the group come back."""
        self._watches.setdefault(group_id, {})[watch] = None
        try:
            yield
        finally:
            others = self._watches[group_id]
            others.pop(watch, None)
            if not others:
                del self._watches[group_id]

    def wake(self, group_id: str) -> None:
        """Records of the group are free again."""
        for watch in self._watches.get(group_id, ()):
            watch.wake()

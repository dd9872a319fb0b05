"""The jobs that a process runs at the same time, divided fairly among its clusters.

A free slot goes to the waiting cluster with the fewest jobs. Of several, the one whose last job began first is next.
The last free slot is for a cluster without a job, as long as there is one. So a long job of one cluster does not make
all others wait.
"""

import asyncio
from collections.abc import Callable


class JobSlots:
    """The slots of one process. `landed` limits jobs of landed segments, which are beside all others."""

    def __init__(self, slots_max: int) -> None:
        self.landed = asyncio.Semaphore(slots_max)
        self._slots_max = slots_max
        self._free = slots_max
        self._turn = 0
        self._shares: list[ClusterSlots] = []

    @property
    def waiting(self) -> int:
        """The number of clusters that wait for a slot."""
        return sum(share.is_waiting for share in self._shares)

    def join(self, wake: Callable[[], None]) -> "ClusterSlots":
        """The slots of one more cluster. `wake` is called when the cluster gets a slot that it waited for."""
        share = ClusterSlots(self, wake)
        self._shares.append(share)
        return share

    def leave(self, share: "ClusterSlots") -> None:
        """Remove a cluster without slots."""
        assert not share.taken, "a cluster left while it had slots"
        self._shares.remove(share)
        self._serve()

    def take(self, share: "ClusterSlots") -> bool:
        """Take a free slot, if the cluster may have one."""
        if not self._can_take(share):
            return False
        self._free -= 1
        self._turn += 1
        share.taken += 1
        share.last_turn = self._turn
        return True

    def give_back(self, share: "ClusterSlots") -> None:
        """Free a slot of a cluster; the next cluster in turn gets it."""
        assert share.taken, "a slot was given back twice"
        share.taken -= 1
        self._free += 1
        self._serve()

    def _can_take(self, share: "ClusterSlots") -> bool:
        has_job = share.taken > 0 and self._slots_max > 1
        keeps_last = has_job and not all(each.taken for each in self._shares)
        return self._free > (1 if keeps_last else 0)

    def _serve(self) -> None:
        waiting = sorted((each for each in self._shares if each.is_waiting), key=lambda each: each.rank)
        for share in waiting:
            if self.take(share):
                share.receive()


class ClusterSlots:
    """The slots of one cluster: its search reserves one before it begins a job.

    A slot that comes after a wait is for the next search. A search gives back what it did not use.
    """

    def __init__(self, slots: JobSlots, wake: Callable[[], None]) -> None:
        self.taken = 0  # by jobs, and reserved
        self.last_turn = 0
        self.is_waiting = False
        self._slots = slots
        self._wake = wake
        self._reserved = 0
        self._has_received = False  # since the present search began
        self._is_wanted = False  # a slot that the present search did not get

    @property
    def rank(self) -> tuple[int, int]:
        """The cluster with the lowest rank is next."""
        return (self.taken, self.last_turn)

    def begin_search(self) -> None:
        """Start a search; the cluster keeps its turn meanwhile."""
        self._has_received = self._is_wanted = False

    def reserve(self) -> bool:
        """Whether there is a slot for one more job; if not, the cluster waits for one after this search."""
        if not self._reserved:
            if not self._slots.take(self):
                self._is_wanted = self.is_waiting = True
                return False
            self._reserved += 1
        return True

    def receive(self) -> None:
        """Get the slot that the cluster waits for."""
        self.is_waiting = self._is_wanted = False
        self._reserved += 1
        self._has_received = True
        self._wake()

    def begin_job(self) -> None:
        """Use the reserved slot."""
        assert self._reserved, "a job began without a slot"
        self._reserved -= 1

    def end_job(self) -> None:
        """Give back the slot of a job."""
        self._slots.give_back(self)

    def end_search(self) -> None:
        """Give back what the search did not use, except a slot that came too late for it."""
        self.is_waiting = self._is_wanted
        if not self._has_received:
            self._give_back_reserved()

    def withdraw(self) -> None:
        """Begin no more jobs."""
        self.is_waiting = False
        self._give_back_reserved()

    def leave(self) -> None:
        """End the part of this cluster, after its jobs."""
        self.withdraw()
        self._slots.leave(self)

    def _give_back_reserved(self) -> None:
        while self._reserved:
            self._reserved -= 1
            self._slots.give_back(self)

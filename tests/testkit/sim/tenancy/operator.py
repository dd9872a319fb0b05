"""The person at `penstock cluster`: creates, deletes and undeletes one cluster, and repeats what failed."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from enum import Enum

from penstock.clusters.record import ClusterRecord, ClusterState, deleted, undeleted
from penstock.clusters.registry import ClusterRegistry, Registered
from penstock.contracts.errors import Conflict, Unavailable
from penstock.runtime.clock import Clock

RETRY_S = 0.3
LOOK_S = 1.0

Step = Callable[[], Awaitable[None]]


class Verb(Enum):
    """The present action of the operator. Only a janitor may change a record in another way."""

    NOTHING = "nothing"
    CREATE = "create"
    DELETE = "delete"
    UNDELETE = "undelete"


class Operator:
    """Goes through the steps for one cluster. Each step can be repeated: the operator's machine may crash in it."""

    def __init__(self, cluster: str, stream: random.Random, clock: Clock) -> None:
        self.cluster = cluster
        self.verb = Verb.NOTHING
        self.came_back = 0  # undeletes that succeeded
        self.came_late = 0  # undeletes that a janitor overtook
        self._stream = stream
        self._clock = clock
        self._steps: list[Step] = [self._create]
        self._registry: ClusterRegistry

    @property
    def is_done(self) -> bool:
        """Whether all steps are done."""
        return not self._steps

    def plan_return(self, window_s: float) -> None:
        """Delete the cluster, and undelete it at about the end of its window, or before."""
        delay_s = self._stream.choice((0.0, window_s / 2, window_s, window_s))
        self._steps += [
            self._pause_up_to(3.0),
            lambda: self._delete(window_s),
            self._pause_up_to(delay_s + 1.0, delay_s),
            self._undelete,
        ]

    def plan_removal(self, window_s: float) -> None:
        """Delete the cluster, wait until it is gone, and create it again."""
        self._steps += [self._pause_up_to(3.0), lambda: self._delete(window_s), self._await_end, self._create]

    async def run(self, registry: ClusterRegistry) -> None:
        """Go on with the present step."""
        self._registry = registry
        while self._steps:
            try:
                await self._steps[0]()
            except (Unavailable, Conflict):
                await asyncio.sleep(RETRY_S)
            else:
                self.verb = Verb.NOTHING
                self._steps.pop(0)

    def _pause_up_to(self, longest_s: float, shortest_s: float = 0.0) -> Step:
        async def pause() -> None:
            await asyncio.sleep(self._stream.uniform(shortest_s, longest_s))

        return pause

    async def _create(self) -> None:
        self.verb = Verb.CREATE
        found = await self._registry.find(self.cluster)
        if found is not None and found.record.is_active:
            return  # an attempt before a crash
        created_id = self._stream.randbytes(8).hex()
        now_ms = self._clock.now_ms()
        await self._registry.create(ClusterRecord(name=self.cluster, created_id=created_id, created_ms=now_ms))

    async def _delete(self, window_s: float) -> None:
        found = await self._find()
        self.verb = Verb.DELETE
        if found.record.is_active:
            await self._registry.replace(found, deleted(found.record, self._clock.now_ms(), int(window_s * 1000)))

    async def _undelete(self) -> None:
        found = await self._find()
        self.verb = Verb.UNDELETE
        if found.record.state == ClusterState.DELETED:
            await self._registry.replace(found, undeleted(found.record))
        elif not found.record.is_active:
            self.came_late += 1
            self._steps[1:1] = [self._await_end, self._create]
            return
        self.came_back += 1

    async def _await_end(self) -> None:
        while (await self._find()).record.state != ClusterState.GONE:
            await asyncio.sleep(LOOK_S)

    async def _find(self) -> Registered:
        found = await self._registry.find(self.cluster)
        if found is None:
            raise Unavailable("the registry does not show the cluster")
        return found

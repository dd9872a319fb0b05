"""Chooses the cacher for each part of a segment, by consistent hashing over those of a zone and pool."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from uhashring import HashRing

from penstock.contracts.batches import SegmentRef
from penstock.contracts.chunks import stripe_at
from penstock.contracts.messages import Presence
from penstock.runtime.clock import Clock

CACHER = "cacher"


class Instances(Protocol):
    """The part of the directory that the ring needs: the live instances, and a call when they change."""

    def live(self, role: str, zone: str | None = None, pool: str | None = None) -> Sequence[Presence]: ...

    def subscribe(self, callback: Callable[[], None]) -> None: ...


def part_of(segment: SegmentRef, position: int) -> str:
    """The name of the part that one cacher owns: a segment at level 0, a stripe of it above."""
    name = segment.segment_id.hex()
    return name if segment.level == 0 else f"{name}/{stripe_at(segment.size_bytes, position)}"


class CacheRing:
    """The cachers of a zone and pool in the order in which they are asked for a part: first its owner."""

    def __init__(self, directory: Instances, zone: str, pool: str, clock: Clock) -> None:
        self._directory = directory
        self._zone = zone
        self._pool = pool
        self._clock = clock
        self._ring: Any = None  # uhashring has no types; None: to be built again
        self._avoided_until_s: dict[str, float] = {}
        directory.subscribe(self._change)

    def owners(self, part: str, count: int) -> list[str]:
        """Up to `count` instances for a part, without those that failed lately."""
        if self._ring is None:
            self._ring = HashRing(nodes=[presence.instance for presence in self._live()])
        if not self._ring.nodes:
            return []
        now_s = self._clock.monotonic_s()
        wanted = count + len(self._avoided_until_s)
        names = [node["nodename"] for node in self._ring.range(part, size=wanted)]
        return [name for name in names if self._avoided_until_s.get(name, now_s) <= now_s][:count]

    def has_others(self, instance: str) -> bool:
        """Whether another cacher can be asked now."""
        now_s = self._clock.monotonic_s()
        return any(
            presence.instance != instance and self._avoided_until_s.get(presence.instance, now_s) <= now_s
            for presence in self._live()
        )

    def avoid(self, instance: str, duration_s: float) -> None:
        """Leave out an instance for a while: it failed, or is slow."""
        self._avoided_until_s[instance] = self._clock.monotonic_s() + duration_s

    def _live(self) -> Sequence[Presence]:
        return self._directory.live(CACHER, self._zone, self._pool)

    def _change(self) -> None:
        self._ring = None
        now_s = self._clock.monotonic_s()
        self._avoided_until_s = {name: end_s for name, end_s in self._avoided_until_s.items() if end_s > now_s}

"""Members of classic groups that a sequencer confirmed lately. Their heartbeats succeed while no sequencer answers.

A client leaves its group when no heartbeat succeeds for its session timeout. But an outage of the sequencers is no
sign that the member is dead. The lease is bounded: a member may have been removed without this gateway's knowledge.
"""

from collections import OrderedDict
from typing import Protocol

import msgspec

from penstock.contracts.queries.groups import HeartbeatQuery


class HeartbeatLeaseLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How long a confirmed member counts as one, and how many members a gateway remembers."""

    lease_s: float = 120.0  # after it, the client's own session timeout begins
    members_max: int = 100_000  # some 40 MB


class HeartbeatLeases:
    """The members whose last heartbeat a sequencer accepted, with the time of its answer."""

    def __init__(self, limits: HeartbeatLeaseLimits | None = None) -> None:
        self._limits = limits or HeartbeatLeaseLimits()
        self._confirmed: OrderedDict[tuple[str, str, int, str | None], float] = OrderedDict()  # the oldest first

    def __len__(self) -> int:
        """How many members are remembered."""
        return len(self._confirmed)

    def confirm(self, query: HeartbeatQuery, now_s: float) -> None:
        """Record that a sequencer accepted this heartbeat; leases that have ended are removed."""
        key = _key(query)
        self._confirmed[key] = now_s
        self._confirmed.move_to_end(key)
        while len(self._confirmed) > self._limits.members_max or self._has_ended(next(iter(self._confirmed)), now_s):
            self._confirmed.popitem(last=False)

    def remove(self, query: HeartbeatQuery) -> None:
        """Record that a sequencer rejected this heartbeat."""
        self._confirmed.pop(_key(query), None)

    def holds(self, query: HeartbeatQuery, now_s: float) -> bool:
        """Whether the member of this heartbeat, in its generation, was confirmed within the lease."""
        key = _key(query)
        return key in self._confirmed and not self._has_ended(key, now_s)

    def _has_ended(self, key: tuple[str, str, int, str | None], now_s: float) -> bool:
        return now_s - self._confirmed[key] >= self._limits.lease_s


class HasHeartbeatLeases(Protocol):
    @property
    def heartbeat_leases(self) -> HeartbeatLeases: ...


def _key(query: HeartbeatQuery) -> tuple[str, str, int, str | None]:
    return query.group_id, query.member_id, query.generation, query.group_instance_id

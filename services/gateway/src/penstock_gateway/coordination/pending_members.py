"""Removes member ids that a client was given and can no longer use, because its connection is closed.

A new member gets its id first, and joins with it in a second request (KIP-394). Between the two, the group's rebalance
waits for it. Kafka waits for the session timeout. Here the gateway reports the end of the connection. The sequencers
remove only an id that has not joined. So a client may have joined through another connection.
A crash of this gateway loses the report, and then the session timeout ends the wait.
"""

import asyncio
from collections import OrderedDict
from typing import Protocol

import msgspec
import structlog

from penstock.contracts.commands import Command, ExpireMember
from penstock.contracts.errors import Invalid, Unavailable
from penstock.runtime.bus.sequencer_client import SequencerClient
from penstock.runtime.clock import Clock
from penstock_gateway.kafka.client import Client

NEVER_JOINED = -1  # as the active sequence: every member that has joined acted after it

log = structlog.get_logger()


class PendingMemberLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How many member ids a gateway remembers and reports. The session timeout ends the wait for any other id."""

    ids_per_connection_max: int = 100
    reported_ids_max: int = 10_000  # at any time, while the sequencers do not answer
    ids_per_message_max: int = 256
    # From the end of the connection to the report. A join on its way to the sequencers comes first. A client that
    # lost its connection can still use its id.
    grace_s: float = 1.0
    deadline_s: float = 10.0


MemberId = tuple[str, str]  # with its group id


class _Given:
    """The member ids that one connection was given and has not used; the oldest first."""

    def __init__(self) -> None:
        self.ids: OrderedDict[MemberId, None] = OrderedDict()
        self.is_watched = False  # whether the end of the connection is reported here


class PendingMembers:
    """The member ids of all connections that have not joined, and the reports about closed connections."""

    def __init__(self, sequencer: SequencerClient, clock: Clock, limits: PendingMemberLimits | None = None) -> None:
        self._sequencer = sequencer
        self._clock = clock
        self._limits = limits or PendingMemberLimits()
        self._abandoned: OrderedDict[MemberId, None] = OrderedDict()
        self._has_abandoned = asyncio.Event()

    def record(self, client: Client, group_id: str, member_id: str) -> None:
        """Record that the client is given this id, and has to join with it."""
        given = client.part(_Given)
        if not given.is_watched:
            given.is_watched = True
            client.on_close.append(lambda: self._abandon(client, given))
        given.ids[(group_id, member_id)] = None
        if len(given.ids) > self._limits.ids_per_connection_max:
            given.ids.popitem(last=False)

    def remove(self, client: Client, group_id: str, member_id: str) -> None:
        """Record that the client has joined with this id, or cannot join with it."""
        client.part(_Given).ids.pop((group_id, member_id), None)

    def _abandon(self, client: Client, given: _Given) -> None:
        """Report the ids soon. The clients of a gateway that stops use their ids at another one."""
        if client.is_leaving or not given.ids:
            return
        self._abandoned.update(given.ids)
        while len(self._abandoned) > self._limits.reported_ids_max:
            self._abandoned.popitem(last=False)
        self._has_abandoned.set()

    async def run(self) -> None:
        """Report abandoned ids, until cancelled."""
        while True:
            await self._has_abandoned.wait()
            self._has_abandoned.clear()
            abandoned, self._abandoned = list(self._abandoned), OrderedDict()
            await asyncio.sleep(self._limits.grace_s)
            count_max = self._limits.ids_per_message_max
            for start in range(0, len(abandoned), count_max):
                await self._report(abandoned[start : start + count_max])

    async def _report(self, abandoned: list[MemberId]) -> None:
        now_ms = self._clock.now_ms()
        expiries: list[Command] = [ExpireMember(now_ms, *each, NEVER_JOINED) for each in abandoned]
        try:
            await self._sequencer.command(expiries, deadline_s=self._limits.deadline_s)
        except (Invalid, Unavailable) as error:  # of an older release, which takes no such report; or no sequencer
            log.warning("pending_members_not_removed", members=len(expiries), error=str(error))


class HasPendingMembers(Protocol):
    @property
    def pending_members(self) -> PendingMembers: ...

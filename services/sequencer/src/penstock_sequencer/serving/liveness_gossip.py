"""Shares with other replicas which group members were heard from, and proposes that silent ones expire.

The same messages tell the others what level this replica knows, each second also when no member was heard.
"""

import asyncio

import structlog

from penstock.contracts import codec, subjects
from penstock.contracts.commands import Command, ExpireMember
from penstock.contracts.errors import Corrupt, Unavailable
from penstock.contracts.messages import Heard
from penstock.runtime.bus.bus import Bus, Inbound, Subscription
from penstock.runtime.clock import Clock
from penstock_sequencer.core.queries import watched_members
from penstock_sequencer.replication.level_raiser import Levels
from penstock_sequencer.replication.proposer import Proposals
from penstock_sequencer.replication.replica import Replica
from penstock_sequencer.serving.liveness import Members

SHARE_INTERVAL_S = 0.5
SIGN_INTERVAL_S = 1.0  # between two signs of life
LOOK_INTERVAL_S = 0.5  # the shortest session time-out is 6 s
# We stood still, or the journal did, for longer than this between two looks: then so may heartbeats have, unread.
BLIND_S = 2.0
HEARD_PER_MESSAGE_MAX = 1_000  # about 100 KB, and never over a server's smallest maximum of 1 MiB by much
EXPIRED_PER_REQUEST_MAX = 256

log = structlog.get_logger()


class Heartbeats:
    """What keeps `members` and the journal up to date about who lives."""

    def __init__(
        self,
        bus: Bus,
        cluster: str,
        members: Members,
        levels: Levels,
        replica: Replica,
        proposals: Proposals,
        clock: Clock,
    ) -> None:
        self._bus = bus
        self._subject = subjects.heard(cluster)
        self._members = members
        self._levels = levels
        self._replica = replica
        self._proposals = proposals
        self._clock = clock
        self._subscription: Subscription | None = None
        self._shared_s = clock.monotonic_s() - SIGN_INTERVAL_S

    async def open(self) -> None:
        """Listen to what other replicas heard."""
        self._subscription = await self._bus.subscribe(self._subject, self._take_in)

    async def close(self) -> None:
        """Listen no more."""
        if self._subscription is not None:
            await self._subscription.unsubscribe()

    async def run(self) -> None:
        """Share and look, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._share_for_ever())
            group.create_task(self._look_for_ever())

    async def _take_in(self, message: Inbound) -> None:
        try:
            heard = codec.decode(message.data, Heard)
        except Corrupt as error:
            log.warning("message_not_understood", subject=message.subject, error=str(error))
            return
        if heard.replica != self._proposals.author:
            self._members.take_in(heard.members, self._clock.monotonic_s())
            self._levels.take_in(heard.replica, heard.level)

    async def _share_for_ever(self) -> None:
        while True:
            await asyncio.sleep(SHARE_INTERVAL_S)
            await self.share()

    async def share(self) -> None:
        """Tell the others whom we heard since the last time, if anybody or if it is time for a sign of life."""
        fresh, now_s = self._members.take_fresh(), self._clock.monotonic_s()
        is_due = self._levels.known > 0 and now_s - self._shared_s >= SIGN_INTERVAL_S  # at level 0 nobody gave signs
        if not fresh and not is_due:
            return
        self._shared_s = now_s
        for start in range(0, max(len(fresh), 1), HEARD_PER_MESSAGE_MAX):
            members = fresh[start : start + HEARD_PER_MESSAGE_MAX]
            heard = Heard(self._proposals.author, members, self._levels.known)
            await self._bus.publish(self._subject, codec.encode(heard))

    async def _look_for_ever(self) -> None:
        looked_s = self._clock.monotonic_s()
        while True:
            await asyncio.sleep(LOOK_INTERVAL_S)
            if self._clock.monotonic_s() - looked_s > BLIND_S or not self._bus.is_connected:
                self._members.restart()
            looked_s = self._clock.monotonic_s()
            await self.expire_silent()

    async def expire_silent(self) -> None:
        """Look at all members once, and propose that the silent ones go."""
        silent = self._members.silent(watched_members(self._replica.state), self._clock.monotonic_s())
        now_ms = self._clock.now_ms()
        expiries: list[Command] = [ExpireMember(now_ms, *member) for member in silent]
        for start in range(0, len(expiries), EXPIRED_PER_REQUEST_MAX):
            try:
                await self._proposals.propose(expiries[start : start + EXPIRED_PER_REQUEST_MAX])
            except Unavailable as error:
                log.warning("expiry_not_journaled", members=len(expiries) - start, error=str(error))
                return

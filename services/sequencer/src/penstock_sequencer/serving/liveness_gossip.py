"""Shares with other replicas which group members sent heartbeats, and proposes that silent members expire.

The same messages carry the level that this replica knows. They are sent each second even without heartbeats.
"""

import asyncio

import structlog

from penstock.contracts import codec, subjects
from penstock.contracts.commands import Command, ExpireMember
from penstock.contracts.errors import Corrupt, Unavailable
from penstock.contracts.messages import Heard
from penstock.runtime.bus.bus import Bus, Inbound, Subscription
from penstock.runtime.clock import Clock
from penstock.runtime.concurrency.beat import next_beat_s, until_beat
from penstock_sequencer.core.queries import watched_members
from penstock_sequencer.replication.level_raiser import LevelRaiser
from penstock_sequencer.replication.proposer import Proposer
from penstock_sequencer.replication.replica import Replica
from penstock_sequencer.serving.member_liveness import LIVENESS_LIMITS, LivenessLimits, MemberLiveness

log = structlog.get_logger()


class LivenessGossip:
    """Updates `members` from other replicas, and the journal about silent members."""

    def __init__(
        self,
        *,
        bus: Bus,
        cluster: str,
        members: MemberLiveness,
        levels: LevelRaiser,
        replica: Replica,
        proposer: Proposer,
        clock: Clock,
        limits: LivenessLimits = LIVENESS_LIMITS,
    ) -> None:
        self._bus = bus
        self._subject = subjects.heard(cluster)
        self._members = members
        self._levels = levels
        self._replica = replica
        self._proposer = proposer
        self._clock = clock
        self._limits = limits
        self._subscription: Subscription | None = None
        self._shared_s = clock.monotonic_s() - limits.sign_interval_s

    async def open(self) -> None:
        """Subscribe to other replicas' messages."""
        self._subscription = await self._bus.subscribe(self._subject, self._take_in)

    async def close(self) -> None:
        """Unsubscribe."""
        if self._subscription is not None:
            await self._subscription.unsubscribe()

    async def run(self) -> None:
        """Share heartbeats and check all members, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._share_for_ever())
            group.create_task(self._look_for_ever())

    async def _take_in(self, message: Inbound) -> None:
        try:
            heard = codec.decode(message.data, Heard)
        except Corrupt as error:
            log.warning("message_not_understood", subject=message.subject, error=str(error))
            return
        self._members.record_message(self._clock.monotonic_s())
        if heard.replica != self._proposer.author:
            self._members.record_heard_elsewhere(heard.members, self._clock.monotonic_s())
            self._levels.record_level(heard.replica, heard.level)

    async def _share_for_ever(self) -> None:
        while True:
            await until_beat(self._limits.share_interval_s)
            await self.share()

    async def share(self) -> None:
        """Send the members heard since the last call, if there are any or a message is due anyway."""
        fresh, now_s = self._members.take_fresh(), self._clock.monotonic_s()
        # Calls come at common instants, and each is a little early or late.
        is_sign_due = now_s - self._shared_s >= self._limits.sign_interval_s - self._limits.share_interval_s / 2
        if not fresh and not (self._levels.known > 0 and is_sign_due):  # a replica of level 0 sends no empty messages
            return
        self._shared_s = now_s
        count_max = self._limits.heard_per_message_max
        for start in range(0, max(len(fresh), 1), count_max):
            heard = Heard(self._proposer.author, fresh[start : start + count_max], self._levels.known)
            await self._bus.publish(self._subject, codec.encode(heard))

    async def _look_for_ever(self) -> None:
        looked_s = self._clock.monotonic_s()
        while True:
            await asyncio.sleep(self._look_delay_s())
            now_s = self._clock.monotonic_s()
            # A replica of level 0 sends no message without heartbeats, so its silence proves nothing either.
            is_deaf = self._levels.known > 0 and self._members.is_deaf(now_s)
            if is_deaf or now_s - looked_s > self._limits.blind_s or not self._bus.is_connected:
                self._members.restart()
            looked_s = now_s
            await self.expire_silent()

    def _look_delay_s(self) -> float:
        """Until a member would be silent for too long: groups wait for its end, and clients know the time."""
        limits, now_s = self._limits, asyncio.get_running_loop().time()
        due_in_s = self._members.next_due_s - self._clock.monotonic_s()
        return min(max(due_in_s, limits.look_gap_s), next_beat_s(now_s, limits.look_interval_s) - now_s)

    async def expire_silent(self) -> None:
        """Check all members once, and propose that the silent ones expire."""
        silent = self._members.silent(
            watched_members(self._replica.state), self._clock.monotonic_s(), self._replica.applied_s
        )
        now_ms = self._clock.now_ms()
        expiries: list[Command] = [ExpireMember(now_ms, *member) for member in silent]
        count_max = self._limits.expired_per_request_max
        for start in range(0, len(expiries), count_max):
            try:
                await self._proposer.propose(expiries[start : start + count_max])
            except Unavailable as error:
                log.warning("expiry_not_journaled", members=len(expiries) - start, error=str(error))
                return

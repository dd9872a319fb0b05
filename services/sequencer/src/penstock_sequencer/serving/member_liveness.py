"""Times of the last heartbeats of group members, and the members that were silent for a session timeout (pure)."""

import math
from collections.abc import Callable, Iterable

import msgspec

from penstock.contracts.messages import HeardMember

_UNKNOWN = -1  # no journal sequence: the member counts as alive until the next check

Member = tuple[str, str]  # group id, member id


class LivenessLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How often replicas exchange the members that they heard, and look for silent ones."""

    tracked_members_max: int = 200_000  # between two checks of the state; far more than all groups have
    share_interval_s: float = 0.5
    sign_interval_s: float = 1.0  # between two messages that show that this replica is alive
    look_interval_s: float = 0.5  # the longest time between two checks
    look_gap_s: float = 0.02  # the shortest time between two checks
    # The process or the journal was stalled for longer than this between two checks. Heartbeats may be unread then.
    blind_s: float = 2.0
    # No message of a replica came for longer than this, not even its own: the bus may have kept back heartbeats.
    deaf_s: float = 3.0
    heard_per_message_max: int = 1_000  # about 100 KB; with the longest names about 1 MiB, the smallest maximum
    expired_per_request_max: int = 256


LIVENESS_LIMITS = LivenessLimits()


class MemberLiveness:
    """The time at which each member was last alive: heard by any replica, or active in the journal."""

    def __init__(self, limits: LivenessLimits = LIVENESS_LIMITS) -> None:
        self._tracked_max = limits.tracked_members_max
        self._alive: dict[Member, tuple[int, float]] = {}  # -> its active sequence, when it was last alive
        self._fresh: dict[Member, None] = {}
        self._deaf_s = limits.deaf_s
        self._message_s: float | None = None
        self._since_s: float | None = None  # before it, signs of life may have been missed; None: before the next check
        self.next_due_s = math.inf  # when the first of the other members would be silent for too long, as of the check

    def __len__(self) -> int:
        """How many members are tracked."""
        return len(self._alive)

    def record_heartbeat(self, group_id: str, member_id: str, now_s: float) -> None:
        """Record a member that this replica heard."""
        self._record((group_id, member_id), now_s)
        if len(self._fresh) < self._tracked_max:
            self._fresh[(group_id, member_id)] = None

    def record_heard_elsewhere(self, heard: Iterable[HeardMember], now_s: float) -> None:
        """Record members that another replica heard."""
        for member in heard:
            self._record((member.group_id, member.member_id), now_s)

    def _record(self, member: Member, now_s: float) -> None:
        active_sequence, _ = self._alive.get(member, (_UNKNOWN, 0.0))
        if active_sequence != _UNKNOWN or len(self._alive) < self._tracked_max:
            self._alive[member] = (active_sequence, now_s)

    def take_fresh(self) -> list[HeardMember]:
        """Members that this replica heard since the last call."""
        fresh, self._fresh = self._fresh, {}
        return [HeardMember(group_id, member_id) for group_id, member_id in fresh]

    def record_message(self, now_s: float) -> None:
        """Record that the bus brought a message of a replica, also if this replica sent it."""
        self._message_s = now_s

    def is_deaf(self, now_s: float) -> bool:
        """Whether the bus brought no message for so long that the silence of members proves nothing."""
        return self._message_s is None or now_s - self._message_s > self._deaf_s

    def restart(self) -> None:
        """Start the timeout of every member again at the next check, because heartbeats may have been missed."""
        self._alive.clear()
        self._since_s = None

    def silent(
        self,
        watched: Iterable[tuple[str, str, int, int, bool]],
        now_s: float,
        applied_s: Callable[[int], float | None] = lambda sequence: None,
    ) -> list[tuple[str, str, int]]:
        """Check the state's members: (group id, member id, active sequence) of those silent for too long.

        A member is alive while it waits for an answer, and when its activity in the journal is applied. `applied_s` is
        this time by the sequence, None if it is not known: then the member counts as alive now.
        """
        if self._since_s is None:
            self._since_s = now_s
        before, self._alive = self._alive, {}
        self.next_due_s = math.inf
        silent = []
        for group_id, member_id, session_timeout_ms, active_sequence, waiting in watched:
            known_sequence, alive_s = before.get((group_id, member_id), (_UNKNOWN, 0.0))
            if waiting:
                alive_s = now_s
            elif known_sequence != active_sequence:
                active_s = applied_s(active_sequence)
                alive_s = now_s if active_s is None else max(alive_s, active_s, self._since_s)
            self._alive[(group_id, member_id)] = (active_sequence, alive_s)
            due_s = alive_s + session_timeout_ms / 1000
            if due_s <= now_s:
                silent.append((group_id, member_id, active_sequence))
            else:
                self.next_due_s = min(self.next_due_s, due_s)
        return silent

"""Which group members were heard from, and which were silent for their whole session time-out (pure)."""

from collections.abc import Iterable

import msgspec

from penstock.contracts.messages import HeardMember

_UNKNOWN = -1  # no sequence of the journal: at the next look the member counts as alive since then

Member = tuple[str, str]  # group id, member id


class LivenessLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How often replicas exchange and judge which members they heard from."""

    tracked_members_max: int = 200_000  # between two looks at the state; far more than all groups have
    share_interval_s: float = 0.5
    sign_interval_s: float = 1.0  # between two messages that show that this replica is alive
    look_interval_s: float = 0.5  # the shortest session time-out is 6 s
    # The process or the journal stood still for longer than this between two looks. Heartbeats may be unread then.
    blind_s: float = 2.0
    heard_per_message_max: int = 1_000  # about 100 KB; with the longest names about 1 MiB, the smallest maximum
    expired_per_request_max: int = 256


LIVENESS_LIMITS = LivenessLimits()


class MemberLiveness:
    """When each watched member was last known to live: heard here or elsewhere, or active in the journal."""

    def __init__(self, limits: LivenessLimits = LIVENESS_LIMITS) -> None:
        self._tracked_max = limits.tracked_members_max
        self._alive: dict[Member, tuple[int, float]] = {}  # -> its active sequence, when it was known to live
        self._fresh: dict[Member, None] = {}

    def __len__(self) -> int:
        """How many members are tracked."""
        return len(self._alive)

    def record_heartbeat(self, group_id: str, member_id: str, now_s: float) -> None:
        """A member was heard here."""
        self._record((group_id, member_id), now_s)
        if len(self._fresh) < self._tracked_max:
            self._fresh[(group_id, member_id)] = None

    def record_heard_elsewhere(self, heard: Iterable[HeardMember], now_s: float) -> None:
        """Another replica heard these members."""
        for member in heard:
            self._record((member.group_id, member.member_id), now_s)

    def _record(self, member: Member, now_s: float) -> None:
        active_sequence, _ = self._alive.get(member, (_UNKNOWN, 0.0))
        if active_sequence != _UNKNOWN or len(self._alive) < self._tracked_max:
            self._alive[member] = (active_sequence, now_s)

    def take_fresh(self) -> list[HeardMember]:
        """Members heard here since the last call."""
        fresh, self._fresh = self._fresh, {}
        return [HeardMember(group_id, member_id) for group_id, member_id in fresh]

    def restart(self) -> None:
        """Heartbeats may have been missed: the time of every member begins again at the next look."""
        self._alive.clear()

    def silent(self, watched: Iterable[tuple[str, str, int, int, bool]], now_s: float) -> list[tuple[str, str, int]]:
        """Look at the state's members: (group id, member id, active sequence) of those silent for too long.

        A member counts as alive now when it is seen for the first time, has been active in the journal since the last
        look, or waits for an answer.
        """
        before, self._alive = self._alive, {}
        silent = []
        for group_id, member_id, session_timeout_ms, active_sequence, waiting in watched:
            known_sequence, alive_s = before.get((group_id, member_id), (_UNKNOWN, 0.0))
            if waiting or known_sequence != active_sequence:
                alive_s = now_s
            self._alive[(group_id, member_id)] = (active_sequence, alive_s)
            if (now_s - alive_s) * 1000 >= session_timeout_ms:
                silent.append((group_id, member_id, active_sequence))
        return silent

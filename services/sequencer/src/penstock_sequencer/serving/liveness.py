"""Who of the group members was heard from, and who was silent for its whole session time-out (pure)."""

from collections.abc import Iterable

from penstock.contracts.messages import HeardMember

NOTED_MAX = 200_000  # members noted between two looks at the state; far more than all groups have
_UNKNOWN = -1  # no sequence of the journal: at the next look the member counts as alive since then

Member = tuple[str, str]  # group id, member id


class Members:
    """When each watched member was last known to live: heard here or elsewhere, or active in the journal."""

    def __init__(self) -> None:
        self._alive: dict[Member, tuple[int, float]] = {}  # -> its active sequence, when it was known to live
        self._fresh: dict[Member, None] = {}

    def note(self, group_id: str, member_id: str, now_s: float) -> None:
        """A member was heard here."""
        self._note((group_id, member_id), now_s)
        if len(self._fresh) < NOTED_MAX:
            self._fresh[(group_id, member_id)] = None

    def take_in(self, heard: Iterable[HeardMember], now_s: float) -> None:
        """Members were heard by another replica."""
        for member in heard:
            self._note((member.group_id, member.member_id), now_s)

    def _note(self, member: Member, now_s: float) -> None:
        active_sequence, _ = self._alive.get(member, (_UNKNOWN, 0.0))
        if active_sequence != _UNKNOWN or len(self._alive) < NOTED_MAX:
            self._alive[member] = (active_sequence, now_s)

    def take_fresh(self) -> list[HeardMember]:
        """Members heard here since the last call."""
        fresh, self._fresh = self._fresh, {}
        return [HeardMember(group_id, member_id) for group_id, member_id in fresh]

    def restart(self) -> None:
        """We may have missed heartbeats: everybody's time begins anew at the next look."""
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

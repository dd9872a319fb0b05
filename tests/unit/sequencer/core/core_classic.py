"""Classic groups in a `World`: short forms of their members' commands."""

from typing import Any

from penstock.contracts.commands import (
    GroupProtocol,
    JoinGroup,
    LeaveGroup,
    LeavingMember,
    MemberAssignment,
    SyncGroup,
)
from penstock.contracts.configs.members import INITIAL_REBALANCE_DELAY, group_config
from penstock.contracts.queries.groups import GroupWaitQuery, HeartbeatQuery
from penstock.contracts.rejections import Rejection
from penstock_sequencer.core import queries
from penstock_sequencer.core.state.cluster import COMPLETING, STABLE
from tests.unit.sequencer.core.core_machine import Machine

INITIAL_DELAY_MS = group_config(INITIAL_REBALANCE_DELAY, {})


class ClassicGroups:
    """Commands of members of the group "g", unless another group is given."""

    def __init__(self, world: Machine) -> None:
        self._world = world

    def join(
        self,
        new_member_id: str = "m1",
        member_id: str = "",
        *,
        group_id: str = "g",
        instance: str | None = None,
        require_known_member: bool = False,
        session_ms: int = 10_000,
        rebalance_ms: int = 60_000,
        kind: str = "consumer",
        protocols: dict[str, bytes] | None = None,
        seen: int = -1,
    ) -> Any:
        offered = {"range": b"meta"} if protocols is None else protocols
        return self._world.do(
            JoinGroup(
                self._world.now_ms,
                group_id,
                member_id,
                new_member_id,
                instance,
                require_known_member,
                "client",
                "/127.0.0.1",
                session_ms,
                rebalance_ms,
                kind,
                [GroupProtocol(name, metadata) for name, metadata in offered.items()],
                seen,
            )
        )

    def sync(
        self,
        member_id: str,
        generation: int,
        assignments: dict[str, bytes] | None = None,
        *,
        instance: str | None = None,
        kind: str | None = "consumer",
        protocol: str | None = "range",
    ) -> Any:
        shares = [MemberAssignment(member, share) for member, share in (assignments or {}).items()]
        return self._world.do(
            SyncGroup(self._world.now_ms, "g", generation, member_id, instance, kind, protocol, shares)
        )

    def leave(self, *members: tuple[str, str | None]) -> list[Rejection]:
        rejections: list[Rejection] = self.leave_seen(*members, seen=-1).rejections
        return rejections

    def leave_seen(self, *members: tuple[str, str | None], seen: int) -> Any:
        """The outcome for a sender that had seen that entry."""
        return self._world.do(LeaveGroup(self._world.now_ms, "g", [LeavingMember(*each) for each in members], seen))

    def wait_outcome(self, kind: str, member_id: str, generation: int) -> Any:
        return queries.group_wait(self._world.state, GroupWaitQuery(0, kind, "g", member_id, generation, 0)).outcome

    def heartbeat(self, member_id: str, generation: int, instance: str | None = None) -> Rejection:
        return queries.heartbeat(self._world.state, HeartbeatQuery(0, "g", generation, member_id, instance)).rejection

    def finish_initial_delay(self) -> None:
        """Let the delay pass, and its one extension for members that joined since."""
        self._world.wait(INITIAL_DELAY_MS)
        self._world.wait(INITIAL_DELAY_MS)
        assert self._world.group().state == COMPLETING

    def stable_group(self, *members: str) -> int:
        """A stable group of dynamic members, the first of them its leader; returns its generation."""
        for member in members:
            self.join(member)
        self.finish_initial_delay()
        generation = self._world.group().generation
        self.sync(members[0], generation, {member: member.encode() for member in members})
        for member in members[1:]:
            self.sync(member, generation)
        assert self._world.group().state == STABLE
        return generation

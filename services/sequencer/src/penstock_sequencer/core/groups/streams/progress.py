"""A member's steps towards its target: give back tasks first, then take tasks that are free.

    RECONCILED, AWAITING -- the member has tasks that its target lacks ---> REVOKING, at its old epoch
    any -- it has nothing to give back, or has given it back ------------> the target's epoch, and the tasks of its
                                                                           target that are free

An active task is free if no member has it. A process holds a task once: as the active task of one of its members, or
as a standby task of one. A member keeps the state of a task that changes between active and standby.
"""

from typing import TypeVar

import msgspec

from penstock.contracts.commands import OwnedTasks, TaskIds
from penstock_sequencer.core.state.consumer_group import AWAITING, RECONCILED, REVOKING
from penstock_sequencer.core.state.streams_group import OwnedActive, StreamsGroup, StreamsMember, Tasks

_Numbers = TypeVar("_Numbers", dict[int, int], list[int])


class Progress(msgspec.Struct, frozen=True):
    """How far a member is on the way to its target."""

    state: int
    epoch: int
    active: OwnedActive
    standby: Tasks
    revoking_active: OwnedActive
    revoking_standby: Tasks


def progress_of(member: StreamsMember) -> Progress:
    """The member's progress now."""
    return Progress(
        member.state, member.epoch, member.active, member.standby, member.revoking_active, member.revoking_standby
    )


def next_progress(group: StreamsGroup, member: StreamsMember, owned: OwnedTasks | None) -> Progress:
    """The progress that the member may make now; `owned` are the tasks that it reports, None for no report."""
    if member.state == RECONCILED and member.epoch == group.assignment_epoch:
        return progress_of(member)
    epoch = member.epoch
    if member.state == REVOKING:
        if not _has_released(owned, member.revoking_active, member.revoking_standby):
            return progress_of(member)
        epoch = min(epoch + 1, group.assignment_epoch)
    return _Step(group, member, owned).progress(epoch)


class _Step:
    """The comparison of a member's tasks with its target."""

    def __init__(self, group: StreamsGroup, member: StreamsMember, owned: OwnedTasks | None) -> None:
        self._group, self._member, self._owned = group, member, owned
        self._is_waiting = False
        self.active: OwnedActive = {}
        self.gained_active: OwnedActive = {}
        self.lost_active: OwnedActive = {}
        self.standby: Tasks = {}
        self.gained_standby: Tasks = {}
        self.lost_standby: Tasks = {}

    def progress(self, epoch: int) -> Progress:
        self._compare_active()
        self._compare_standby()
        must_revoke = bool(self.lost_active or self.lost_standby) and not _has_released(
            self._owned, self.lost_active, self.lost_standby
        )
        self._keep_promoted(granted={} if must_revoke else self.gained_active)
        if must_revoke:
            return Progress(REVOKING, epoch, self.active, self.standby, self.lost_active, self.lost_standby)
        active = {
            subtopology: dict(
                sorted({**self.active.get(subtopology, {}), **self.gained_active.get(subtopology, {})}.items())
            )
            for subtopology in sorted({**self.active, **self.gained_active})
        }
        standby = {
            subtopology: sorted([*self.standby.get(subtopology, ()), *self.gained_standby.get(subtopology, ())])
            for subtopology in sorted({**self.standby, **self.gained_standby})
        }
        state = AWAITING if self._is_waiting else RECONCILED
        return Progress(state, self._group.assignment_epoch, active, standby, {}, {})

    def _compare_active(self) -> None:
        member = self._member
        for subtopology in sorted({**member.active, **member.target_active}):
            has = member.active.get(subtopology, {})
            wanted = dict.fromkeys(member.target_active.get(subtopology, ()))
            kept = {number: epoch for number, epoch in has.items() if number in wanted}
            lost = {number: epoch for number, epoch in has.items() if number not in wanted}
            new = [number for number in wanted if number not in has]
            free = [number for number in new if self._is_active_free(subtopology, number)]
            self._is_waiting = self._is_waiting or len(free) < len(new)
            _put(self.active, subtopology, kept)
            _put(self.lost_active, subtopology, lost)
            _put(self.gained_active, subtopology, dict.fromkeys(free, self._group.assignment_epoch))

    def _compare_standby(self) -> None:
        member = self._member
        for subtopology in sorted({**member.standby, **member.target_standby}):
            # Dicts: a member may have thousands of tasks.
            has = dict.fromkeys(member.standby.get(subtopology, ()))
            wanted = dict.fromkeys(member.target_standby.get(subtopology, ()))
            becomes_active = dict.fromkeys(member.target_active.get(subtopology, ()))
            kept = [number for number in has if number in wanted]
            lost = [number for number in has if number not in wanted and number not in becomes_active]
            new = [number for number in wanted if number not in has]
            free = [number for number in new if self._is_standby_free(subtopology, number)]
            self._is_waiting = self._is_waiting or len(free) < len(new)
            # An active task that becomes a standby task of the same member keeps its state: it is assigned at once.
            active = member.active.get(subtopology, {})
            _put(self.standby, subtopology, sorted([*kept, *(number for number in free if number in active)]))
            _put(self.lost_standby, subtopology, lost)
            _put(self.gained_standby, subtopology, [number for number in free if number not in active])

    def _keep_promoted(self, granted: OwnedActive) -> None:
        """A standby task that is to become active stays a standby task until then."""
        member = self._member
        for subtopology, numbers in member.standby.items():
            becomes_active = dict.fromkeys(member.target_active.get(subtopology, ()))
            waits = [each for each in numbers if each in becomes_active and each not in granted.get(subtopology, {})]
            if waits:
                self.standby[subtopology] = sorted([*self.standby.get(subtopology, ()), *waits])

    def _is_active_free(self, subtopology: str, number: int) -> bool:
        owner = self._group.tables.active_owners.get(subtopology, {}).get(number, self._member.member_id)
        return owner == self._member.member_id and self._standby_owner(subtopology, number) == self._member.member_id

    def _is_standby_free(self, subtopology: str, number: int) -> bool:
        member = self._member
        owner = self._group.tables.active_owners.get(subtopology, {}).get(number, member.member_id)
        if owner != member.member_id and self._group.members[owner].process_id == member.process_id:
            return False
        return self._standby_owner(subtopology, number) == member.member_id

    def _standby_owner(self, subtopology: str, number: int) -> str:
        """The member of this process that has the standby task; this member if none has it."""
        owners = self._group.tables.standby_owners.get(subtopology, {}).get(number, {})
        return owners.get(self._member.process_id, self._member.member_id)


def _put(tasks: dict[str, _Numbers], subtopology: str, numbers: _Numbers) -> None:
    if numbers:
        tasks[subtopology] = numbers


def _has_released(owned: OwnedTasks | None, active: OwnedActive, standby: Tasks) -> bool:
    """Whether the member reports that it has none of these; without a report it still has them."""
    return owned is not None and not (_has_any(owned.active, active) or _has_any(owned.standby, standby))


def _has_any(owned: list[TaskIds], tasks: OwnedActive | Tasks) -> bool:
    found = {subtopology: dict.fromkeys(numbers) for subtopology, numbers in tasks.items()}
    return any(number in found.get(each.subtopology_id, ()) for each in owned for number in each.partitions)


def task_ids(tasks: OwnedActive | Tasks) -> list[TaskIds]:
    """Tasks in the form in which members get them."""
    return [TaskIds(subtopology, list(numbers)) for subtopology, numbers in tasks.items()]

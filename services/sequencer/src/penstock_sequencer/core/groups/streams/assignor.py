"""Kafka's sticky assignor of tasks: members keep their tasks, processes get equal loads.

An active task goes to the member that has it, else to a member with its state: a standby task, or reported offsets.
Other tasks go to the process with the smallest load, and there to the member with the fewest tasks. No step gives a
member more than its part of all tasks, rounded up. Standby tasks follow the same order, and avoid processes that have
the task. The load of a process is its number of tasks for each of its members.
"""

from heapq import heapify, heappop, heappush

import msgspec

from penstock_sequencer.core.state.streams_group import Tasks

_SCALE = 1 << 32  # loads are compared as integers
Task = tuple[str, int]  # subtopology id, partition


class Worker(msgspec.Struct, frozen=True):
    """A member, with the tasks that it has and the offsets up to which it has the state of tasks."""

    process_id: str
    active: Tasks
    standby: Tasks
    offsets: dict[Task, int]


class Assigned(msgspec.Struct, eq=False):
    """The tasks of one member."""

    active: list[Task]
    standby: list[Task]


class _Process(msgspec.Struct, eq=False):
    place: int  # in the order of processes, to break ties
    counts: dict[str, int]  # member id -> number of its tasks
    tasks: dict[Task, None] = {}
    total: int = 0

    @property
    def load(self) -> int:
        return self.total * _SCALE // len(self.counts)


class _Quota(msgspec.Struct, eq=False):
    """How many tasks each member may have; it is computed again for the rest whenever a member has so many."""

    tasks: int
    members: int

    @property
    def each(self) -> int:
        return -(-self.tasks // self.members) if self.members else 0

    def take(self, count: int) -> None:
        if count == self.each:
            self.members -= 1
            self.tasks -= count


class _Assignment:
    """The work on one assignment."""

    def __init__(self, workers: dict[str, Worker], active_total: int, total: int) -> None:
        self.workers = workers
        self.assigned = {member_id: Assigned([], []) for member_id in workers}
        self.processes: dict[str, _Process] = {}
        for member_id, worker in workers.items():
            process = self.processes.get(worker.process_id)
            if process is None:
                process = self.processes[worker.process_id] = _Process(len(self.processes), {})
            process.counts[member_id] = 0
        self.active_quota = _Quota(active_total, len(workers))
        self.quota = _Quota(total, len(workers))

    def process_of(self, member_id: str) -> _Process:
        return self.processes[self.workers[member_id].process_id]

    def count_of(self, member_id: str) -> int:
        return self.process_of(member_id).counts[member_id]

    def give(self, member_id: str, task: Task, *, is_active: bool) -> None:
        process = self.process_of(member_id)
        process.tasks[task] = None
        process.total += 1
        process.counts[member_id] += 1
        count = process.counts[member_id]
        if is_active:
            self.assigned[member_id].active.append(task)
            self.active_quota.take(count)
        else:
            self.assigned[member_id].standby.append(task)
        self.quota.take(count)

    def least_loaded(self, candidates: list[str], task: Task | None) -> str | None:
        """The member with the smallest load among these; processes that have `task` are left out."""
        found: str | None = None
        best_load = best_count = 0
        for member_id in candidates:
            process = self.process_of(member_id)
            if task is not None and task in process.tasks:
                continue
            load, count = process.load, process.counts[member_id]
            if found is None or (load < best_load and count < best_count):
                found, best_load, best_count = member_id, load, count
        return found


class _ByLoad:
    """All processes and their members, the smallest load first; only tasks that it places may change loads."""

    def __init__(self, work: _Assignment) -> None:
        self._work = work
        self._processes = [(each.load, each.place, name) for name, each in work.processes.items()]
        heapify(self._processes)
        self._members: dict[str, list[tuple[int, int, str]]] = {}

    def place(self, task: Task, *, is_active: bool) -> bool:
        """Give the task to a process that does not have it; False if all have it."""
        passed = []
        while self._processes:
            entry = heappop(self._processes)
            process = self._work.processes[entry[2]]
            if task not in process.tasks:
                break
            passed.append(entry)
        else:
            self._processes = passed  # ascending, so it is a heap
            return False
        self._work.give(self._next_member(entry[2], process), task, is_active=is_active)
        for each in passed:
            heappush(self._processes, each)
        heappush(self._processes, (process.load, process.place, entry[2]))
        return True

    def _next_member(self, name: str, process: _Process) -> str:
        members = self._members.get(name)
        if members is None:
            members = [(count, place, member_id) for place, (member_id, count) in enumerate(process.counts.items())]
            heapify(members)
            self._members[name] = members
        count, place, member_id = heappop(members)
        heappush(members, (count + 1, place, member_id))
        return member_id


def assign(
    counts: dict[str, int], stateful: dict[str, None], workers: dict[str, Worker], standby_replicas: int
) -> dict[str, Assigned]:
    """The tasks of each member; `counts` has the number of tasks of each subtopology."""
    if not workers:
        return {}
    tasks = [(subtopology, number) for subtopology, count in counts.items() for number in range(count)]
    kept = [task for task in tasks if task[0] in stateful] if standby_replicas else []
    work = _Assignment(workers, len(tasks), len(tasks) + len(kept) * standby_replicas)
    former_active = {
        (subtopology, number): member_id
        for member_id, worker in workers.items()
        for subtopology, numbers in worker.active.items()
        for number in numbers
    }
    rest = _keep_active(work, tasks, former_active)
    former_standby = _former_standby(workers, dict.fromkeys([*rest, *kept]))
    _assign_rest(work, rest, former_standby)
    if kept:
        _assign_standby(work, kept, standby_replicas, former_active, former_standby)
    return work.assigned


def _former_standby(workers: dict[str, Worker], tasks: dict[Task, None]) -> dict[Task, list[str]]:
    """The members with state of each of these tasks: first those with a standby task, the largest offset first.

    A member may report many offsets, also of tasks that do not exist.
    """
    ranked: dict[Task, list[tuple[int, int, int, str]]] = {}
    for place, (member_id, worker) in enumerate(workers.items()):
        standby = {(subtopology, each): None for subtopology, numbers in worker.standby.items() for each in numbers}
        for task in standby:
            if task in tasks:
                ranked.setdefault(task, []).append((0, -worker.offsets.get(task, 0), place, member_id))
        for task, offset in worker.offsets.items():
            if task in tasks and task not in standby:
                ranked.setdefault(task, []).append((1, -offset, place, member_id))
    return {task: [each[3] for each in sorted(rows)] for task, rows in ranked.items()}


def _keep_active(work: _Assignment, tasks: list[Task], former_active: dict[Task, str]) -> list[Task]:
    """Give active tasks to the members that have them; returns the other ones."""
    rest: list[Task] = []
    for task in sorted(tasks, key=lambda each: (each[1], each[0])):
        member_id = former_active.get(task)
        if member_id is not None and work.count_of(member_id) < work.active_quota.each:
            work.give(member_id, task, is_active=True)
        else:
            rest.append(task)
    return rest


def _assign_rest(work: _Assignment, rest: list[Task], former_standby: dict[Task, list[str]]) -> None:
    """Give the other active tasks to members with their state, or else by load."""
    open_tasks: list[Task] = []
    for task in rest:
        member_id = work.least_loaded(former_standby.get(task, []), None)
        if member_id is not None and work.count_of(member_id) < work.active_quota.each:
            work.give(member_id, task, is_active=True)
        else:
            open_tasks.append(task)
    by_load = _ByLoad(work)
    for task in sorted(open_tasks):
        by_load.place(task, is_active=True)


def _assign_standby(
    work: _Assignment,
    tasks: list[Task],
    replicas: int,
    former_active: dict[Task, str],
    former_standby: dict[Task, list[str]],
) -> None:
    open_tasks: list[tuple[Task, int]] = []
    for task in sorted(tasks, key=lambda each: (each[1], each[0]), reverse=True):
        for placed in range(replicas):
            member_id = former_active.get(task)
            if member_id is None or task in work.process_of(member_id).tasks or not _has_room(work, member_id):
                member_id = work.least_loaded(former_standby.get(task, []), task)
            if member_id is None or not _has_room(work, member_id):
                open_tasks.append((task, replicas - placed))
                break
            work.give(member_id, task, is_active=False)
    by_load = _ByLoad(work)
    for task, missing in sorted(open_tasks, reverse=True):
        for _ in range(missing):
            if not by_load.place(task, is_active=False):
                break


def _has_room(work: _Assignment, member_id: str) -> bool:
    return work.count_of(member_id) < work.quota.each

"""Task leases: which janitor does which task, and when it was done last, so that several janitors divide the work.

Task leases only divide the work. Correctness does not depend on them: a command of a janitor without a lease passes the
same checks of the state as any other.
"""

from penstock.contracts.commands import NO_TASK, TASKS, Done, EndTaskLease, Rejected, TakeTaskLease, TaskLeaseTaken
from penstock.contracts.rejections import Rejection
from penstock_sequencer.core.state.cluster import Changes, Lease, State
from penstock_sequencer.core.state.limits import INTEGER_MAX, MaintenanceLimits


def take_task_lease(state: State, command: TakeTaskLease, changes: Changes) -> TaskLeaseTaken | Rejected:
    """Lease to the holder the due task that was done longest ago; a task that it has already comes first.

    So a command that is sent again takes no second task.
    """
    validation_error = _validation_error(command, state.limits.maintenance)
    if validation_error is not None:
        return validation_error
    _remove_leases(state)
    number = _task_of(state, command)
    if number == NO_TASK:
        number, due_ms = _most_due(state, command)
        if due_ms > state.clock_ms or command.number != NO_TASK:
            return TaskLeaseTaken(NO_TASK, state.clock_ms, due_ms)
    state.task_leases[number] = Lease(command.holder, state.clock_ms + command.lease_ms)
    return TaskLeaseTaken(number, state.clock_ms)


def end_task_lease(state: State, command: EndTaskLease, changes: Changes) -> Done:
    """End the holder's lease of the task; if the task is done, its period begins."""
    if _is_holders(state, command.number, command.holder):
        del state.task_leases[command.number]
        if command.done:
            state.tasks_ended_ms[command.number] = state.clock_ms
    return Done()


def _task_of(state: State, command: TakeTaskLease) -> int:
    """The task that the holder has already: the one that it names, or else the first in its range."""
    held = [number for number, lease in state.task_leases.items() if lease.holder == command.holder]
    if command.number != NO_TASK:
        return command.number if command.number in held else NO_TASK
    return min((number for number in held if command.first <= number < command.stop), default=NO_TASK)


def _most_due(state: State, command: TakeTaskLease) -> tuple[int, int]:
    """The free task that was done longest ago, and when it is due or another task may become free."""
    ended_ms = state.tasks_ended_ms[command.first : command.stop]
    free_ms = INTEGER_MAX
    for number, lease in state.task_leases.items():
        if command.first <= number < command.stop:
            ended_ms[number - command.first] = INTEGER_MAX  # leased, so not free
            free_ms = min(free_ms, lease.until_ms)
    longest_ago_ms = min(ended_ms)
    if longest_ago_ms == INTEGER_MAX:
        return NO_TASK, free_ms
    due_ms = longest_ago_ms + command.period_ms if longest_ago_ms else 0
    return command.first + ended_ms.index(longest_ago_ms), min(due_ms, free_ms)


def _is_holders(state: State, number: int, holder: str) -> bool:
    lease = state.task_leases.get(number)
    return lease is not None and lease.holder == holder


def _remove_leases(state: State) -> None:
    """Remove the task leases that have ended; at most TASKS are checked."""
    over = [number for number, lease in state.task_leases.items() if lease.until_ms <= state.clock_ms]
    for number in over:
        del state.task_leases[number]


def _validation_error(command: TakeTaskLease, limits: MaintenanceLimits) -> Rejected | None:
    if not 0 < len(command.holder) <= limits.lease_names_length_max:
        return Rejected(Rejection.INVALID_REQUEST, f"a name of {len(command.holder)} characters")
    if not 0 <= command.first < command.stop <= TASKS:
        return Rejected(Rejection.INVALID_REQUEST, f"there are no tasks from {command.first} to before {command.stop}")
    is_good_period = 0 <= command.period_ms <= limits.task_period_max_ms
    if not is_good_period or not 0 < command.lease_ms <= limits.task_lease_max_ms:
        return Rejected(Rejection.INVALID_REQUEST, f"a lease of {command.lease_ms} ms every {command.period_ms} ms")
    return None

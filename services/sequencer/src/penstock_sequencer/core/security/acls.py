"""Access control lists: bindings that are added one by one, and removed by filters.

As with users, the sender of a change must have seen the last change, unless nothing would change.
"""

from itertools import chain

from penstock.contracts.acls import AclBinding, AclFilter, matches, only_binding
from penstock.contracts.commands import AclsDeleted, CreateAcls, DeleteAcls, PerItem, Rejected
from penstock.contracts.rejections import Rejection
from penstock.contracts.security_rules import binding_validation_error
from penstock_sequencer.core.security.queries import binding_bytes
from penstock_sequencer.core.state.cluster import Changes, State

_STALE = Rejected(Rejection.STALE, "users or access control lists have been changed since")


def create_acls(state: State, command: CreateAcls, changes: Changes) -> PerItem | Rejected:
    """Add the valid bindings that do not exist."""
    outcome, new = _created(state, command)
    if new:
        state.bindings |= new
        state.security_altered_sequence = state.sequence
    return outcome


def preview_create(state: State, command: CreateAcls) -> PerItem | Rejected | None:
    """The outcome if no binding would be accepted, else None."""
    outcome, _ = _created(state, command)
    return outcome if isinstance(outcome, Rejected) or all(outcome.rejections) else None


def delete_acls(state: State, command: DeleteAcls, changes: Changes) -> AclsDeleted | Rejected:
    """Remove the bindings that the filters match."""
    outcome = _deleted(state, command)
    if isinstance(outcome, AclsDeleted) and any(outcome.deleted):
        for binding in chain.from_iterable(outcome.deleted):
            state.bindings.pop(binding, None)  # several filters may match it
        state.security_altered_sequence = state.sequence
    return outcome


def preview_delete(state: State, command: DeleteAcls) -> Rejected | None:
    """The outcome if the whole command would be rejected, else None."""
    outcome = _deleted(state, command)
    return outcome if isinstance(outcome, Rejected) else None


def _created(state: State, command: CreateAcls) -> tuple[PerItem | Rejected, dict[AclBinding, None]]:
    """The outcome, and the bindings to add."""
    limits = state.limits.security
    if len(command.bindings) > limits.bindings_created_max:
        reason = f"a request creates at most {limits.bindings_created_max} access control list entries"
        return Rejected(Rejection.INVALID_REQUEST, reason), {}
    are_invalid = [binding_validation_error(each) != "" for each in command.bindings]
    new = {
        each: None
        for each, is_invalid in zip(command.bindings, are_invalid, strict=True)
        if not is_invalid and each not in state.bindings
    }
    if new and 0 <= command.seen_sequence < state.security_altered_sequence:
        return _STALE, {}
    if new and len(state.bindings) + len(new) > limits.bindings_max:
        reason = f"the cluster may have {limits.bindings_max} access control list entries"
        return Rejected(Rejection.POLICY_VIOLATION, reason), {}
    return PerItem([Rejection.INVALID_REQUEST if each else Rejection.NONE for each in are_invalid]), new


def _deleted(state: State, command: DeleteAcls) -> AclsDeleted | Rejected:
    limits = state.limits.security
    compared = sum(only_binding(each) is None for each in command.filters) * len(state.bindings)
    if len(command.filters) > limits.filters_max or compared > limits.bindings_compared_max:
        reason = "too many filters that can match several entries" if compared else "too many filters"
        return Rejected(Rejection.INVALID_REQUEST, f"{reason}: send them in several requests")
    deleted: list[list[AclBinding]] = []
    count, left_bytes = 0, state.limits.answers.listed_bytes_max
    for wanted in command.filters:
        found = _matching(state, wanted)
        count += len(found)
        if count <= limits.bindings_deleted_max:
            left_bytes -= sum(map(binding_bytes, found))
        if count > limits.bindings_deleted_max or left_bytes < 0:
            reason = f"Cannot remove more than {limits.bindings_deleted_max} acls in a single delete operation"
            return Rejected(Rejection.INVALID_REQUEST, f"{reason}, and fewer if their names are long.")
        deleted.append(found)
    if any(deleted) and 0 <= command.seen_sequence < state.security_altered_sequence:
        return _STALE
    return AclsDeleted(deleted)


def _matching(state: State, wanted: AclFilter) -> list[AclBinding]:
    only = only_binding(wanted)
    if only is not None:
        return [only] if only in state.bindings else []
    return [each for each in state.bindings if matches(wanted, each)]

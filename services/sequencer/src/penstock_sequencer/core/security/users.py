"""Users: names with SCRAM verifiers. A user without a verifier does not exist.

The sender of a change must have seen the last change of users or bindings (`seen_sequence`), unless nothing would
change. A late copy of a command must not bring back an old password.
"""

from penstock.contracts.commands import AlterScramCredentials, PerItem, Rejected, ScramMechanism, ScramVerifier
from penstock.contracts.rejections import Rejection
from penstock.contracts.security_rules import user_validation_error, verifier_validation_error
from penstock_sequencer.core.state.cluster import Changes, State

Verifiers = tuple[ScramVerifier, ...]


def alter_scram_credentials(state: State, command: AlterScramCredentials, changes: Changes) -> PerItem | Rejected:
    """Change the verifiers of all users without a rejected item."""
    outcome, altered = _altered(state, command)
    for name, verifiers in altered.items():
        if verifiers:
            state.users[name] = verifiers
        else:
            del state.users[name]
    if altered:
        state.security_altered_sequence = state.sequence
    return outcome


def preview_scram_credentials(state: State, command: AlterScramCredentials) -> PerItem | Rejected | None:
    """The outcome if nothing of the command would be accepted, else None."""
    outcome, _ = _altered(state, command)
    return outcome if isinstance(outcome, Rejected) or all(outcome.rejections) else None


def _altered(state: State, command: AlterScramCredentials) -> tuple[PerItem | Rejected, dict[str, Verifiers]]:
    """The outcome, and the verifiers of each user that changes, empty if the user ends."""
    limits = state.limits.security
    if len(command.upsertions) + len(command.deletions) > limits.scram_items_max:
        reason = f"a request changes at most {limits.scram_items_max} credentials"
        return Rejected(Rejection.INVALID_REQUEST, reason), {}
    rejections = _rejections(state, command)
    names = [each.user for each in command.upsertions] + [each.user for each in command.deletions]
    outcome = PerItem([rejections.get(name, Rejection.NONE) for name in names])
    altered = _accepted(state, command, rejections)
    if altered and 0 <= command.seen_sequence < state.security_altered_sequence:
        return Rejected(Rejection.STALE, "users or access control lists have been changed since"), {}
    new = sum(name not in state.users for name in altered)
    gone = sum(not verifiers for verifiers in altered.values())
    if new and len(state.users) + new - gone > limits.users_max:
        return Rejected(Rejection.POLICY_VIOLATION, f"the cluster may have {limits.users_max} users"), {}
    return outcome, altered


def _rejections(state: State, command: AlterScramCredentials) -> dict[str, Rejection]:
    """The rejection of each user with an invalid item: the first one found, the deletions before the upsertions."""
    rejections: dict[str, Rejection] = {}
    seen: dict[tuple[str, ScramMechanism], None] = {}
    for deletion in command.deletions:
        name, place = deletion.user, (deletion.user, deletion.mechanism)
        if user_validation_error(name):
            rejections.setdefault(name, Rejection.UNACCEPTABLE_CREDENTIAL)
        elif all(each.mechanism != deletion.mechanism for each in state.users.get(name, ())):
            rejections.setdefault(name, Rejection.RESOURCE_NOT_FOUND)
        elif place in seen:
            rejections.setdefault(name, Rejection.DUPLICATE_RESOURCE)
        seen[place] = None
    for upsertion in command.upsertions:
        name, place = upsertion.user, (upsertion.user, upsertion.verifier.mechanism)
        if user_validation_error(name) or verifier_validation_error(upsertion.verifier):
            rejections.setdefault(name, Rejection.UNACCEPTABLE_CREDENTIAL)
        elif place in seen:
            rejections.setdefault(name, Rejection.DUPLICATE_RESOURCE)
        seen[place] = None
    return rejections


def _accepted(state: State, command: AlterScramCredentials, rejections: dict[str, Rejection]) -> dict[str, Verifiers]:
    """The verifiers of the users that the accepted items change."""
    altered: dict[str, Verifiers] = {}
    for deletion in command.deletions:
        if deletion.user not in rejections:
            altered[deletion.user] = _without(state, altered, deletion.user, deletion.mechanism)
    for upsertion in command.upsertions:
        if upsertion.user not in rejections:
            others = _without(state, altered, upsertion.user, upsertion.verifier.mechanism)
            altered[upsertion.user] = tuple(sorted((*others, upsertion.verifier), key=lambda each: each.mechanism))
    return {name: verifiers for name, verifiers in altered.items() if verifiers != state.users.get(name)}


def _without(state: State, altered: dict[str, Verifiers], name: str, mechanism: ScramMechanism) -> Verifiers:
    verifiers = altered.get(name, state.users.get(name, ()))
    return tuple(each for each in verifiers if each.mechanism != mechanism)

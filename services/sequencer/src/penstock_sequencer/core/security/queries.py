"""The query of all users and bindings, in pages that fit a message."""

from itertools import islice

from penstock.contracts.acls import AclBinding
from penstock.contracts.queries.security import SecurityQuery, SecurityView, User
from penstock_sequencer.core.state.cluster import State
from penstock_sequencer.core.state.pages import NUMBER_BYTES, text_bytes


def security(state: State, query: SecurityQuery) -> SecurityView:
    """The page that begins after `query.after` items; the first page if the state is not that of earlier pages."""
    limits = state.limits.answers
    altered = state.security_altered_sequence
    after = max(query.after, 0) if query.altered_sequence == altered else 0
    users: list[User] = []
    bindings: list[AclBinding] = []
    left = min(limits.names_listed_max, state.limits.security.items_listed_max)
    left_bytes = limits.listed_bytes_max
    if after < len(state.users):
        for name in sorted(state.users)[after:]:
            if left <= 0 or left_bytes <= 0:
                return SecurityView(state.sequence, altered, users, bindings, is_last=False)
            user = User(name, list(state.users[name]))
            users.append(user)
            left, left_bytes = left - 1, left_bytes - user_bytes(user)
    for binding in islice(state.bindings, max(after - len(state.users), 0), None):
        if left <= 0 or left_bytes <= 0:
            return SecurityView(state.sequence, altered, users, bindings, is_last=False)
        bindings.append(binding)
        left, left_bytes = left - 1, left_bytes - binding_bytes(binding)
    return SecurityView(state.sequence, altered, users, bindings)


def user_bytes(user: User) -> int:
    """The size of a user in an answer, or a little more."""
    verifiers = (len(each.salt) + len(each.stored_key) + len(each.server_key) for each in user.verifiers)
    return text_bytes(user.name) + sum(5 * NUMBER_BYTES + length for length in verifiers)


def binding_bytes(binding: AclBinding) -> int:
    """The size of a binding in an answer, or a little more."""
    return 5 * NUMBER_BYTES + sum(map(text_bytes, (binding.name, binding.principal, binding.host)))

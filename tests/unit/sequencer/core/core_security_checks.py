"""Checks of the invariants of users and access control lists."""

from penstock.contracts.security_rules import (
    binding_validation_error,
    user_validation_error,
    verifier_validation_error,
)
from penstock_sequencer.core.state.cluster import State


def check_security(state: State) -> None:
    """Each user has valid verifiers of different mechanisms, each binding is valid, and limits hold."""
    for name, verifiers in state.users.items():
        assert not user_validation_error(name)
        mechanisms = [each.mechanism for each in verifiers]
        assert mechanisms
        assert mechanisms == sorted(set(mechanisms))
        assert not any(map(verifier_validation_error, verifiers))
    assert not any(map(binding_validation_error, state.bindings))
    assert len(state.users) <= state.limits.security.users_max
    assert len(state.bindings) <= state.limits.security.bindings_max
    assert state.security_altered_sequence <= state.sequence
    assert state.security_altered_sequence or not (state.users or state.bindings)


def check_tokens(state: State) -> None:
    """Tokens are in the order of their changes, their times are in order, and limits hold."""
    altered = [each.altered_sequence for each in state.tokens.values()]
    assert altered == sorted(altered)
    assert not altered or 0 < altered[-1] <= state.tokens_altered_sequence
    assert state.tokens_altered_sequence <= state.sequence
    assert len(state.tokens) <= state.limits.security.tokens_max
    for token_id, token in state.tokens.items():
        assert token.token_id == token_id
        assert token.issued_ms <= token.max_ms
        assert token.expiry_ms <= token.max_ms
        assert state.first_expiry_ms <= token.expiry_ms
        assert not token.is_revoked or token.expiry_ms <= state.clock_ms

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

"""Delegation tokens (KIP-48): the commands that create, renew and expire them, the query, and their removal.

`state.tokens` is in the order in which tokens were changed, so that gateways query only the changed ones. A token that
has expired or was revoked stays for `token_memory_ms`. Meanwhile gateways learn of a revocation, and a late copy of
the command that made the token finds it. Later copies are too old.
"""

from itertools import takewhile

import msgspec

from penstock.contracts.commands import (
    CreateToken,
    DelegationToken,
    ExpireToken,
    Rejected,
    RenewToken,
    TokenCreated,
    TokenExpiry,
)
from penstock.contracts.queries.delegation_tokens import TokensQuery, TokensView
from penstock.contracts.rejections import Rejection
from penstock.contracts.security_rules import token_validation_error
from penstock_sequencer.core.state.cluster import Changes, State
from penstock_sequencer.core.state.limits import CLOCK_MS_MAX
from penstock_sequencer.core.state.pages import NUMBER_BYTES, text_bytes


def create_token(state: State, command: CreateToken, changes: Changes) -> TokenCreated | Rejected:
    """Add the token, unless it exists."""
    created = _created(state, command)
    if isinstance(created, Rejected):
        return created
    if created.token_id not in state.tokens:
        _set(state, created)
    return TokenCreated(created)


def preview_create_token(state: State, command: CreateToken) -> Rejected | None:
    """The outcome if no token would be created, else None."""
    created = _created(state, command)
    return created if isinstance(created, Rejected) else None


def renew_token(state: State, command: RenewToken, changes: Changes) -> TokenExpiry | Rejected:
    """Move the token's expiry."""
    token = _found(state, command)
    if isinstance(token, Rejected):
        return token
    expiry_ms = min(token.max_ms, state.clock_ms + _bounded(state, command.lifetime_ms))
    _set(state, msgspec.structs.replace(token, expiry_ms=expiry_ms, altered_sequence=state.sequence))
    return TokenExpiry(expiry_ms)


def expire_token(state: State, command: ExpireToken, changes: Changes) -> TokenExpiry | Rejected:
    """Move the token's expiry, or revoke it."""
    token = _found(state, command)
    if isinstance(token, Rejected):
        return token
    if token.is_revoked:  # by another copy of this command
        return TokenExpiry(token.expiry_ms)
    is_revoked = command.lifetime_ms < 0
    expiry_ms = min(token.max_ms, state.clock_ms + _bounded(state, command.lifetime_ms))
    _set(
        state,
        msgspec.structs.replace(token, expiry_ms=expiry_ms, altered_sequence=state.sequence, is_revoked=is_revoked),
    )
    return TokenExpiry(expiry_ms)


def preview_change_token(state: State, command: RenewToken | ExpireToken) -> Rejected | None:
    """The outcome if the token would not change, else None."""
    token = _found(state, command)
    return token if isinstance(token, Rejected) else None


def remove_expired_tokens(state: State) -> None:
    """Remove the tokens that expired long ago. The walk over 10,000 is 1 to 3 ms, and rarely needed."""
    before_ms = state.clock_ms - state.limits.security.token_memory_ms
    if before_ms < state.first_expiry_ms:
        return
    for token in [each for each in state.tokens.values() if each.expiry_ms <= before_ms]:
        del state.tokens[token.token_id]
    state.first_expiry_ms = min((each.expiry_ms for each in state.tokens.values()), default=state.clock_ms)


def delegation_tokens(state: State, query: TokensQuery) -> TokensView:
    """The tokens that were changed after the query's entry; all tokens if the state has not come so far."""
    is_whole = not 0 < query.known_sequence <= state.tokens_altered_sequence
    known = 0 if is_whole else query.known_sequence
    newest_first = takewhile(lambda each: each.altered_sequence > known, reversed(state.tokens.values()))
    changed = list(newest_first)[::-1]
    left, left_bytes = state.limits.security.items_listed_max, state.limits.answers.listed_bytes_max
    page: list[DelegationToken] = []
    for token in changed:
        is_cut = left <= 0 or left_bytes <= 0
        if is_cut and token.altered_sequence > page[-1].altered_sequence:  # no page ends inside an entry
            return TokensView(state.sequence, state.tokens_altered_sequence, page, is_whole, is_last=False)
        page.append(token)
        left, left_bytes = left - 1, left_bytes - token_bytes(token)
    return TokensView(state.sequence, state.tokens_altered_sequence, page, is_whole)


def token_bytes(token: DelegationToken) -> int:
    """The size of a token in an answer, or a little more."""
    texts = (token.token_id, token.key_id, token.owner, token.requester, *token.renewers)
    return 8 * NUMBER_BYTES + sum(map(text_bytes, texts))


def _created(state: State, command: CreateToken) -> DelegationToken | Rejected:
    """The token of the command: the one that exists, or the one to add."""
    limits = state.limits.security
    found = state.tokens.get(command.token_id)
    if found is not None:
        is_same = (found.owner, found.requester) == (command.owner, command.requester)
        return found if is_same else Rejected(Rejection.DUPLICATE_RESOURCE, "the token id is in use")
    reason = token_validation_error(command)
    if reason:
        return Rejected(Rejection.INVALID_REQUEST, reason)
    now_ms = _clock_ms(state, command)
    if command.now_ms + limits.token_memory_ms <= now_ms:
        return Rejected(Rejection.STALE, "the command is too old, or the clock of its sender is slow")
    if len(state.tokens) >= limits.tokens_max:
        return Rejected(Rejection.POLICY_VIOLATION, f"the cluster may have {limits.tokens_max} delegation tokens")
    own = sum(each.requester == command.requester for each in state.tokens.values())
    if own >= limits.tokens_per_requester_max:
        reason = f"a user may request {limits.tokens_per_requester_max} delegation tokens"
        return Rejected(Rejection.POLICY_VIOLATION, reason)
    max_ms = now_ms + _bounded(state, command.max_lifetime_ms)
    expiry_ms = min(max_ms, now_ms + _bounded(state, command.lifetime_ms))
    users = (command.owner, command.requester, command.renewers)
    return DelegationToken(command.token_id, command.key_id, *users, now_ms, expiry_ms, max_ms, state.sequence)


def _found(state: State, command: RenewToken | ExpireToken) -> DelegationToken | Rejected:
    """The token to change; a revoked one only for a late copy of the command that revoked it."""
    token = state.tokens.get(command.token_id)
    if token is None:
        return Rejected(Rejection.TOKEN_NOT_FOUND)
    has_changed = 0 <= command.seen_sequence < token.altered_sequence
    if token.is_revoked:
        is_copy = has_changed and isinstance(command, ExpireToken) and command.lifetime_ms < 0
        return token if is_copy else Rejected(Rejection.TOKEN_NOT_FOUND)
    if token.expiry_ms <= _clock_ms(state, command):
        return Rejected(Rejection.TOKEN_EXPIRED)
    if command.user is not None and command.user != token.owner and command.user not in token.renewers:
        return Rejected(Rejection.TOKEN_OWNER_MISMATCH)
    if has_changed:
        return Rejected(Rejection.STALE, "the delegation token has been changed since")
    return token


def _clock_ms(state: State, command: CreateToken | RenewToken | ExpireToken) -> int:
    """The machine's clock when it applies the command. A preview comes before."""
    return max(state.clock_ms, command.now_ms) if command.now_ms <= CLOCK_MS_MAX else state.clock_ms


def _bounded(state: State, lifetime_ms: int) -> int:
    return max(0, min(lifetime_ms, state.limits.security.token_lifetime_max_ms))


def _set(state: State, token: DelegationToken) -> None:
    """Put a new or changed token behind all others."""
    state.tokens.pop(token.token_id, None)
    state.tokens[token.token_id] = token
    state.tokens_altered_sequence = state.sequence
    state.first_expiry_ms = min(state.first_expiry_ms, token.expiry_ms)

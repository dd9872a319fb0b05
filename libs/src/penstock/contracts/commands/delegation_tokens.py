"""The commands that change delegation tokens (KIP-48), with which a client logs in as another principal's deputy.

No command has the password of a token. Gateways compute it from the token's id and their secret key (ADR 0033). Users
are names without "User:".
"""

import msgspec


class DelegationToken(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A token, without its password. Times are in ms since 1970, by the machine's clock."""

    token_id: str
    key_id: str  # names the secret key of gateways with which it was made
    owner: str  # a client that logs in with the token is this user
    requester: str
    renewers: tuple[str, ...]
    issued_ms: int
    expiry_ms: int  # from then on it is void, unless it was renewed before
    max_ms: int  # no renewal goes beyond
    altered_sequence: int  # of the entry that changed it last
    is_revoked: bool = False  # it is void, and stays in the state for a while


class CreateToken(msgspec.Struct, frozen=True, array_like=True, tag=94):
    """Create a token. The outcome is a `TokenCreated`, also if this token exists already.

    `now_ms` must be of the last ten minutes. So a late copy does not bring back a token that was removed.
    """

    now_ms: int
    token_id: str  # random, and used once
    key_id: str
    owner: str
    requester: str
    renewers: tuple[str, ...]
    lifetime_ms: int  # to the first expiry
    max_lifetime_ms: int


class RenewToken(msgspec.Struct, frozen=True, array_like=True, tag=95):
    """Move the expiry of a token to `lifetime_ms` from now, or to its maximum. The outcome is a `TokenExpiry`."""

    now_ms: int
    token_id: str
    user: str  # the owner or a renewer
    lifetime_ms: int
    seen_sequence: int = -1  # newest entry the sender knew when its client asked; -1: not given


class ExpireToken(msgspec.Struct, frozen=True, array_like=True, tag=96):
    """Set the expiry of a token to `lifetime_ms` from now, or revoke it. The outcome is a `TokenExpiry`."""

    now_ms: int
    token_id: str
    user: str | None  # the owner or a renewer; None: an operator, for any token
    lifetime_ms: int  # below 0: revoke it
    seen_sequence: int = -1


class TokenCreated(msgspec.Struct, frozen=True, array_like=True, tag=97):
    """The outcome of `CreateToken`."""

    token: DelegationToken


class TokenExpiry(msgspec.Struct, frozen=True, array_like=True, tag=98):
    """The outcome of `RenewToken` and `ExpireToken`."""

    expiry_ms: int

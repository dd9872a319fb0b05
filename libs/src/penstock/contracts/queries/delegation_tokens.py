"""The query about delegation tokens."""

import msgspec

from penstock.contracts.commands.delegation_tokens import DelegationToken


class TokensQuery(msgspec.Struct, frozen=True, array_like=True):
    """The tokens that were changed after the entry `known_sequence`; all of them after entry 0."""

    min_sequence: int
    known_sequence: int = 0
    fresh: bool = False


class TokensView(msgspec.Struct, frozen=True, array_like=True):
    """One page, in the order in which tokens were changed; the entry `altered_sequence` made the last change.

    The next page is of the tokens changed after the last one here. Revoked tokens are in it for a while, so that each
    reader learns of them. Expired ones are removed without a notice: readers know the expiry.
    """

    sequence: int
    altered_sequence: int  # 0 if there never was a token
    tokens: list[DelegationToken]
    is_whole: bool = False  # it begins with the first of all tokens: the known sequence is not of this state
    is_last: bool = True
    failure: str | None = None

"""The query about users and access control lists."""

import msgspec

from penstock.contracts.acls import AclBinding
from penstock.contracts.commands.security import ScramVerifier


class SecurityQuery(msgspec.Struct, frozen=True, array_like=True):
    """One page of all users and bindings: first the users by name, then the bindings in their order."""

    min_sequence: int
    after: int = 0  # how many users and bindings the sender has of the state at `altered_sequence`
    altered_sequence: int = 0  # the state that earlier pages were of; 0: this is the first page
    fresh: bool = False


class User(msgspec.Struct, frozen=True, array_like=True):
    """A user with its verifiers."""

    name: str
    verifiers: list[ScramVerifier]


class SecurityView(msgspec.Struct, frozen=True, array_like=True):
    """One page; the entry `altered_sequence` made the last change, 0 if there is none.

    If `altered_sequence` is not that of the query, the state has changed since the earlier pages. Then this is the
    first page of the new state.
    """

    sequence: int
    altered_sequence: int
    users: list[User]
    bindings: list[AclBinding]
    is_last: bool = True
    failure: str | None = None

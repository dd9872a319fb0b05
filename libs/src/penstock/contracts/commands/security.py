"""The commands that change users and access control lists."""

import enum

import msgspec

from penstock.contracts.acls import AclBinding, AclFilter


class ScramMechanism(enum.IntEnum):
    """The hash of a SCRAM verifier; the numbers are Kafka's."""

    SHA_256 = 1
    SHA_512 = 2


class ScramVerifier(msgspec.Struct, frozen=True, array_like=True):
    """The part of a password that a server keeps (RFC 5802). It checks a login, and is no password itself."""

    mechanism: ScramMechanism
    iterations: int
    salt: bytes
    stored_key: bytes
    server_key: bytes


class ScramUpsertion(msgspec.Struct, frozen=True, array_like=True):
    """A user's new verifier; the user's verifiers of other mechanisms stay."""

    user: str
    verifier: ScramVerifier


class ScramDeletion(msgspec.Struct, frozen=True, array_like=True):
    """A user's verifier that ends."""

    user: str
    mechanism: ScramMechanism


class AlterScramCredentials(msgspec.Struct, frozen=True, array_like=True, tag=90):
    """Change verifiers. The outcome has one rejection per item: the upsertions in order, then the deletions.

    If one item of a user is rejected, all items of that user are, with the same rejection.
    """

    now_ms: int
    upsertions: list[ScramUpsertion]
    deletions: list[ScramDeletion]
    seen_sequence: int = -1  # newest entry the sender knew when its client asked; -1: not given


class CreateAcls(msgspec.Struct, frozen=True, array_like=True, tag=91):
    """Add bindings; those that exist are no error. The outcome has one rejection per binding.

    Valid bindings are added, even beside invalid ones.
    """

    now_ms: int
    bindings: list[AclBinding]
    seen_sequence: int = -1


class DeleteAcls(msgspec.Struct, frozen=True, array_like=True, tag=92):
    """Remove all bindings that match at least one filter. The outcome has the bindings that each filter matched."""

    now_ms: int
    filters: list[AclFilter]
    seen_sequence: int = -1


class AclsDeleted(msgspec.Struct, frozen=True, array_like=True, tag=93):
    """The outcome of `DeleteAcls`: the bindings that each filter matched, in the order of the filters."""

    deleted: list[list[AclBinding]]

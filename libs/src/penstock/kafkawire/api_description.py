"""The description of one Kafka API: its key, the served versions, and the types of its messages."""

import msgspec


class Api(msgspec.Struct, frozen=True):
    """One API with its first and last served version, and the first version with compact lengths and tagged fields."""

    key: int
    name: str
    min_version: int
    max_version: int
    flexible_since: int  # KIP-482
    request: type[msgspec.Struct]
    response: type[msgspec.Struct]
    share_groups_only: bool = False  # served only with share groups enabled (KIP-932)

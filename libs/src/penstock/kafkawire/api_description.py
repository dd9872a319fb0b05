"""What is said of one Kafka API: its key, the versions served, and the types of its messages."""

import msgspec


class Api(msgspec.Struct, frozen=True):
    """One API: the versions served, both included, and the first one with compact lengths and tagged fields."""

    key: int
    name: str
    min_version: int
    max_version: int
    flexible_since: int  # KIP-482
    request: type[msgspec.Struct]
    response: type[msgspec.Struct]
    share_groups_only: bool = False  # served only where share groups are on (KIP-932)

"""What administrators ask beyond topics and groups; `queries` says what holds for all of them."""

import msgspec

from penstock.contracts.quota_commands import QuotaPart


class ClientQuotasQuery(msgspec.Struct, frozen=True, array_like=True):
    """All client quotas."""

    min_sequence: int
    fresh: bool = False


class QuotaEntry(msgspec.Struct, frozen=True, array_like=True):
    """The quotas of one entity."""

    entity: list[QuotaPart]
    values: dict[str, str]


class ClientQuotasView(msgspec.Struct, frozen=True, array_like=True):
    """Every entity that has quotas; the entry `altered_sequence` changed one of them last, 0 before there is one."""

    sequence: int
    altered_sequence: int
    entries: list[QuotaEntry]
    failure: str | None = None


class LogSizesQuery(msgspec.Struct, frozen=True, array_like=True):
    """How much the logs of topics hold; `names` None is all topics."""

    min_sequence: int
    names: list[str] | None
    fresh: bool = False


class LogSizes(msgspec.Struct, frozen=True, array_like=True):
    """The bytes of a topic's live extents, partition by partition."""

    name: str
    size_bytes: list[int]


class LogSizesView(msgspec.Struct, frozen=True, array_like=True):
    """The topics that exist of those asked for."""

    sequence: int
    topics: list[LogSizes]
    failure: str | None = None

"""Queries about client quotas."""

import msgspec

from penstock.contracts.commands.quotas import QuotaPart


class ClientQuotasQuery(msgspec.Struct, frozen=True, array_like=True):
    """All client quotas."""

    min_sequence: int
    fresh: bool = False


class QuotaEntry(msgspec.Struct, frozen=True, array_like=True):
    """The quotas of one entity."""

    entity: list[QuotaPart]
    values: dict[str, str]


class ClientQuotasView(msgspec.Struct, frozen=True, array_like=True):
    """All entities that have quotas; the entry `altered_sequence` made the last change, 0 if there is none."""

    sequence: int
    altered_sequence: int
    entries: list[QuotaEntry]
    failure: str | None = None

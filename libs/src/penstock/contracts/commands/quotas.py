"""The command that changes client quotas; `commands` offers it."""

import msgspec


class QuotaPart(msgspec.Struct, frozen=True, array_like=True):
    """One part of whom a quota is for; without a name it is everybody who has none of his own."""

    kind: str
    name: str | None = None


class QuotaChange(msgspec.Struct, frozen=True, array_like=True):
    """One quota of an entity; without a value it goes."""

    key: str
    value: str | None = None


class AlterClientQuotas(msgspec.Struct, frozen=True, array_like=True, tag=80):
    """The quotas of one entity change, all that are named or none."""

    now_ms: int
    entity: list[QuotaPart]
    changes: list[QuotaChange]
    seen_sequence: int = -1  # the newest entry that its sender knew of when it was asked; -1: not told

"""The command that changes client quotas."""

import msgspec


class QuotaPart(msgspec.Struct, frozen=True, array_like=True):
    """One part of a quota's entity; without a name it is the default for clients without a quota."""

    kind: str
    name: str | None = None


class QuotaChange(msgspec.Struct, frozen=True, array_like=True):
    """One quota of an entity; without a value the quota is removed."""

    key: str
    value: str | None = None


class AlterClientQuotas(msgspec.Struct, frozen=True, array_like=True, tag=80):
    """Change quotas of one entity: all named changes are made, or none."""

    now_ms: int
    entity: list[QuotaPart]
    changes: list[QuotaChange]
    seen_sequence: int = -1  # newest entry the sender knew when its client asked; -1: not given

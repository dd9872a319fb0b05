"""Checks assignments of replicas as Kafka does, in its words."""

from collections.abc import Collection, Sequence

from penstock.kafkawire.error_codes import ErrorCode
from penstock_gateway.metadata.admin_commands import AdminResult


def assignment_error(replicas: Sequence[Sequence[int]], brokers: Collection[int]) -> AdminResult:
    """The error of the first partition whose replicas cannot be on these brokers."""
    for assigned in replicas:
        reason = _reason(assigned, len(replicas[0]), brokers)
        if reason:
            return ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason
    return ErrorCode.NONE, None


def _reason(assigned: Sequence[int], factor: int, brokers: Collection[int]) -> str:
    if not assigned:
        return "The manual partition assignment includes an empty replica list."
    for place, broker in enumerate(assigned):
        if broker in assigned[:place]:
            return f"The manual partition assignment includes the broker {broker} more than once."
        if broker not in brokers:
            return f"The manual partition assignment includes broker {broker}, but no such broker is registered."
    if len(assigned) != factor:
        return (
            f"The manual partition assignment includes a partition with {len(assigned)} replica(s), but this is not "
            f"consistent with previous partitions, which have {factor} replica(s)."
        )
    return ""

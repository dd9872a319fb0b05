"""The quotas of a virtual cluster: some are checked before a command is journaled, and gateways enforce the others.

Quotas are not part of the state. Replicas may know different ones for some seconds, so the state machine cannot check
them. Requests at the same moment may exceed a quota together, each by its own size.
"""

from collections.abc import Callable, Sequence

from penstock.clusters.record import NO_QUOTAS, ClusterQuotas
from penstock.contracts.commands import CreatePartitions, CreateTopic, Outcome, Rejected
from penstock.contracts.messages import ClusterUse
from penstock.contracts.rejections import Rejection
from penstock_sequencer.core.state.cluster import State
from penstock_sequencer.core.state.limits import DEFAULT_PARTITIONS

ReadQuotas = Callable[[], ClusterQuotas]


def no_quotas() -> ClusterQuotas:
    """For a cluster without quotas."""
    return NO_QUOTAS


def cluster_use(state: State, quotas: ClusterQuotas) -> ClusterUse:
    """The quotas that gateways enforce, and the present use; for the sequencer's presence."""
    return ClusterUse(
        produced_bytes_per_s_max=quotas.produced_bytes_per_s,
        consumed_bytes_per_s_max=quotas.consumed_bytes_per_s,
        stored_bytes_max=quotas.stored_bytes,
        stored_bytes=state.segments.live_bytes_total,
        partitions=state.partition_count,
    )


def over_quota(state: State, commands: Sequence[object], quotas: ClusterQuotas) -> list[Rejected | None]:
    """A rejection for each command that would exceed a quota, None for the others.

    The commands count together. A topic that exists needs no partitions: a repeated command gets its first outcome.
    """
    if not quotas.partitions:
        return [None] * len(commands)
    found: list[Rejected | None] = []
    count = state.partition_count
    for command in commands:
        growth = _growth(state, command)
        is_over = growth > 0 and count + growth > quotas.partitions
        count += 0 if is_over else growth
        found.append(_rejected(state.partition_count, growth, quotas.partitions) if is_over else None)
    return found


def _growth(state: State, command: object) -> int:
    """The number of partitions that the command adds."""
    if isinstance(command, CreateTopic) and command.name not in state.topics:
        return command.partitions if command.partitions >= 0 else DEFAULT_PARTITIONS
    if isinstance(command, CreatePartitions) and (topic := state.topics.get(command.name)) is not None:
        return max(0, command.count - len(topic.partitions))
    return 0


def _rejected(count: int, growth: int, most: int) -> Rejected:
    message = f"The quota of this cluster is {most} partitions; it has {count}, and {growth} more would exceed it."
    return Rejected(Rejection.POLICY_VIOLATION, message)


def merged(refused: Sequence[Rejected | None], outcomes: Sequence[Outcome]) -> list[Outcome]:
    """The outcomes of all commands: rejections, and between them the outcomes of the others, in order."""
    others = iter(outcomes)
    return [each if each is not None else next(others) for each in refused]

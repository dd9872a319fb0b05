"""Keeps the replicas that clients assign to partitions, and describes partitions with them (ADR 0066)."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from penstock.contracts.commands import AlterConfigs, ConfigChange, ConfigOperation
from penstock.contracts.configs.replicas import REPLICAS, decoded_replicas, encoded_replicas
from penstock.contracts.errors import Unavailable
from penstock.contracts.queries.topics import TopicView
from penstock.kafkawire.error_codes import ErrorCode
from penstock_gateway.kafka.error_mapping import ADMINISTRATION_UNAVAILABLE
from penstock_gateway.kafka.parts import HasClock, HasSequencer, HasTopics
from penstock_gateway.metadata.admin_commands import AdminResult, result_of, run_commands
from penstock_gateway.metadata.cluster_view import ClusterView
from penstock_gateway.metadata.config_updates import ATTEMPTS_MAX, STALE


class Placement(NamedTuple):
    """The brokers of one partition; those that the client does not know are offline."""

    partition: int
    replicas: list[int]
    in_sync: list[int]
    offline: list[int]


def placements(view: TopicView, partitions: Iterable[int], cluster: ClusterView) -> Iterator[Placement]:
    """The placement of each partition: as assigned, and at the leader without an assignment."""
    leader_id, brokers = cluster.leader.node_id, {node.node_id for node in cluster.brokers}
    assigned = decoded_replicas(view.configs.get(REPLICAS, ""))
    for partition in partitions:
        replicas = list(assigned[partition] if partition < len(assigned) else ()) or [leader_id]
        in_sync = [each for each in replicas if each in brokers]
        yield Placement(partition, replicas, in_sync, [each for each in replicas if each not in brokers])


class Needs(HasClock, HasSequencer, HasTopics, Protocol):
    """The parts of the gateway that this module uses."""


async def assign(gateway: Needs, name: str, replicas: Mapping[int, Sequence[int]], timeout_ms: int) -> AdminResult:
    """Keep the replicas of these partitions of a topic; other partitions keep theirs."""
    result: AdminResult = (ErrorCode.NONE, None)
    for _ in range(ATTEMPTS_MAX):
        seen_sequence = gateway.sequencer.seen_sequence
        gateway.topics.remove([name])
        try:
            view = (await gateway.topics.find([name])).get(name)
        except Unavailable as error:
            return ADMINISTRATION_UNAVAILABLE, str(error)
        if view is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None
        kept = decoded_replicas(view.configs.get(REPLICAS, ""))
        value = encoded_replicas(
            [replicas.get(number, kept[number] if number < len(kept) else ()) for number in range(view.partitions)]
        )
        change = ConfigChange(REPLICAS, ConfigOperation.SET, value)
        command = AlterConfigs(gateway.clock.now_ms(), name, [change], seen_sequence=seen_sequence)
        (outcome,) = await run_commands(gateway, [command], timeout_ms)
        gateway.topics.remove([name])
        result = result_of(outcome)
        if result[0] != STALE:
            break
    return result

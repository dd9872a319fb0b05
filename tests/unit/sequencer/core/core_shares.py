"""Share groups in a `World`: members that acquire and acknowledge records."""

from typing import Any

from penstock.contracts.commands import (
    AcknowledgedRange,
    AcknowledgeType,
    AlterGroupConfigs,
    ConfigChange,
    ConfigOperation,
    ExpireMember,
    RaiseLevel,
    ShareHeartbeat,
    SharePartition,
    ShareRecords,
)
from penstock.contracts.levels import SHARE_GROUPS_LEVEL, level_of_group_configs
from penstock.contracts.queries.share import (
    ShareHeartbeatQuery,
    ShareOffsetsQuery,
    SharePartitionRef,
    SharePartitionsQuery,
)
from penstock_sequencer.core import queries
from penstock_sequencer.core.state.share_group import ShareGroup, SharePartition as Share
from tests.unit.sequencer.core.core_machine import Machine, batch, topic_id

LOCK_MS = 30_000
Ranges = list[tuple[int, int, int]]  # first and last offset, deliveries


class ShareGroups:
    """Commands of members of the share group "g"; the world must be at the level of share groups."""

    def __init__(self, world: Machine) -> None:
        self._world = world

    def begin(self, *members: str, records: int = 0, **configs: str) -> None:
        """Make topic "t" of one partition with `records` records; the group reads it from the first offset."""
        level = max(SHARE_GROUPS_LEVEL, level_of_group_configs(configs, configs))
        self._world.do(RaiseLevel(self._world.now_ms, level))
        self._world.topic()
        at_once = {"share.auto.offset.reset": "earliest", "share.assignment.interval.ms": "0"}
        self.configure(**(at_once | configs))
        for member in members:
            self.join(member)
        self.write(records)

    def configure(self, group_id: str = "g", **configs: str) -> Any:
        changes = [ConfigChange(name, ConfigOperation.SET, value) for name, value in configs.items()]
        return self._world.do(AlterGroupConfigs(self._world.now_ms, group_id, changes))

    def write(self, records: int, number: int = 1) -> None:
        if records:
            self._world.produce(batch(records), number=number)

    def heartbeat(self, member: str, epoch: int, topics: list[str] | None = None, **changes: Any) -> Any:
        given: dict[str, Any] = {"group_id": "g", "rack_id": None, "client_id": "client", "client_host": "/host"}
        command = ShareHeartbeat(
            self._world.now_ms, member_id=member, member_epoch=epoch, topics=topics, **(given | changes)
        )
        asked = queries.QUERIES["share_heartbeat"](self._world.state, ShareHeartbeatQuery(0, command)).outcome
        return self._world.do(command) if asked is None else asked

    def join(self, member: str, *topics: str, **changes: Any) -> Any:
        return self.heartbeat(member, 0, list(topics or ("t",)), **changes)

    def leave(self, member: str, **changes: Any) -> Any:
        return self.heartbeat(member, -1, **changes)

    def expire(self, member: str) -> Any:
        return self._world.do(ExpireMember(self._world.now_ms, "g", member, self.group.members[member].active_sequence))

    def records(self, member: str, *partitions: SharePartition, records_max: int = 500, **more: Any) -> Any:
        return self._world.do(ShareRecords(self._world.now_ms, "g", member, list(partitions), records_max, **more))

    def acquire(self, member: str, count: int = 500, first: int = 0, last: int = -1, **more: Any) -> Ranges:
        wanted = SharePartition(topic_id(1), 0, [], first, last, count, **more)
        (shared,) = self.records(member, wanted, records_max=count).partitions
        return [(each.first, each.last, each.delivery_count) for each in shared.acquired]

    def acknowledge(self, member: str, first: int, last: int, *types: AcknowledgeType) -> Any:
        acknowledged = [AcknowledgedRange(first, last, bytes(types))]
        return self.records(member, SharePartition(topic_id(1), 0, acknowledged)).partitions[0].acknowledge_rejection

    def windows(self, member: str = "one") -> list[tuple[int, int]]:
        query = SharePartitionsQuery(0, "g", member, [SharePartitionRef(topic_id(1), 0)])
        (view,) = queries.QUERIES["share_partitions"](self._world.state, query).partitions
        return [(each.first, each.last) for each in view.windows]

    def lag(self) -> int:
        (view,) = queries.QUERIES["share_offsets"](self._world.state, ShareOffsetsQuery(0, "g", None)).offsets
        lag: int = view.lag
        return lag

    @property
    def group(self) -> ShareGroup:
        return self._world.state.share_groups["g"]

    @property
    def share(self) -> Share:
        return self.group.partitions[topic_id(1)][0]

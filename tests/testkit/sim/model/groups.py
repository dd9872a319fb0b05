"""Groups: committed offsets, and the members that have joined and not left."""

from dataclasses import dataclass, field

from penstock.contracts.commands import JoinGroup, LeaveGroup
from penstock.contracts.ids import TopicId
from penstock.contracts.rejections import Rejection
from tests.testkit.sim.model.past import Past

NO_OFFSET = -1
IDLE_MS = 600_000  # an empty group without offsets is removed after this time

TopicPartition = tuple[TopicId, int]


@dataclass
class ModelGroup:
    """One group."""

    offsets: dict[TopicPartition, Past[int]] = field(default_factory=dict)  # NO_OFFSET: none is committed
    sent: dict[TopicPartition, int] = field(default_factory=dict)  # -> the entry that sent the present offset
    members: dict[str, None] = field(default_factory=dict)
    instances: dict[str, str] = field(default_factory=dict)  # instance id -> member id
    joined: dict[str, int] = field(default_factory=dict)  # member id -> the entry with its last join
    static_ids: dict[str, str] = field(default_factory=dict)  # member id, also a former one -> instance id
    generation: int = -1  # the newest one that a member knows
    life: int = 0  # a removed group with the same id begins again with the first generation
    joined_ms: int = 0  # the newest join

    def commit(self, key: TopicPartition, offset: int, sequence: int, sent: int) -> None:
        """Store an offset, unless one that was sent later is stored already."""
        if self.sent.get(key, -1) > sent:
            return
        self.offset(key).set(sequence, offset)
        self.sent[key] = sent

    def offset(self, key: TopicPartition) -> Past[int]:
        """The committed offset of a partition."""
        return self.offsets.setdefault(key, Past(NO_OFFSET))

    def remove(self, key: TopicPartition, sequence: int) -> None:
        """Remove an offset."""
        if key in self.offsets:
            self.offsets[key].set(sequence, NO_OFFSET)
            self.sent.pop(key, None)

    def committed(self) -> dict[TopicPartition, int]:
        """The present offsets."""
        return {key: past.now for key, past in self.offsets.items() if past.now != NO_OFFSET}

    def join(self, command: JoinGroup, generation: int, clock_ms: int) -> None:
        """Take a join that was accepted in a generation; a member with the instance id of another one replaces it."""
        if generation < self.generation and clock_ms - self.joined_ms >= IDLE_MS:  # the group was removed
            self.generation, self.life = -1, self.life + 1
        self.joined_ms = clock_ms
        member_id = command.member_id or command.new_member_id
        if command.group_instance_id is not None:
            former = self.instances.get(command.group_instance_id)
            if former is not None:
                self.members.pop(former, None)
            if not command.member_id:
                member_id = command.new_member_id
            self.instances[command.group_instance_id] = member_id
            self.static_ids[member_id] = command.group_instance_id
        self.members[member_id] = None

    def leave(self, command: LeaveGroup, rejections: list[Rejection]) -> None:
        """Remove the members that a command removed."""
        for member, rejection in zip(command.members, rejections, strict=True):
            if rejection is not Rejection.NONE:
                continue
            if member.group_instance_id is not None:
                self.members.pop(self.instances.pop(member.group_instance_id, ""), None)
            self.members.pop(member.member_id, None)

    def identity(self, member_id: str) -> str:
        """The identity of a member. A static one keeps its place in a generation when it returns with another id."""
        return self.static_ids.get(member_id, member_id)

    def wrong_commit(self, generation: int, member_id: str) -> str:
        """Why this member must not commit in this generation."""
        if generation < 0:
            return ""
        if member_id not in self.members:
            return f"{member_id} is no member"
        return "" if generation >= self.generation else f"generation {self.generation} has begun before {generation}"

"""The later parts of the snapshot format, written by name; a part that has its default is not written.

So the state of a cluster below the level of these parts keeps its bytes. Each part is a field of `Later`. Its default
is the value that a state has before the part exists.
"""

from array import array
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from penstock.contracts.acls import AclBinding
from penstock.contracts.commands import DelegationToken, ScramVerifier, Topology
from penstock.contracts.configs.quotas import Entity
from penstock_sequencer.core.groups.assignment.subscriptions import read_matches, written_matches
from penstock_sequencer.core.groups.consumer_group import enter_group
from penstock_sequencer.core.groups.streams.group import enter_group as enter_streams_group
from penstock_sequencer.core.share.group import enter_group as enter_share_group
from penstock_sequencer.core.state.cluster import NOT_NAMED, Group, Member, Partition, Principal, State
from penstock_sequencer.core.state.columns import column_bytes, read_column
from penstock_sequencer.core.state.consumer_group import ConsumerGroup, ConsumerMember
from penstock_sequencer.core.state.group_sizes import members_of
from penstock_sequencer.core.state.share_group import ShareGroup, ShareMember
from penstock_sequencer.core.state.streams_group import StreamsGroup, StreamsMember


class WrittenConsumer(msgspec.Struct, frozen=True):
    """The consumer side of a group, as the first release with consumer groups wrote it."""

    epoch: int
    assignment_epoch: int
    assignor: str
    members: dict[str, ConsumerMember] = {}
    static_members: dict[str, str] = {}
    owners: dict[str, None] = {}  # always empty: derived


class WrittenStreams(msgspec.Struct, frozen=True):
    """The streams side of a group."""

    topology: Topology
    epoch: int
    assignment_epoch: int
    standby_replicas: int
    members: dict[str, StreamsMember]
    static_members: dict[str, str]
    next_target_ms: int
    shutdown_by: str
    endpoint_epoch: int


class GroupLater(msgspec.Struct, frozen=True, omit_defaults=True):
    """The later parts of one group."""

    static_since: dict[str, int] = {}
    emptied_ms: int = -1
    consumer: WrittenConsumer | None = None
    assigned_ms: int = 0
    owner: int = NOT_NAMED
    streams: WrittenStreams | None = None


class Later(msgspec.Struct, frozen=True, omit_defaults=True):
    """The later parts of the state."""

    groups: dict[str, GroupLater] = {}
    client_quotas: list[tuple[Entity, dict[str, str]]] = []
    quotas_altered_sequence: int = 0
    lived_ms: int = 0
    ages: list[tuple[int, int]] = []
    expiry_round: list[str] = []
    departed: list[tuple[str, str, int, int]] = []
    share_groups: list[ShareGroup] = []
    group_configs: dict[str, dict[str, str]] = {}
    group_configs_altered_sequence: int = 0
    uptime_lag_ms: int = 0
    partitions: bytes = b""  # columns of `_PARTITION_NUMBERS` numbers, for partitions since PRODUCERS_LEVEL
    matches: list[tuple[str, bytes]] = []  # (pattern, the topics that match it)
    users: list[tuple[str, tuple[ScramVerifier, ...]]] = []
    bindings: list[AclBinding] = []
    security_altered_sequence: int = 0
    tokens: list[DelegationToken] = []
    tokens_altered_sequence: int = 0
    principals: list[tuple[int, str, int]] = []  # number, name, `evicted_ms`; without ANONYMOUS
    next_principal: int = NOT_NAMED + 1
    unused_principals: list[int] = []
    transaction_owners: dict[str, int] = {}  # by transactional id
    share_group_owners: dict[str, int] = {}
    member_owners: list[tuple[str, str, int]] = []  # group, member, number of the principal
    producer_owners: bytes = b""  # columns of `_OWNER_NUMBERS` numbers
    evictions: bytes = b""  # the same: partition, principal, time
    client_metrics: list[tuple[str, dict[str, str]]] = []
    metrics_altered_sequence: int = 0


NOTHING = Later()
_PARTITION_NUMBERS = 4  # the partition's place among all, first new producer id, time and largest id of evictions
_OWNER_NUMBERS = 3  # the partition's place among all, producer id, number of the principal
_NOTHING_OF_GROUP = GroupLater()


def written_later(state: State) -> Later:
    """The later parts of this state."""
    groups = {group.group_id: _written_group(group) for group in state.groups.values()}
    return Later(
        groups={group_id: each for group_id, each in groups.items() if each != _NOTHING_OF_GROUP},
        client_quotas=list(state.client_quotas.items()),
        quotas_altered_sequence=state.quotas_altered_sequence,
        lived_ms=state.lived_ms,
        ages=list(state.ages),
        expiry_round=list(state.expiry_round),
        departed=[(*member, *left) for member, left in state.departed.items()],
        share_groups=[_written_share_group(each) for each in state.share_groups.values()],
        group_configs=state.group_configs,
        group_configs_altered_sequence=state.group_configs_altered_sequence,
        uptime_lag_ms=state.uptime_lag_ms,
        partitions=_written_partitions(state),
        matches=written_matches(state),
        users=list(state.users.items()),
        bindings=list(state.bindings),
        security_altered_sequence=state.security_altered_sequence,
        tokens=list(state.tokens.values()),
        tokens_altered_sequence=state.tokens_altered_sequence,
        principals=[(each, row.name, row.evicted_ms) for each, row in state.principals.items() if each != NOT_NAMED],
        next_principal=state.next_principal,
        unused_principals=list(state.unused_principals),
        transaction_owners={each.transactional_id: each.owner for each in state.transactions.values() if each.owner},
        share_group_owners={each.group_id: each.owner for each in state.share_groups.values() if each.owner},
        member_owners=_written_member_owners(state),
        producer_owners=_written_owners(state),
        evictions=_written_evictions(state),
        client_metrics=list(state.client_metrics.items()),
        metrics_altered_sequence=state.metrics_altered_sequence,
    )


def without_owners(entries: Iterable[msgspec.Struct]) -> list[Any]:
    """The fields of entries without their owners, which are a later part; so the bytes below that level stay."""
    return [_without_owner(each) for each in entries]


def _without_owner(entry: msgspec.Struct) -> Any:
    fields = msgspec.structs.asdict(entry)
    del fields["owner"]
    return fields


def _written_share_group(group: ShareGroup) -> Any:
    members = {member_id: _without_owner(each) for member_id, each in group.members.items()}
    return {**_without_owner(group), "members": members}


def _written_group(group: Group) -> GroupLater:
    consumer = group.consumer
    if consumer is None:
        streams = None if group.streams is None else _written_streams(group.streams)
        return GroupLater(group.static_since, group.emptied_ms, owner=group.owner, streams=streams)
    epochs = (consumer.epoch, consumer.assignment_epoch)
    members: Any = {member_id: _without_owner(each) for member_id, each in consumer.members.items()}
    written = WrittenConsumer(*epochs, consumer.assignor, members, consumer.static_members)
    return GroupLater(group.static_since, group.emptied_ms, written, consumer.assigned_ms, group.owner)


def _written_streams(streams: StreamsGroup) -> WrittenStreams:
    fields = {name: getattr(streams, name) for name in WrittenStreams.__struct_fields__}
    fields["members"] = {member_id: _without_owner(each) for member_id, each in streams.members.items()}
    return WrittenStreams(**fields)


def _partitions(state: State) -> Iterator[Partition]:
    """All partitions that are not deleted for good, in the order of a snapshot."""
    for topic in state.topics.values():
        yield from topic.partitions
    for recoverable in state.recoverable.values():
        yield from recoverable.topic.partitions


def _written_partitions(state: State) -> bytes:
    rows = array("q")
    for place, each in enumerate(_partitions(state)):
        if each.first_new_producer_id or each.evicted_ms:
            rows.extend((place, each.first_new_producer_id, each.evicted_ms, each.evicted_id_max))
    return column_bytes(rows)


def _read_partitions(state: State, data: bytes) -> None:
    rows = array("q")
    read_column(rows, data)
    if len(rows) % _PARTITION_NUMBERS:
        raise ValueError(f"{len(data)} bytes of partitions")
    partitions = list(_partitions(state)) if rows else []
    for row in range(0, len(rows), _PARTITION_NUMBERS):
        partition = partitions[rows[row]]
        partition.first_new_producer_id, partition.evicted_ms, partition.evicted_id_max = rows[row + 1 : row + 4]


def _written_owners(state: State) -> bytes:
    rows = array("q")
    if len(state.principals) > 1:
        for place, partition in enumerate(_partitions(state)):
            for producer_id, producer in partition.producers.items():
                if producer.owner != NOT_NAMED:
                    rows.extend((place, producer_id, producer.owner))
    return column_bytes(rows)


def _all_groups(state: State) -> Iterator[Group | ShareGroup]:
    yield from state.groups.values()
    yield from state.share_groups.values()


def _written_member_owners(state: State) -> list[tuple[str, str, int]]:
    return [
        (group.group_id, member.member_id, member.owner)
        for group in _all_groups(state)
        for member in members_of(group)
        if member.owner != NOT_NAMED
    ]


def _written_evictions(state: State) -> bytes:
    rows = array("q")
    for place, partition in enumerate(_partitions(state)):
        for owner, evicted_ms in (partition.evictions or {}).items():
            rows.extend((place, owner, evicted_ms))
    return column_bytes(rows)


def _triples(data: bytes) -> Iterator[tuple[int, int, int]]:
    rows = array("q")
    read_column(rows, data)
    if len(rows) % _OWNER_NUMBERS:
        raise ValueError(f"{len(data)} bytes of owners or evictions")
    return zip(rows[0::3], rows[1::3], rows[2::3], strict=True)


def _read_principals(state: State, later: Later) -> None:
    """Read the principals and the owners of all entries, and count the entries."""
    for number, name, evicted_ms in later.principals:
        state.principals[number] = Principal(name, evicted_ms=evicted_ms)
        state.principal_numbers[name] = number
    state.next_principal = later.next_principal
    partitions = list(_partitions(state)) if later.producer_owners or later.evictions else []
    for place, producer_id, owner in _triples(later.producer_owners):
        partitions[place].producers[producer_id].owner = owner
    for place, owner, evicted_ms in _triples(later.evictions):
        partition = partitions[place]
        partition.evictions = {**(partition.evictions or {}), owner: evicted_ms}
    for transactional_id, owner in later.transaction_owners.items():
        state.transactions[transactional_id].owner = owner
    for group_id, owner in later.share_group_owners.items():
        state.share_groups[group_id].owner = owner
    for group_id, member_id, owner in later.member_owners:
        _member(state, group_id, member_id).owner = owner
    _count_entries(state)
    state.unused_principals = dict.fromkeys(later.unused_principals)


def _member(state: State, group_id: str, member_id: str) -> Member | ConsumerMember | ShareMember | StreamsMember:
    group = state.groups.get(group_id)
    if group is None:
        return state.share_groups[group_id].members[member_id]
    if group.streams is not None:
        return group.streams.members[member_id]
    return group.members[member_id] if group.consumer is None else group.consumer.members[member_id]


def _count_entries(state: State) -> None:
    for partition in _partitions(state):
        for producer in partition.producers.values():
            state.principals[producer.owner].producers += 1
    for transaction in state.transactions.values():
        state.principals[transaction.owner].transactional_ids += 1
    for group in _all_groups(state):
        state.principals[group.owner].groups += 1
        for member in members_of(group):
            state.principals[member.owner].member_bytes += member.size_bytes


def _read_consumer(group: GroupLater) -> ConsumerGroup | None:
    written = group.consumer
    if written is None:
        return None
    epochs = (written.epoch, written.assignment_epoch)
    return ConsumerGroup(*epochs, written.assignor, written.members, written.static_members, group.assigned_ms)


def read_later(state: State, later: Later) -> None:
    """Add the later parts to a state that has all other fields."""
    read_matches(state, later.matches)
    for group_id, written in later.groups.items():
        group = state.groups[group_id]
        group.static_since = written.static_since
        group.emptied_ms = written.emptied_ms
        group.owner = written.owner
        group.consumer = _read_consumer(written)
        if group.consumer is not None:
            enter_group(state, group)
        if written.streams is not None:
            group.streams = StreamsGroup(**msgspec.structs.asdict(written.streams))
            enter_streams_group(state, group)
    state.client_quotas = dict(later.client_quotas)
    state.quotas_altered_sequence = later.quotas_altered_sequence
    state.lived_ms = later.lived_ms
    state.uptime_lag_ms = later.uptime_lag_ms
    _read_partitions(state, later.partitions)
    state.ages.extend(later.ages)
    state.expiry_round.extend(later.expiry_round)
    for group_id, member_id, sequence, left_ms in later.departed:
        state.departed[group_id, member_id] = (sequence, left_ms)
    for shared in later.share_groups:
        enter_share_group(state, shared)
    state.group_configs = dict(later.group_configs)
    state.group_configs_altered_sequence = later.group_configs_altered_sequence
    state.users = dict(later.users)
    state.bindings = dict.fromkeys(later.bindings)
    state.security_altered_sequence = later.security_altered_sequence
    state.tokens = {token.token_id: token for token in later.tokens}
    state.tokens_altered_sequence = later.tokens_altered_sequence
    state.client_metrics = dict(later.client_metrics)
    state.metrics_altered_sequence = later.metrics_altered_sequence
    _read_principals(state, later)

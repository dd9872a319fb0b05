"""Checks of the invariants in `state/cluster.py`, after each entry of a `World`."""

from array import array

from penstock.contracts.commands import TASKS
from penstock.contracts.levels import GROUP_SIZES_LEVEL, JANITOR_LEVEL, NAME_REUSE_LEVEL, OFFSET_EXPIRY_LEVEL
from penstock_sequencer.core.groups.streams.topology import required_topics
from penstock_sequencer.core.groups.timers import next_deadline_ms
from penstock_sequencer.core.log.partitions import last_stable_offset
from penstock_sequencer.core.log.segment_contents import live_extents
from penstock_sequencer.core.state.cluster import COMPLETING, EMPTY, ONGOING, PREPARING, STABLE, Group, Partition, State
from penstock_sequencer.core.state.columns import read_column
from penstock_sequencer.core.state.consumer_group import ASSIGNING, AWAY, RECONCILED, REVOKING, ConsumerGroup
from penstock_sequencer.core.state.extents import Extents
from penstock_sequencer.core.state.limits import PRODUCER_EPOCH_MAX
from penstock_sequencer.core.state.partition_transactions import PartitionTransactions
from penstock_sequencer.core.state.segments import MARKERS, NOT_DEAD, Segments
from tests.unit.sequencer.core.core_principal_checks import check_principals
from tests.unit.sequencer.core.core_security_checks import check_security, check_tokens
from tests.unit.sequencer.core.core_share_checks import check_share_groups
from tests.unit.sequencer.core.core_streams_checks import check_streams_group, topologies_bytes


def check_invariants(state: State) -> None:
    """Assert all invariants of `state/cluster.py`."""
    live_bytes = [0] * len(state.segments.numbers)
    live_extents = [0] * len(state.segments.numbers)
    marker_count = 0
    topics = [*state.topics.values(), *(each.topic for each in state.recoverable.values())]
    partitions = [each for topic in topics for each in topic.partitions]
    for partition in partitions:
        check_extents(partition)
        check_highest(partition.extents)
        assert 0 <= partition.cleaned_offset <= partition.high_watermark
        assert 0 <= partition.pass_offset <= partition.cleaned_offset
        for producer in partition.producers.values():
            check_recent(list(producer.recent), producer.last_sequence)
        assert partition.in_sweep or not partition.producers
    assert all(each.deleted for each in state.pending_delete)
    for partition in [*partitions, *state.pending_delete]:
        columns = partition.extents
        assert partition.size_bytes == sum(columns.lengths[columns.head :])
        for row in range(columns.head, columns.end):
            if columns.segments[row] == MARKERS:
                marker_count += 1
                continue
            live_bytes[columns.segments[row]] += columns.lengths[row]
            live_extents[columns.segments[row]] += 1
    assert live_bytes == list(state.segments.live_bytes)
    assert live_extents == list(state.segments.live_extents)
    check_security(state)
    check_tokens(state)
    check_principals(state)
    check_segments(state)
    check_trimmed(state, partitions)
    assert not state.recoverable.keys() & state.topics_by_id.keys()
    assert all(0 <= number < TASKS and lease.holder for number, lease in state.task_leases.items())
    assert all(0 <= each <= state.clock_ms for each in state.tasks_ended_ms)
    assert state.extent_count == sum(live_extents) + marker_count
    assert state.partition_count == len(partitions)
    assert state.producer_count == sum(len(each.producers) for each in partitions)
    check_topic_tables(state)
    check_partition_indexes(state, partitions)
    check_contents(state, partitions)
    check_leases(state)
    check_transactions(state, partitions)
    for group_id, group in state.groups.items():
        assert group.group_id == group_id
        check_group(state, group)
        assert group.emptied_ms <= state.lived_ms
    check_ages(state)
    check_deadlines(state)
    check_subscriptions(state)
    check_share_groups(state)
    custody = state.custody
    assert 0 <= custody.archived_sequence <= state.sequence
    assert custody.snapshots == sorted(set(custody.snapshots))[-2:]
    assert all(0 < each < state.sequence for each in custody.snapshots)
    members = [member for group in state.groups.values() for member in group.members.values()]
    offsets = [each for group in state.groups.values() for topic in group.offsets.values() for each in topic.values()]
    offsets += [
        each
        for recoverable in state.recoverable.values()
        for group in recoverable.offsets.values()
        for each in group.values()
    ]
    offsets += [
        each
        for transaction in state.transactions.values()
        for group in transaction.offsets.values()
        for topic in group.values()
        for each in topic.values()
    ]
    assert all(0 <= each.sequence <= state.sequence for each in offsets)
    assert state.level or state.transactions or not any(each.sequence for each in offsets)
    assert 0 <= state.removed_sequence <= state.sequence
    protocols = [len(each.name) + len(each.metadata) for member in members for each in member.protocols]
    sizes = [1_024 + len(member.assignment) for member in members] + [256 + len(each.metadata) for each in offsets]
    consumers = [group.consumer for group in state.groups.values() if group.consumer is not None]
    held = [member.size_bytes for consumer in consumers for member in consumer.members.values()]
    held += [
        member.size_bytes
        for group in state.groups.values()
        if group.streams is not None
        for member in group.streams.members.values()
    ]
    shared = [member.size_bytes for group in state.share_groups.values() for member in group.members.values()]
    if state.level < GROUP_SIZES_LEVEL:
        counted = sum(protocols) + sum(sizes) + sum(held) + sum(shared)
        assert state.group_bytes == counted + topologies_bytes(state)
    assert state.member_bytes == sum(member.size_bytes for member in members) + sum(held) + sum(shared)
    kept = sum(256 + len(each.metadata) for each in offsets) + topologies_bytes(state)
    assert state.group_bytes == state.member_bytes + kept


def check_ages(state: State) -> None:
    ages = list(state.ages)
    assert ages == sorted(ages)
    assert not ages or ages[-1] <= (state.lived_ms, state.sequence)
    assert len(ages) <= 2 * state.limits.offsets.expiry_steps
    assert len(state.expiry_round) == len(set(state.expiry_round))
    assert state.level >= OFFSET_EXPIRY_LEVEL or not (state.lived_ms or ages or state.expiry_round)


def check_extents(partition: Partition) -> None:
    """The log has no gap, begins in or after its first extent, and ends with its last one."""
    columns = partition.extents
    next_offset = columns.base_offsets[columns.head] if columns else partition.log_start_offset
    assert next_offset <= partition.log_start_offset <= partition.high_watermark
    for row in range(columns.head, columns.end):
        assert columns.base_offsets[row] == next_offset <= columns.last_offsets[row]
        next_offset = columns.last_offsets[row] + 1
    assert next_offset == partition.high_watermark


def check_segments(state: State) -> None:
    """The dead segments, the free slots, and every table and number that derives from the columns."""
    table = state.segments
    used = [slot for slot, number in enumerate(table.numbers) if number >= 0]
    free = [slot for slot, number in enumerate(table.numbers) if number < 0]
    assert len(table) == len(used)
    assert sorted(table.free) == free
    assert list(table.by_number) == sorted(used, key=table.numbers.__getitem__)
    assert list(table.by_id) == sorted(used, key=table.id)
    assert len({table.id(slot) for slot in used}) == len({table.numbers[slot] for slot in used}) == len(used)
    assert all(table.numbers[slot] < table.next_number for slot in used)
    dead = [slot for slot in used if not table.live_extents[slot]]
    assert dead == [slot for slot in used if table.dead_since_ms[slot] != NOT_DEAD]
    if state.level >= JANITOR_LEVEL:
        ages = {slot: (table.dead_sequences[slot], table.dead_since_ms[slot]) for slot in dead}
        assert list(table.dead) == sorted(dead, key=lambda slot: (*ages[slot], table.numbers[slot]))
        assert all(0 < sequence <= state.sequence for sequence, _ in ages.values())
    else:
        assert not table.dead
        assert not any(table.dead_sequences)
    named = [number for slot in used for number in (table.writers[slot], table.zones[slot])]
    assert list(table.name_uses) == [named.count(number) for number in range(len(table.names))]
    unused = [number for number in range(len(table.names)) if not table.name_uses[number]]
    assert sorted(table.free_names) == (unused if state.level >= NAME_REUSE_LEVEL else [])
    assert all(table.names[number] == "" for number in table.free_names)
    assert {name: number for name, number in table.name_numbers.items() if table.names[number] != name} == {}
    assert table.size_bytes_total == sum(table.sizes)
    assert table.live_bytes_total == sum(table.live_bytes)
    assert table.dead_count == len(dead)
    assert table.dead_size_bytes == sum(table.sizes[slot] for slot in dead)
    for slot in free:
        assert numbers_of(table, slot) == [0, 0, 0, 0, NOT_DEAD, 0, 0, -1, 0]
        assert table.id(slot) == bytes(16)


def numbers_of(table: Segments, slot: int) -> list[int]:
    """The values of the slot in all columns."""
    sizes = (table.levels, table.sizes, table.live_bytes, table.live_extents, table.dead_since_ms)
    return [column[slot] for column in (*sizes, table.writers, table.zones, table.numbers, table.dead_sequences)]


def check_trimmed(state: State, partitions: list[Partition]) -> None:
    """A partition with extents that end before the log's start is in `trimmed` exactly once."""
    waiting = [id(each) for each in state.trimmed]
    assert len(waiting) == len(set(waiting))
    for partition in partitions:
        columns = partition.extents
        assert partition.in_trimmed == (id(partition) in waiting)
        is_trimmed = bool(columns) and columns.last_offsets[columns.head] < partition.log_start_offset
        assert partition.in_trimmed or not is_trimmed


def check_recent(recent: list[int], last_sequence: int) -> None:
    """Check the batches that are remembered; there are none after an aborted transaction."""
    assert len(recent) <= 15
    assert not recent or recent[-2] == last_sequence
    for place in range(3, len(recent), 3):
        assert recent[place] == (recent[place - 2] + 1) % 2**31
        assert recent[place + 2] > recent[place - 1]


def check_partition_indexes(state: State, partitions: list[Partition]) -> None:
    assert {index: id(each) for index, each in state.partitions_by_index.items()} == {
        each.index: id(each) for each in partitions
    }


def check_contents(state: State, partitions: list[Partition]) -> None:
    """The contents of a segment lead to each extent that points to it, and to no other."""
    pointing: dict[int, set[tuple[int, int]]] = {}
    for partition in partitions:
        columns = partition.extents
        for place in range(columns.head, columns.end):
            if columns.segments[place] != MARKERS:
                pointing.setdefault(columns.segments[place], set()).add((id(partition), place))
    for slot in range(len(state.segments.numbers)):
        found = [(id(partition), place) for partition, place in live_extents(state, slot)]
        assert len(found) == len(set(found))
        assert set(found) == pointing.get(slot, set())
        assert state.segments.live_extents[slot] or not state.segments.contents[slot]


def check_transactions(state: State, partitions: list[Partition]) -> None:
    """The transactions with their partitions in both directions, the derived tables, and each partition's part."""
    transactions = list(state.transactions.values())
    assert [each.transactional_id for each in transactions] == list(state.transactions)
    assert [each.active_ms for each in transactions] == sorted(each.active_ms for each in transactions)
    assert {each.producer_id: each for each in transactions} == state.transactions_by_producer
    assert len(state.transactions_by_producer) == len(transactions)
    assert {each.transactional_id for each in transactions if each.state == ONGOING} == state.ongoing.keys()
    deadlines = {(each.started_ms + each.timeout_ms, each.transactional_id) for each in state.ongoing.values()}
    assert deadlines <= set(state.transaction_alarms)
    assert len(state.transaction_alarms) <= 2 * len(transactions) + 65
    groups = {(group, each.transactional_id) for each in transactions for group in each.offsets}
    assert groups == {(group, each) for group, found in state.transactions_by_group.items() for each in found}
    assert all(state.transactions_by_group.values())
    assert state.transaction_partition_count == sum(len(each.partitions) for each in transactions)
    opened = {}
    for transaction in transactions:
        is_ongoing = transaction.state == ONGOING
        assert (transaction.started_ms >= 0) == is_ongoing
        assert is_ongoing or not (transaction.partitions or transaction.offsets)
        assert 0 <= transaction.epoch < PRODUCER_EPOCH_MAX
        pending = [each for group in transaction.offsets.values() for each in group.values()]
        assert transaction.offset_count == sum(len(each) for each in pending)
        for key, first_offset in transaction.partitions.items():
            if first_offset >= 0:
                opened[transaction.producer_id, key] = first_offset
    aborted = 0
    for partition in partitions:
        aborted += check_partition_transactions(partition, opened)
    assert state.aborted_count == aborted
    kept = {(each.topic_id, each.number) for each in partitions}
    assert not [key for _, key in opened if key in kept], "an open transaction is open in its partitions, too"


def check_partition_transactions(partition: Partition, opened: dict[tuple[int, tuple[bytes, int]], int]) -> int:
    """Remove the open transactions of this partition from `opened`; return the number of its aborted ones."""
    columns = partition.extents
    rows = [row for row in range(columns.head, columns.end) if columns.segments[row] == MARKERS]
    known = partition.transactions
    assert 0 <= last_stable_offset(partition) <= partition.high_watermark
    if known is None:
        assert not rows
        return 0
    offsets = [columns.base_offsets[row] for row in rows]
    assert [known.marker(each).offset for each in offsets] == offsets
    assert known.marker_count == len(offsets)
    assert all(columns.lengths[row] == 0 for row in rows)
    assert list(known.open.values()) == sorted(set(known.open.values()))
    for producer_id, first_offset in known.open.items():
        assert opened.pop((producer_id, (partition.topic_id, partition.number))) == first_offset
    rows_aborted = aborted_numbers(known)
    firsts, lasts, stables = (list(rows_aborted[place::4]) for place in (1, 2, 3))
    assert (lasts, stables) == (sorted(lasts), sorted(stables))
    aborted = zip(firsts, lasts, stables, strict=True)
    assert all(first < last < partition.high_watermark and stable <= last + 1 for first, last, stable in aborted)
    return known.aborted_count


def aborted_numbers(known: PartitionTransactions) -> "array[int]":
    """Four numbers for each aborted transaction, as a snapshot has them: producer id, first, last, stable offset."""
    numbers = array("q")
    read_column(numbers, known.columns()[1])
    return numbers


def check_highest(columns: Extents) -> None:
    """The running maximum bounds every timestamp before it, and never falls."""
    highest = columns.highest[columns.head :]
    assert list(highest) == sorted(highest)
    for bound, timestamp in zip(highest, columns.timestamps[columns.head :], strict=True):
        assert bound >= timestamp


def check_leases(state: State) -> None:
    leased = [(segment_id, job_id) for job_id, lease in state.leases.items() for segment_id in lease.segment_ids]
    assert dict(leased) == state.leased
    assert len(leased) == len(state.leased)
    assert len(state.leases) <= state.limits.maintenance.job_leases_max


def check_topic_tables(state: State) -> None:
    assert list(state.topics_by_id) == [topic.topic_id for topic in state.topics.values()]
    assert list(state.topics_by_metric_name) == [name.replace(".", "_") for name in state.topics]
    assert not state.deleted_topics.keys() & state.topics_by_id.keys()


def check_group(state: State, group: Group) -> None:
    if group.streams is not None:
        check_streams_group(state, group, group.streams)
        return
    if group.consumer is not None:
        assert not (group.members or group.pending or group.static_members or group.join_deadline_ms)
        check_consumer_group(group, group.consumer)
        return
    assert group.leader in group.members if group.members else group.leader == ""
    assert not group.pending.keys() & group.members.keys()
    for instance, member_id in group.static_members.items():
        assert group.members[member_id].group_instance_id == instance
    assert group.static_since.keys() <= group.static_members.keys()
    counts: dict[str, int] = {}
    for member in group.members.values():
        for name in {protocol.name for protocol in member.protocols}:
            counts[name] = counts.get(name, 0) + 1
    assert counts == group.protocol_counts
    assert not group.members or max(counts.values()) == len(group.members)
    assert group.members or group.state in (EMPTY, PREPARING)
    assert group.state != EMPTY or not group.members
    assert (group.state == PREPARING) == (group.join_deadline_ms > 0)
    if group.state in (STABLE, COMPLETING):
        assert not any(member.joining for member in group.members.values())


def check_consumer_group(group: Group, consumer: ConsumerGroup) -> None:
    """Each partition has one owner at most, and is in one target at most; a reconciled member has its target."""
    assert group.generation == consumer.epoch
    assert consumer.assignment_epoch <= consumer.epoch
    owners: dict[bytes, dict[int, str]] = {}
    wanted: dict[tuple[bytes, int], str] = {}
    for member_id, member in consumer.members.items():
        assert member.member_id == member_id
        assert member.epoch == AWAY or 0 <= member.previous_epoch <= member.epoch <= consumer.assignment_epoch
        assert (member.state == REVOKING) == bool(member.revoking)
        assert member.state != REVOKING or member.due_ms
        for partitions in (member.assigned, member.revoking):
            for topic_id, numbers in partitions.items():
                assert numbers == sorted(set(numbers)) != []
                for number in numbers:
                    assert number not in owners.setdefault(topic_id, {}), "a partition has one owner"
                    owners[topic_id][number] = member_id
        for topic_id, numbers in member.target.items():
            assert not [number for number in numbers if (topic_id, number) in wanted], "a partition is in one target"
            wanted |= dict.fromkeys(((topic_id, number) for number in numbers), member_id)
        if member.state == RECONCILED and member.epoch == consumer.assignment_epoch:
            assert member.assigned == member.target
    assert owners == consumer.tables.owners
    members = consumer.members.items()
    assert consumer.tables.due_ms == {member_id: each.due_ms for member_id, each in members if each.due_ms}
    assert consumer.tables.classic.keys() == {member_id for member_id, each in members if each.protocols}
    epoch = consumer.assignment_epoch
    settled = {member_id for member_id, each in members if each.state == RECONCILED and each.epoch == epoch}
    assert consumer.tables.settled.keys() == settled
    statics = {each.instance_id: each.member_id for each in consumer.members.values() if each.instance_id is not None}
    assert statics == consumer.static_members
    assert (group.state == EMPTY) == (not consumer.members)
    assert (group.state == ASSIGNING) == (bool(consumer.members) and consumer.assignment_epoch < consumer.epoch)
    assert not consumer.members or not all(each.protocols for each in consumer.members.values())


def check_subscriptions(state: State) -> None:
    """The tables of subscriptions agree with the members, and no departed member is in its group."""
    for group_id, member_id in state.departed:
        group = state.groups.get(group_id)
        assert group is None or group.consumer is None or member_id not in group.consumer.members
        assert group is None or group.streams is None or member_id not in group.streams.members
    assert [*state.departed.values()] == sorted(state.departed.values())
    topics: dict[str, dict[str, int]] = {}
    patterns: dict[str, dict[str, int]] = {}
    for group_id, group in state.groups.items():
        for name in () if group.streams is None else required_topics(group.streams.topology):
            if group.streams is not None and group.streams.members:
                topics.setdefault(name, {})[group_id] = len(group.streams.members)
        for member in () if group.consumer is None else group.consumer.members.values():
            for table, keys in ((topics, member.topics), (patterns, [member.pattern] if member.pattern else [])):
                for key in keys:
                    counts = table.setdefault(key, {})
                    counts[group_id] = counts.get(group_id, 0) + 1
    for group_id, shared in state.share_groups.items():
        for key in (name for sharer in shared.members.values() for name in sharer.topics):
            topics.setdefault(key, {})[group_id] = topics.get(key, {}).get(group_id, 0) + 1
    assert topics == state.subscriptions.groups_by_topic
    assert patterns == {text: use.groups for text, use in state.subscriptions.patterns.items()}
    for use in state.subscriptions.patterns.values():
        assert use.topics.keys() == {name for name in state.topics if use.pattern.matches(name)}


def check_deadlines(state: State) -> None:
    for group_id, deadline_ms in state.deadlines.items():
        assert deadline_ms > state.clock_ms
        assert group_id in state.groups or group_id in state.share_groups
    for group_id, group in state.groups.items():
        due = [*group.pending.values(), group.join_deadline_ms, group.sync_deadline_ms]
        if group.consumer is not None:
            due += [member.due_ms for member in group.consumer.members.values()]
        if group.streams is not None:
            due += [member.due_ms for member in group.streams.members.values()]
        assert state.deadlines.get(group_id, 0) == min((each for each in due if each), default=0)
    assert next_deadline_ms(state) == min(state.deadlines.values(), default=None)
    assert state.idle_groups.keys() <= state.groups.keys()

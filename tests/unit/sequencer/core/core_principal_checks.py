"""Checks of the rows of principals: their counts are those of the entries that they own."""

from collections import Counter
from collections.abc import Iterator

from penstock.contracts.levels import SHARES_LEVEL
from penstock_sequencer.core.state.cluster import NOT_NAMED, Partition, State
from penstock_sequencer.core.state.group_sizes import members_of


def check_principals(state: State) -> None:
    """Every owner has a row, every count is right, and a row without entries is removed by a later Tick."""
    producers = Counter(each.owner for partition in _partitions(state) for each in partition.producers.values())
    transactional_ids = Counter(each.owner for each in state.transactions.values())
    groups = Counter(each.owner for each in (*state.groups.values(), *state.share_groups.values()))
    sizes: Counter[int] = Counter()
    for group in (*state.groups.values(), *state.share_groups.values()):
        for member in members_of(group):
            sizes[member.owner] += member.size_bytes
    owners = producers.keys() | transactional_ids.keys() | groups.keys() | sizes.keys()
    assert owners <= state.principals.keys()
    for number, row in state.principals.items():
        counts = (producers[number], transactional_ids[number], groups[number], sizes[number])
        assert (row.producers, row.transactional_ids, row.groups, row.member_bytes) == counts
        assert any(counts) or number == NOT_NAMED or number in state.unused_principals
        assert row.evicted_ms <= state.clock_ms
    names = {row.name: number for number, row in state.principals.items() if number != NOT_NAMED}
    assert names == state.principal_numbers
    assert state.principals[NOT_NAMED].name == ""
    assert max(state.principals) < state.next_principal
    assert state.unused_principals.keys() <= state.principals.keys()
    assert state.level >= SHARES_LEVEL or len(state.principals) == 1
    for partition in _partitions(state):
        _check_partition(partition)


def _partitions(state: State) -> Iterator[Partition]:
    for topic in (*state.topics.values(), *(each.topic for each in state.recoverable.values())):
        yield from topic.partitions


def _check_partition(partition: Partition) -> None:
    """The derived counts of a partition that is almost full are those of its producers."""
    if partition.owned is not None:
        counts = Counter(each.owner for each in partition.producers.values())
        assert {owner: each.count for owner, each in partition.owned.items()} == counts
        for owner, owned in partition.owned.items():
            idlest_ms = min(each.active_ms for each in partition.producers.values() if each.owner == owner)
            assert owned.idlest_ms <= idlest_ms

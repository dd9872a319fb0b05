"""The shares of principals in the tables that all clients use (ADR 0040).

A principal gets a number with its first entry. Each entry names its owner by that number. A row counts the entries of
each principal, so a decision about one more entry takes no walk. The owner of an entry is the principal that made it.

A principal may make another entry while it has fewer entries than `entries_per_free_place` times the free places. So
one principal alone ends at 7/8 of a table, two at 7/15 each. If n principals take all that they may, one place in
7n + 1 stays free for those that have few.

ANONYMOUS has number 0, and so have all entries that were made below SHARES_LEVEL. While no other principal is known,
all clients are ANONYMOUS, and only the size of a table counts.
"""

from itertools import islice

from penstock.contracts.levels import SHARES_LEVEL
from penstock_sequencer.core.state.cluster import NOT_NAMED, Principal, State

NO_ENTRIES = -1  # the number of a principal that has no row
_NO_ROW = Principal("")


def number_of(state: State, name: str) -> int:
    """The number of the principal; NO_ENTRIES if it has none."""
    if not name or state.level < SHARES_LEVEL:
        return NOT_NAMED
    return state.principal_numbers.get(_key(state, name), NO_ENTRIES)


def enter(state: State, name: str) -> int:
    """The number of the principal, which is about to get an entry."""
    number = number_of(state, name)
    if number == NO_ENTRIES:
        number = state.next_principal
        state.next_principal += 1
        key = _key(state, name)
        state.principals[number] = Principal(key)
        state.principal_numbers[key] = number
    return number


def _key(state: State, name: str) -> str:
    return name[: state.limits.shares.principal_length_max]


def row_of(state: State, number: int) -> Principal:
    """The row of the principal, to read it only: a principal without entries has no row of its own."""
    return _NO_ROW if number == NO_ENTRIES else state.principals[number]


def is_shared(state: State) -> bool:
    """Whether principals have shares: the cluster knows others than ANONYMOUS."""
    return state.level >= SHARES_LEVEL and (len(state.principals) > 1 or bool(state.users))


def fits(state: State, owned: int, used: int, most: int, growth: int = 1) -> bool:
    """Whether a principal that owns `owned` of a table's `used` places may have `growth` more of the `most` places."""
    free = most - used
    if growth > free:
        return False
    return not is_shared(state) or owned + growth <= free * state.limits.shares.entries_per_free_place


def is_large(state: State, owned: int, used: int) -> bool:
    """Whether a principal owns at least the average of the `used` places: a table under pressure evicts its entries."""
    return owned * len(state.principals) >= used


def pressure_min(state: State, most: int, pressure_min_unshared: int) -> int:
    """From how many entries on Ticks evict: so much below the end of one principal's share, or else of the table."""
    if not is_shared(state):
        return pressure_min_unshared
    factor = state.limits.shares.entries_per_free_place
    return max(most * factor // (factor + 1) - (most - pressure_min_unshared), 0)


def count_producers(state: State, number: int, change: int) -> None:
    """Count producers in partitions that come or go."""
    row = state.principals[number]
    row.producers += change
    _note_unused(state, number, row)


def count_transactional_id(state: State, number: int, change: int) -> None:
    """Count a transactional id that comes or goes."""
    row = state.principals[number]
    row.transactional_ids += change
    _note_unused(state, number, row)


def count_group(state: State, number: int, change: int) -> None:
    """Count a group of any kind that comes or goes."""
    row = state.principals[number]
    row.groups += change
    _note_unused(state, number, row)


def count_member_bytes(state: State, number: int, change: int) -> None:
    """Count the bytes by which a member grows or shrinks."""
    row = state.principals[number]
    row.member_bytes += change
    _note_unused(state, number, row)


def _is_unused(row: Principal) -> bool:
    return not (row.producers or row.transactional_ids or row.groups or row.member_bytes)


def _note_unused(state: State, number: int, row: Principal) -> None:
    if number != NOT_NAMED and _is_unused(row):
        state.unused_principals[number] = None


def remove_unused(state: State) -> None:
    """Remove principals without entries; bounded work for each Tick.

    A principal whose producers were evicted keeps its number until no segment from before that can be committed.
    """
    limits = state.limits
    for number in list(islice(state.unused_principals, limits.shares.principals_removed_per_tick)):
        del state.unused_principals[number]
        row = state.principals[number]
        if not _is_unused(row):
            continue
        if row.evicted_ms and row.evicted_ms + limits.log.segment_commit_age_max_ms >= state.clock_ms:
            state.unused_principals[number] = None
            continue
        del state.principals[number]
        del state.principal_numbers[row.name]

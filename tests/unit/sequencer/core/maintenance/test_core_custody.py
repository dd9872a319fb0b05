"""Custody: the custodian's lease in the journaled state, and the progress that only its holder may record."""

from penstock.contracts.commands import (
    Done,
    RaiseLevel,
    RecordArchived,
    RecordSnapshot,
    Rejected,
    ReleaseCustody,
    TakeCustody,
    Tick,
)
from penstock_sequencer.core.maintenance.custody import secured_sequence
from penstock_sequencer.core.state.limits import CUSTODY_LEASE_MS
from tests.unit.sequencer.core.core_world import World


def take(world: World, author: str, dead_until_ms: int = -1) -> bool:
    return isinstance(world.do(TakeCustody(world.now_ms, author, dead_until_ms)), Done)


def release(world: World, author: str) -> bool:
    return isinstance(world.do(ReleaseCustody(world.now_ms, author)), Done)


def archived(world: World, author: str, sequence: int) -> bool:
    return isinstance(world.do(RecordArchived(world.now_ms, author, sequence)), Done)


def snapshot(world: World, author: str, sequence: int) -> bool:
    return isinstance(world.do(RecordSnapshot(world.now_ms, author, sequence)), Done)


def test_the_first_replica_that_asks_has_custody_until_its_lease_ends() -> None:
    world = World()
    assert take(world, "a")
    world.wait(CUSTODY_LEASE_MS - 1)
    assert not take(world, "b")
    world.wait(1)
    assert take(world, "b")
    assert not take(world, "a")
    assert world.state.custody.holder == "b"


def test_the_holder_renews_its_lease_by_asking_and_by_recording() -> None:
    world = World()
    take(world, "a")
    for renew in (lambda: take(world, "a"), lambda: archived(world, "a", 1), lambda: snapshot(world, "a", 1)):
        world.wait(CUSTODY_LEASE_MS - 1)
        assert renew()
        world.wait(CUSTODY_LEASE_MS - 1)
        assert not take(world, "b")


def test_only_the_holder_records_progress() -> None:
    world = World()
    assert not archived(world, "a", 1)
    assert not snapshot(world, "", 1)
    take(world, "a")
    world.wait(CUSTODY_LEASE_MS)
    assert archived(world, "a", 1)  # late, but no other replica has taken custody
    world.wait(CUSTODY_LEASE_MS)
    take(world, "b")
    assert not archived(world, "a", 4)
    assert not snapshot(world, "a", 4)
    assert (world.state.custody.archived_sequence, world.state.custody.snapshots) == (1, [])


def test_the_two_newest_snapshots_are_kept_and_repeated_records_change_nothing() -> None:
    world = World()
    take(world, "a")
    for _ in range(10):
        world.do(Tick(world.now_ms))
    for sequence, known in ((3, [3]), (5, [3, 5]), (5, [3, 5]), (3, [3, 5]), (8, [5, 8]), (3, [5, 8]), (6, [5, 8])):
        assert snapshot(world, "a", sequence)
        assert world.state.custody.snapshots == known


def test_the_entries_in_both_snapshots_are_secured() -> None:
    world = World()
    take(world, "a")
    for _ in range(10):
        world.do(Tick(world.now_ms))
    assert archived(world, "a", 9)
    for sequence, secured in ((3, 0), (3, 0), (5, 3), (8, 5)):
        assert snapshot(world, "a", sequence)
        assert secured_sequence(world.state) == secured


def test_the_archive_never_goes_back() -> None:
    world = World()
    take(world, "a")
    world.do(Tick(world.now_ms))
    assert archived(world, "a", 2)
    assert archived(world, "a", 1)
    assert world.state.custody.archived_sequence == 2


def test_future_entries_are_not_recorded() -> None:
    world = World()
    take(world, "a")
    for ahead in (0, 1, 100):
        coming = world.state.sequence + 1
        assert not archived(world, "a", coming + ahead)
    assert not snapshot(world, "a", world.state.sequence + 1)
    assert not snapshot(world, "a", 0)
    assert snapshot(world, "a", world.state.sequence)


def test_an_author_with_an_empty_or_too_long_name_is_rejected() -> None:
    world = World()
    for author in ("", "a" * 257):
        outcome = world.do(TakeCustody(world.now_ms, author))
        assert isinstance(outcome, Rejected)
        assert outcome.message == f"an author name of {len(author)} characters"


def test_the_time_of_the_newest_snapshot_is_known_and_before_that_the_time_at_which_custody_began() -> None:
    world = World()
    take(world, "a")
    began_ms = world.now_ms
    world.wait(CUSTODY_LEASE_MS)
    take(world, "b")
    assert world.state.custody.snapshot_ms == began_ms
    assert snapshot(world, "b", 2)
    recorded_ms = world.now_ms
    world.wait(1_000)
    assert snapshot(world, "b", 2)
    assert world.state.custody.snapshot_ms == recorded_ms == began_ms + CUSTODY_LEASE_MS


def test_released_custody_is_free_at_once_and_the_time_of_the_newest_snapshot_stays() -> None:
    world = World()
    take(world, "a")
    began_ms = world.now_ms
    assert not release(world, "b")
    assert not release(world, "")
    world.wait(5)
    assert release(world, "a")
    assert not release(world, "a")
    assert not archived(world, "a", 1)
    assert take(world, "b")
    assert world.state.custody.snapshot_ms == began_ms
    assert not release(world, "a")
    assert world.state.custody.holder == "b"


def test_a_lease_is_taken_from_its_holder_only_by_a_replica_that_names_its_present_end() -> None:
    world = World()
    world.do(RaiseLevel(world.now_ms, 1))
    take(world, "a")
    seen = world.state.custody.until_ms
    assert not take(world, "b", seen - 1)
    take(world, "a")  # renewed while the clock stands still
    assert world.state.custody.until_ms > seen
    assert not take(world, "b", seen)
    for renew in (lambda: archived(world, "a", 1), lambda: snapshot(world, "a", 1)):
        seen = world.state.custody.until_ms
        assert renew()
        assert not take(world, "b", seen)
    assert take(world, "b", world.state.custody.until_ms)
    assert not take(world, "a", seen)
    assert world.state.custody.holder == "b"


def test_no_two_leases_have_the_same_end() -> None:
    """Otherwise a replica that saw the old lease for long would take the new one from its holder."""
    world = World()
    world.do(RaiseLevel(world.now_ms, 1))
    ends = []
    for author in ("a", "b", "a"):
        take(world, author)
        ends.append(world.state.custody.until_ms)
        release(world, author)
    assert sorted(set(ends)) == ends

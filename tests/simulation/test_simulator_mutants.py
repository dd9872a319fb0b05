"""The simulator finds the worst faults of services, which are mutants of `tests.testkit.mutants`."""

import itertools
from collections.abc import Iterator

import pytest

from tests.testkit.mutants.simulations import MutantSimulations
from tests.testkit.sim.environment.chance import Chance
from tests.testkit.sim.length import SHORT_TIMEOUTS_SUFFIX
from tests.testkit.sim.run import run_named
from tests.testkit.sim.world import CONSUMER_PROTOCOL_SHARE, CONSUMER_PROTOCOL_STREAM

SEEDS_MAX = 200  # one of so many must find the mutant
CONSUMER_GROUP_SEEDS_MAX = 20  # of seeds with a group of KIP-848, so among some 70 of all
# Each mutant that any run may find, and the seed that found it last. That seed is tried first, as most seeds find few
# mutants. The meaning of a seed changes with the code.
FOUND_LAST = {
    "accept_fenced_static_members": 8,
    "accept_late_offset_commits": 3,
    "accept_offsets_of_former_members": 5,
    "age_orphans_by_wall_clock": 16,
    "announce_high_watermark_as_stable": 3,
    "announce_no_markers": 3,
    "answer_before_journal_commit": 0,
    "answer_duplicates_with_new_offset": 1,
    "begin_aborted_ranges_late": 3,
    "commit_expired_segments": 16,
    "commit_offsets_before_transaction_ends": 5,
    "commit_segments_before_upload": 0,
    "commit_segments_out_of_order": 5,
    "count_grace_by_wall_clock": 9,
    "delete_before_snapshots": 2,
    "delete_without_grace": 9,
    "drop_offsets_of_committed_transactions": 3,
    "end_transactions_in_one_partition": 3,
    "expire_one_extent_too_many": 3,
    "find_timestamps_one_offset_late": 2,
    "keep_deleted_topics_in_cache": 35,
    "omit_last_aborted_transaction": 3,
    "plan_high_watermark_as_stable": 3,
    "read_undecided_records": 3,
    "remove_segments_before_deletion": 2,
    "replace_extents_without_check": 1,
    "return_unstable_offsets": 40,
    "reuse_producer_ids": 0,
    "serve_before_catching_up": 90,
    "share_acknowledge_before_commit": 21,
    "share_acknowledge_without_lock": 22,
    "share_acquire_locked_records": 22,
    "share_deliver_without_limit": 43,
    "share_drop_released_records": 22,
    "share_redeliver_accepted_records": 21,
    "share_release_locks_of_all_members": 43,
    "share_skip_transactional_records": 22,
    "skip_producer_fencing": 67,
    "skip_read_index": 218,
    "skip_transaction_epoch_of_batches": 8,
    "store_duplicate_batches": 1,
    "sweep_young_segments": 2,
    "write_commit_markers_for_aborts": 3,
}
SHORT_TIMEOUTS_FOUND_LAST = 58

pytestmark = [pytest.mark.simulation, pytest.mark.slow]


def first_of(found_last: int, seeds_max: int = SEEDS_MAX) -> list[int]:
    """Seeds in the order in which they are tried."""
    return [found_last, *(seed for seed in range(seeds_max) if seed != found_last)]


def consumer_group_seeds() -> Iterator[int]:
    """The seeds with a group of KIP-848, unless they have an upgrade."""
    for seed in itertools.count():
        if Chance(seed).stream(CONSUMER_PROTOCOL_STREAM).random() < CONSUMER_PROTOCOL_SHARE:
            yield seed


@pytest.mark.parametrize("name", FOUND_LAST)
def test_a_mutant_is_found(name: str, mutant_simulations: MutantSimulations) -> None:
    killed = mutant_simulations.first_failure(name, [str(seed) for seed in first_of(FOUND_LAST[name])])
    assert killed is not None, f"{name} survived {SEEDS_MAX} seeds"
    print(f"seed {killed.run}: {killed.failures[0]}")


def test_groups_of_the_consumer_protocol_find_two_members_with_one_partition(
    mutant_simulations: MutantSimulations,
) -> None:
    seeds = itertools.islice(consumer_group_seeds(), CONSUMER_GROUP_SEEDS_MAX)
    killed = mutant_simulations.first_failure("take_no_report_for_empty_report", [str(seed) for seed in seeds])
    assert killed is not None, f"the mutant survived {CONSUMER_GROUP_SEEDS_MAX} seeds"
    assert "the group has assigned" in killed.failures[0], killed.report


def test_short_timeouts_find_a_gateway_that_ends_transactions_without_its_seen_sequence(
    mutant_simulations: MutantSimulations,
) -> None:
    """A delayed EndTxn can arrive after its client repeated it elsewhere and began the next transaction.

    In the protocol before KIP-890 that transaction has the same epoch. Only `seen_sequence`, the newest entry that the
    gateway knew, shows that the EndTxn belongs to the earlier transaction. Clients with long timeouts have few requests
    in flight during a delay. Hardly one of two hundred usual seeds finds this fault.
    """
    runs = [f"{seed}{SHORT_TIMEOUTS_SUFFIX}" for seed in first_of(SHORT_TIMEOUTS_FOUND_LAST)]
    killed = mutant_simulations.first_failure("end_transactions_without_seen_sequence", runs)
    assert killed is not None, f"the mutant survived {SEEDS_MAX} seeds"
    outcome = run_named(killed.run)
    assert not outcome.failures, f"the mutant is not the reason: {outcome.report()}"

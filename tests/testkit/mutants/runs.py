"""The runs of the simulator that find each mutant: the seed that found it last comes first.

Most seeds find few mutants. The meaning of a seed changes with the code, so other seeds follow.
"""

import itertools
from collections.abc import Iterator

from tests.testkit.sim.environment.chance import Chance
from tests.testkit.sim.length import CLUSTERS_SUFFIX, SHORT_TIMEOUTS_SUFFIX
from tests.testkit.sim.world import CONSUMER_PROTOCOL_SHARE, CONSUMER_PROTOCOL_STREAM

SEEDS_MAX = 200  # one of so many must find the mutant
CONSUMER_GROUP_SEEDS_MAX = 20  # of seeds with a group of KIP-848, so among some 70 of all
# Found by runs with a group of KIP-848 only.
CONSUMER_GROUP_MUTANT = "take_no_report_for_empty_report"
# Found by clients with short timeouts only.
SHORT_TIMEOUTS_MUTANT = "end_transactions_without_seen_sequence"
SHORT_TIMEOUTS_FOUND_LAST = 22
# Each mutant that any run may find, and the seed that found it last.
FOUND_LAST = {
    "accept_fenced_static_members": 14,
    "accept_late_offset_commits": 17,
    "accept_offsets_of_former_members": 67,
    "age_orphans_by_wall_clock": 2,
    "announce_high_watermark_as_stable": 3,
    "announce_no_markers": 3,
    "answer_before_journal_commit": 0,
    "answer_duplicates_with_new_offset": 7,
    "begin_aborted_ranges_late": 3,
    "commit_expired_segments": 904,
    "commit_offsets_before_transaction_ends": 5,
    "commit_segments_before_upload": 0,
    "commit_segments_out_of_order": 0,
    "count_grace_by_wall_clock": 9,
    "delete_before_snapshots": 15,
    "delete_without_grace": 9,
    "drop_offsets_of_committed_transactions": 3,
    "end_transactions_in_one_partition": 3,
    "expire_one_extent_too_many": 3,
    "find_timestamps_one_offset_late": 2,
    "keep_deleted_topics_in_cache": 25,
    "omit_last_aborted_transaction": 3,
    "plan_high_watermark_as_stable": 3,
    "read_undecided_records": 3,
    "remove_segments_before_deletion": 2,
    "replace_extents_without_check": 2,
    "return_unstable_offsets": 144,
    "reuse_producer_ids": 0,
    "serve_before_catching_up": 5,
    "share_acknowledge_before_commit": 21,
    "share_acknowledge_without_lock": 38,
    "share_acquire_locked_records": 165,
    "share_deliver_without_limit": 113,
    "share_drop_released_records": 22,
    "share_redeliver_accepted_records": 21,
    "share_release_locks_of_all_members": 38,
    "share_skip_transactional_records": 22,
    "skip_producer_fencing": 67,
    "skip_read_index": 99,
    "skip_transaction_epoch_of_batches": 8,
    "store_duplicate_batches": 7,
    "sweep_young_segments": 2,
    "write_commit_markers_for_aborts": 3,
}
# Those that only runs with several clusters find, and the seed that found it last.
CLUSTERS_SEEDS_MAX = 15
CLUSTERS_FOUND_LAST = {
    "count_rest_by_wall_clock": 0,
    "count_undelete_window_by_own_clock": 0,
    "free_name_without_deletion_of_journal": 0,
    "name_brokers_of_all_pools": 0,
    "use_flushers_of_all_pools": 0,
}


def runs_for(name: str) -> list[str]:
    """The names of the runs that should find a mutant, in the order in which they are tried."""
    if name == CONSUMER_GROUP_MUTANT:
        return [str(seed) for seed in itertools.islice(_consumer_group_seeds(), CONSUMER_GROUP_SEEDS_MAX)]
    if name == SHORT_TIMEOUTS_MUTANT:
        return [f"{seed}{SHORT_TIMEOUTS_SUFFIX}" for seed in _first_of(SHORT_TIMEOUTS_FOUND_LAST)]
    if name in CLUSTERS_FOUND_LAST:
        return [f"{seed}{CLUSTERS_SUFFIX}" for seed in _first_of(CLUSTERS_FOUND_LAST[name])[:CLUSTERS_SEEDS_MAX]]
    return [str(seed) for seed in _first_of(FOUND_LAST.get(name, 0))]


def _first_of(found_last: int) -> list[int]:
    return [found_last, *(seed for seed in range(SEEDS_MAX) if seed != found_last)]


def _consumer_group_seeds() -> Iterator[int]:
    """The seeds with a group of KIP-848, unless they have an upgrade."""
    for seed in itertools.count():
        if Chance(seed).stream(CONSUMER_PROTOCOL_STREAM).random() < CONSUMER_PROTOCOL_SHARE:
            yield seed

"""Selects the closed buffers for one commit, and maps the results of a commit to batches. Pure."""

import itertools
from collections.abc import Iterable

from penstock.contracts.batches import BatchResult
from penstock.contracts.commands import Outcome, SegmentCommitted
from penstock.contracts.errors import Corrupt
from penstock.segment import BuiltSegment

# The largest sizes of a command, a run and a batch in MessagePack, with every number at its longest.
COMMAND_BYTES_MAX, RUN_BYTES_MAX, BATCH_BYTES_MAX = 256, 40, 42


def commit_group_size(stored: Iterable[BuiltSegment], commit_bytes_max: int) -> int:
    """The number of stored segments, oldest first, for one commit: as many as fit, and at least one."""
    count = size_bytes = 0
    for built in stored:
        size_bytes += _command_bytes_max(built)
        if count and size_bytes > commit_bytes_max:
            break
        count += 1
    return count


def results_in_arrival_order(built: BuiltSegment, outcome: Outcome) -> list[BatchResult]:
    """The results of a committed segment's batches in the order of arrival, from the order in the file."""
    if not isinstance(outcome, SegmentCommitted):
        raise Corrupt(f"the answer to a commit is a {type(outcome).__name__}")
    in_file = list(itertools.chain.from_iterable(outcome.runs))
    if len(in_file) != len(built.order):
        raise Corrupt(f"the answer to a commit of {len(built.order)} batches has {len(in_file)} results")
    results: list[BatchResult] = in_file[:]
    for result, index in zip(in_file, built.order, strict=True):
        results[index] = result
    return results


def _command_bytes_max(built: BuiltSegment) -> int:
    return COMMAND_BYTES_MAX + RUN_BYTES_MAX * len(built.runs) + BATCH_BYTES_MAX * len(built.order)

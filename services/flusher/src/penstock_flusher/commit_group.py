"""Decides which closed buffers go into one commit, and which result belongs to which batch. Pure."""

import itertools
from collections.abc import Iterable

from penstock.contracts.batches import BatchResult
from penstock.contracts.commands import Outcome, SegmentCommitted
from penstock.contracts.errors import Corrupt
from penstock.segment import BuiltSegment

# The most that a command, a run and a batch take in msgpack: every number at its longest.
COMMAND_BYTES_MAX, RUN_BYTES_MAX, BATCH_BYTES_MAX = 256, 40, 42


def commit_group_size(stored: Iterable[BuiltSegment], commit_bytes_max: int) -> int:
    """How many of the stored segments, oldest first, go into one commit: as many as fit, and at least one."""
    count = size_bytes = 0
    for built in stored:
        size_bytes += _command_bytes_max(built)
        if count and size_bytes > commit_bytes_max:
            break
        count += 1
    return count


def results_in_arrival_order(built: BuiltSegment, outcome: Outcome) -> list[BatchResult]:
    """The results of a committed segment's batches, back from the order in the file to that of their arrival."""
    if not isinstance(outcome, SegmentCommitted):
        raise Corrupt(f"a commit was answered with {type(outcome).__name__}")
    in_file = list(itertools.chain.from_iterable(outcome.runs))
    if len(in_file) != len(built.order):
        raise Corrupt(f"a commit of {len(built.order)} batches was answered with {len(in_file)} results")
    results: list[BatchResult] = in_file[:]
    for result, index in zip(in_file, built.order, strict=True):
        results[index] = result
    return results


def _command_bytes_max(built: BuiltSegment) -> int:
    return COMMAND_BYTES_MAX + RUN_BYTES_MAX * len(built.runs) + BATCH_BYTES_MAX * len(built.order)

"""Selects the closed buffers for one commit, and maps the results of a commit to batches. Pure."""

import itertools
from collections.abc import Collection, Iterable, Set

import msgspec

from penstock.contracts.batches import NO_PRODUCER, BatchMeta, BatchResult, BatchRun
from penstock.contracts.commands import Outcome, SegmentCommitted
from penstock.contracts.errors import Corrupt
from penstock.contracts.rejections import Rejection
from penstock.segment import BuiltSegment

# The largest sizes of a command, a run and a batch in MessagePack, with every number at its longest.
COMMAND_BYTES_MAX, RUN_BYTES_MAX, BATCH_BYTES_MAX = 256, 40, 47
PRINCIPAL_HEAD_BYTES_MAX = 5


def commit_group_size(stored: Iterable[tuple[BuiltSegment, Collection[str]]], commit_bytes_max: int) -> int:
    """The number of stored segments, oldest first, for one commit: as many as fit, and at least one.

    Each comes with the principals of its batches.
    """
    count = size_bytes = 0
    for built, principals in stored:
        size_bytes += _command_bytes_max(built, principals)
        if count and size_bytes > commit_bytes_max:
            break
        count += 1
    return count


def runs_without(built: BuiltSegment, dropped: Set[int]) -> list[BatchRun]:
    """The segment's runs without some batches, which are named by their place in the order of arrival."""
    if not dropped:
        return built.runs
    runs = []
    order = iter(built.order)
    for run in built.runs:
        start = position = run.position
        kept: list[BatchMeta] = []
        for meta in run.batches:
            position += meta.length
            if next(order) not in dropped:
                kept.append(meta)
                continue
            if kept:
                runs.append(BatchRun(run.topic_id, run.partition, start, kept))
            start, kept = position, []
        if kept:
            runs.append(BatchRun(run.topic_id, run.partition, start, kept))
    return runs


def results_in_arrival_order(built: BuiltSegment, dropped: Set[int], outcome: Outcome) -> list[BatchResult]:
    """The results of a committed segment's batches in the order of arrival, from the order in the file.

    A dropped batch has no result in the outcome. It was certainly not committed.
    """
    if not isinstance(outcome, SegmentCommitted):
        raise Corrupt(f"the answer to a commit is a {type(outcome).__name__}")
    in_file = list(itertools.chain.from_iterable(outcome.runs))
    kept = [index for index in built.order if index not in dropped]
    if len(in_file) != len(kept):
        raise Corrupt(f"the answer to a commit of {len(kept)} batches has {len(in_file)} results")
    results = [BatchResult(Rejection.OVERLOADED)] * len(built.order)
    for result, index in zip(in_file, kept, strict=True):
        results[index] = result
    return results


def named(meta: BatchMeta, principal: str, principals: dict[str, int]) -> BatchMeta:
    """The metadata with its sender's place among the segment's `principals`, which may grow.

    Only the sender of an idempotent batch matters, since its producer takes a place in a table (ADR 0040).
    """
    if not principal or meta.producer_id == NO_PRODUCER:
        return meta
    return msgspec.structs.replace(meta, principal=principals.setdefault(principal, len(principals) + 1))


def _command_bytes_max(built: BuiltSegment, principals: Collection[str]) -> int:
    names = sum(len(each.encode()) + PRINCIPAL_HEAD_BYTES_MAX for each in principals)
    return COMMAND_BYTES_MAX + RUN_BYTES_MAX * len(built.runs) + BATCH_BYTES_MAX * len(built.order) + names

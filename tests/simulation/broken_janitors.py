"""Janitors, and a machine that lets go of records, broken in the ways that would be worst; each must be caught."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any
from unittest import mock

from penstock.contracts.configs.topics import RetentionConfigs
from penstock_janitor.checkpoints import Checkpoints
from penstock_janitor.deletion import Deleted, Deletion, PendingDelete
from penstock_janitor.judge import Now, Rules
from penstock_janitor.reaper import Reaper
from penstock_sequencer.core.log import retention
from penstock_sequencer.core.state.cluster import Partition, State

Break = Callable[[], AbstractContextManager[Any]]

ALWAYS = 2**62  # as a sequence or an age: beyond all that there are


@contextmanager
def _all(*patches: AbstractContextManager[Any]) -> Iterator[None]:
    with ExitStack() as stack:
        for patch in patches:
            stack.enter_context(patch)
        yield


def delete_without_a_grace() -> AbstractContextManager[Any]:
    """A janitor deletes what is condemned at once, whoever may still read it."""
    return _all(
        mock.patch("penstock_janitor.service.Rules", lambda _, orphan_age_ms: Rules(0, orphan_age_ms)),
        mock.patch("penstock_janitor.service.Checkpoints", lambda _: Checkpoints(0)),
    )


def count_the_grace_by_its_own_clock() -> AbstractContextManager[Any]:
    """A janitor counts the grace by its own wall clock, and by nothing else."""

    def believe_own(_clock_ms: int, own_ms: int, secured_sequence: int, _watched_sequence: int) -> Now:
        return Now(own_ms, own_ms, secured_sequence, ALWAYS)

    return mock.patch("penstock_janitor.reaper.Now", believe_own)


def age_orphans_by_its_own_clock() -> AbstractContextManager[Any]:
    """A janitor counts the age of what nobody knows by its own wall clock only."""
    return mock.patch("penstock_janitor.judge._age_ms", lambda begun_ms, now: now.own_ms - begun_ms)


def sweep_what_is_young() -> AbstractContextManager[Any]:
    """A janitor takes everything for an orphan that is not committed yet."""
    return mock.patch("penstock_janitor.service.Rules", lambda grace_ms, _: Rules(grace_ms, -ALWAYS))


def remove_before_deletion() -> AbstractContextManager[Any]:
    """A janitor has the journal forget segments whose objects it deletes only then."""
    delete, end = Deletion.delete, Reaper._end

    async def delete_later(self: Deletion, pending_delete: Sequence[PendingDelete]) -> Deleted:
        if all(each.segment_id for each in pending_delete):
            return Deleted(list(pending_delete))
        return await delete(self, pending_delete)

    async def end_then_delete(self: Reaper, job_id: str, deleted: Deleted) -> None:
        await end(self, job_id, deleted)
        await delete(self._deletion, deleted.gone)

    return _all(mock.patch.object(Deletion, "delete", delete_later), mock.patch.object(Reaper, "_end", end_then_delete))


def delete_before_snapshots_know() -> AbstractContextManager[Any]:
    """A janitor deletes what a journal made anew from the store would still point to."""

    def believe_secured(clock_ms: int, own_ms: int, _secured_sequence: int, watched_sequence: int) -> Now:
        return Now(clock_ms, own_ms, ALWAYS, watched_sequence)

    return mock.patch("penstock_janitor.reaper.Now", believe_secured)


def commit_what_is_old() -> AbstractContextManager[Any]:
    """The machine takes the commit of a flusher that stood still for so long that its segment is swept."""
    return mock.patch("penstock_sequencer.core.commits.segment_commit._is_too_old", lambda *_: False)


def expire_one_more() -> AbstractContextManager[Any]:
    """The machine lets one extent go that retention keeps."""
    count_expired = retention.count_expired

    def count_one_more(
        state: State, clock_ms: int, partition: Partition, configs: RetentionConfigs, count_max: int
    ) -> int:
        expired = count_expired(state, clock_ms, partition, configs, count_max)
        return min(expired + 1, count_max, len(partition.extents))

    return mock.patch("penstock_sequencer.core.log.retention.count_expired", count_one_more)


BROKEN_JANITORS: dict[str, Break] = {
    each.__name__: each
    for each in (
        delete_without_a_grace,
        count_the_grace_by_its_own_clock,
        age_orphans_by_its_own_clock,
        sweep_what_is_young,
        remove_before_deletion,
        delete_before_snapshots_know,
        commit_what_is_old,
        expire_one_more,
    )
}

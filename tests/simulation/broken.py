"""Deliberately broken services, each in one of the ways that would be worst; the simulator must catch every one."""

import asyncio
import contextlib
import copy
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

from penstock.contracts.batches import BatchMeta, BatchResult
from penstock.contracts.codec import Buffer
from penstock.contracts.commands import AllocateProducer, CommandReply, CommandRequest, ProducerAllocated
from penstock.contracts.errors import Unavailable
from penstock.contracts.rejections import Rejection
from penstock_flusher.flush import Flush, FlushQueue
from penstock_gateway.fetch.timestamp_search import first_at
from penstock_gateway.kafka.topic_cache import TopicCache
from penstock_sequencer.core import machine
from penstock_sequencer.core.groups.classic_group import check_member
from penstock_sequencer.core.log.producers import accept, allocate_producer
from penstock_sequencer.core.state.cluster import Changes, Group, Partition, State
from penstock_sequencer.replication.read_index import ReadIndex
from penstock_sequencer.service import Sequencer
from penstock_sequencer.serving.request_server import RequestServer

PRODUCERS = 2  # that ask for ids

Break = Callable[[], AbstractContextManager[Any]]


def acknowledge_before_commit() -> AbstractContextManager[Any]:
    """A sequencer answers with what would come of the commands, while their entry is still on its way."""

    async def answer_at_once(self: RequestServer, request: CommandRequest, _ticket: int) -> CommandReply:
        async def journal_later() -> None:
            with contextlib.suppress(Unavailable):  # it was answered long ago
                await self._proposer.propose(request.commands)

        assert self._owner is not None
        self._owner.create_task(journal_later())
        guess = copy.deepcopy(self._replica.state)
        outcomes, _ = machine.apply_entry(guess, guess.sequence + 1, [request.commands])
        return CommandReply(self._replica.applied_sequence, outcomes[0], clock_ms=guess.clock_ms)

    return mock.patch.object(RequestServer, "_command", answer_at_once)


def acknowledge_before_upload() -> AbstractContextManager[Any]:
    """A flusher commits segments that are not in the store yet."""
    upload = FlushQueue._upload

    async def commit_already(self: FlushQueue, flush: Flush) -> None:
        uploading = asyncio.create_task(upload(self, flush))
        while flush.built is None and not uploading.done():
            await asyncio.sleep(0)
        flush.uploaded.set()
        await uploading

    return mock.patch.object(FlushQueue, "_upload", commit_already)


def commit_out_of_order() -> AbstractContextManager[Any]:
    """A flusher commits segments as they are uploaded, not as their buffers closed."""
    upload = FlushQueue._upload

    async def upload_then_first(self: FlushQueue, flush: Flush) -> None:
        await upload(self, flush)
        waiting = [each for each in self._to_commit if each.uploaded.is_set()]
        self._to_commit.remove(flush)
        self._to_commit.insert(len(waiting), flush)

    async def commit_for_ever(self: FlushQueue) -> None:
        while True:
            while not (self._to_commit and self._to_commit[0].uploaded.is_set()):
                await asyncio.sleep(0.01)
            if self._to_commit[0].built is not None:
                await self._commit(self._next_group())

    return mock.patch.multiple(FlushQueue, _upload=upload_then_first, _commit_for_ever=commit_for_ever)


def remove_duplicates() -> AbstractContextManager[Any]:
    """The machine takes a batch that it has already for a new one."""

    def accept_again(state: State, partition: Partition, batch: BatchMeta, offset: int) -> BatchResult | None:
        verdict = accept(state, partition, batch, offset)
        return None if verdict is not None and not verdict.rejection else verdict

    return mock.patch("penstock_sequencer.core.commits.segment_commit.accept", accept_again)


def answer_duplicates_with_new_offset() -> AbstractContextManager[Any]:
    """The machine knows a duplicate, and answers with the offset that it would get now."""

    def place_anew(state: State, partition: Partition, batch: BatchMeta, offset: int) -> BatchResult | None:
        verdict = accept(state, partition, batch, offset)
        if verdict is None or verdict.rejection:
            return verdict
        return BatchResult(0, offset, partition.log_start_offset)

    return mock.patch("penstock_sequencer.core.commits.segment_commit.accept", place_anew)


def serve_before_catching_up() -> AbstractContextManager[Any]:
    """A sequencer answers from whatever it has replayed so far."""

    async def catch_up_never(_self: Sequencer) -> None:
        """Be content."""

    return mock.patch.object(Sequencer, "_catch_up", catch_up_never)


def answer_from_the_past() -> AbstractContextManager[Any]:
    """A sequencer does not ask how far the journal reaches before it answers what asks for the present."""

    async def be_content(_self: ReadIndex, _timeout_s: float) -> int:
        return 0

    return mock.patch.object(ReadIndex, "ask", be_content)


def take_late_commits() -> AbstractContextManager[Any]:
    """The machine takes a group's offset whatever its sender knew."""
    return mock.patch("penstock_sequencer.core.groups.offset_commit._newest_known", lambda _state, _before: 0)


def replace_whatever_is_there() -> AbstractContextManager[Any]:
    """The machine lets compaction replace extents that are not the ones that it was planned with."""
    return mock.patch("penstock_sequencer.core.maintenance.replace_extents._are_inputs", lambda *_: True)


def keep_deleted_topics() -> AbstractContextManager[Any]:
    """A gateway never learns that a topic it knows was deleted."""

    def keep(_self: TopicCache, _names: object = ()) -> None:
        """Know it all."""

    return mock.patch.multiple(TopicCache, remove=keep, remove_all=keep)


def find_times_too_late() -> AbstractContextManager[Any]:
    """A gateway takes the offset behind a time's first record for the answer."""

    def find_next(batch: Buffer, time_ms: int, *others: int) -> tuple[int, int] | None:
        found = first_at(batch, time_ms, *others)
        return None if found is None else (found[0] + 1, found[1])

    return mock.patch("penstock_gateway.fetch.timestamp_search.first_at", find_next)


def let_former_members_stay() -> AbstractContextManager[Any]:
    """The machine takes a member for present although another has come with its instance id."""

    def check_instance(group: Group, member_id: str, instance_id: str | None) -> Rejection:
        return Rejection.NONE if instance_id in group.static_members else check_member(group, member_id, instance_id)

    return mock.patch("penstock_sequencer.core.all_groups.queries.check_member", check_instance)


def give_out_producer_ids_again() -> AbstractContextManager[Any]:
    """The machine gives a producer that comes back the id of one that was there before."""

    def allocate_again(state: State, command: AllocateProducer, changes: Changes) -> ProducerAllocated:
        allocated = allocate_producer(state, command, changes)
        return ProducerAllocated(max(1, allocated.producer_id - PRODUCERS), 0)

    return mock.patch.dict("penstock_sequencer.core.machine.APPLY", {AllocateProducer: allocate_again})


BROKEN: dict[str, Break] = {
    each.__name__: each
    for each in (
        acknowledge_before_commit,
        acknowledge_before_upload,
        commit_out_of_order,
        remove_duplicates,
        answer_duplicates_with_new_offset,
        serve_before_catching_up,
        answer_from_the_past,
        take_late_commits,
        replace_whatever_is_there,
        keep_deleted_topics,
        find_times_too_late,
        let_former_members_stay,
        give_out_producer_ids_again,
    )
}

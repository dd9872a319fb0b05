"""OffsetCommit: commits offsets of a group, with a result for each partition."""

import itertools
from collections.abc import Iterable
from typing import Protocol

from penstock.contracts.commands import CommitOffsets, Outcome, PerItem, Rejected
from penstock.contracts.errors import Unavailable
from penstock.contracts.rejections import Rejection
from penstock.kafkawire.api.offset_commit import (
    API as API,
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from penstock.kafkawire.error_codes import ErrorCode
from penstock.runtime.concurrency.slices import Slices
from penstock_gateway.coordination.group_commands import group_command
from penstock_gateway.coordination.known_outage import HasKnownOutage
from penstock_gateway.coordination.offset_commits import (
    answers_by_topic,
    ids_by_name,
    offsets_to_commit,
    own_error,
    with_names,
)
from penstock_gateway.kafka.client import Client
from penstock_gateway.kafka.error_mapping import COMMITS_UNAVAILABLE, error_of
from penstock_gateway.kafka.parts import HasClock, HasSequencer, HasTopics

FIRST_VERSION_NO_GROUP = 9  # KIP-848; before it the error for an unknown group is ILLEGAL_GENERATION
FIRST_VERSION_IDS = 10  # of topics

# Not longer than a heartbeat waits: the heartbeats of the same connection are answered after the commit.
DEADLINE_S = 3.0


class Needs(HasClock, HasKnownOutage, HasSequencer, HasTopics, Protocol):
    """The parts of the gateway that this module uses."""


async def handle(gateway: Needs, client: Client, version: int, request: OffsetCommitRequest) -> OffsetCommitResponse:
    by_id = version >= FIRST_VERSION_IDS
    try:
        topics = await with_names(gateway.topics, request.topics) if by_id else request.topics
    except Unavailable:
        return await _answer(request.topics, itertools.repeat(COMMITS_UNAVAILABLE))
    slices = Slices()
    offsets = await offsets_to_commit(topics, slices)
    own_errors = [own_error(each, by_id) async for each in slices.of(offsets)]
    kept = [offset for offset, error in zip(offsets, own_errors, strict=True) if not error]
    command = CommitOffsets(
        now_ms=gateway.clock.now_ms(),
        group_id=request.group_id,
        generation=request.generation_id_or_member_epoch,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        offsets=kept,
        seen_sequence=client.seen_sequence,
        principal=client.principal,
        topic_ids=ids_by_name(topics),
    )
    try:
        answered = iter(await _commit(gateway, client, version, command) if kept or not offsets else ())
        errors = [error or next(answered) for error in own_errors]
    except Unavailable:
        gateway.known_outage.record_failure(gateway.clock.monotonic_s())
        errors = [COMMITS_UNAVAILABLE] * len(offsets)
    return await _answer(topics, errors)


async def _answer(topics: list[OffsetCommitRequestTopic], errors: Iterable[ErrorCode]) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=await answers_by_topic(
            topics, errors, Slices(), OffsetCommitResponseTopic, OffsetCommitResponsePartition
        )
    )


async def _commit(gateway: Needs, client: Client, version: int, command: CommitOffsets) -> list[ErrorCode]:
    deadline_s = gateway.known_outage.deadline_s(DEADLINE_S, gateway.clock.monotonic_s())
    outcome = await group_command(gateway, client, command, deadline_s)
    return _errors(version, outcome, len(command.offsets))


def _errors(version: int, outcome: Outcome, count: int) -> list[ErrorCode]:
    if (
        isinstance(outcome, Rejected)
        and outcome.rejection == Rejection.UNKNOWN_GROUP
        and version < FIRST_VERSION_NO_GROUP
    ):
        return [ErrorCode.ILLEGAL_GENERATION] * count
    if isinstance(outcome, Rejected):
        return [_error(outcome.rejection)] * count
    assert isinstance(outcome, PerItem), f"unexpected outcome of a commit: {outcome}"
    return [_error(rejection) for rejection in outcome.rejections]


def _error(rejection: Rejection) -> ErrorCode:
    """Kafka's code. An overload is retriable here, because clients treat an unknown error as final."""
    return COMMITS_UNAVAILABLE if rejection == Rejection.OVERLOADED else error_of(rejection)

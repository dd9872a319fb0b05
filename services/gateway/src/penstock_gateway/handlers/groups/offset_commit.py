"""OffsetCommit: commits offsets of a group, with a result for each partition."""

from typing import Protocol

from penstock.contracts.commands import CommitOffsets, Outcome, PerItem, Rejected
from penstock.contracts.errors import Unavailable
from penstock.contracts.rejections import Rejection
from penstock.kafkawire.api.offset_commit import (
    API as API,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from penstock.kafkawire.error_codes import ErrorCode
from penstock_gateway.coordination.group_commands import group_command
from penstock_gateway.coordination.offset_commits import answers_by_topic, offsets_to_commit
from penstock_gateway.kafka.client import Client
from penstock_gateway.kafka.error_mapping import GROUPS_UNAVAILABLE, error_of
from penstock_gateway.kafka.parts import HasClock, HasSequencer

FIRST_VERSION_NO_GROUP = 9  # KIP-848; before it the error for an unknown group is ILLEGAL_GENERATION


class Needs(HasClock, HasSequencer, Protocol):
    """The parts of the gateway that this module uses."""


async def handle(gateway: Needs, client: Client, version: int, request: OffsetCommitRequest) -> OffsetCommitResponse:
    offsets = offsets_to_commit(request.topics)
    command = CommitOffsets(
        now_ms=gateway.clock.now_ms(),
        group_id=request.group_id,
        generation=request.generation_id_or_member_epoch,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        offsets=offsets,
        seen_sequence=gateway.sequencer.seen_sequence,
    )
    try:
        errors = _errors(version, await group_command(gateway, command), len(offsets))
    except Unavailable:
        errors = [GROUPS_UNAVAILABLE] * len(offsets)
    answers = answers_by_topic(request.topics, errors, OffsetCommitResponseTopic, OffsetCommitResponsePartition)
    return OffsetCommitResponse(topics=answers)


def _errors(version: int, outcome: Outcome, count: int) -> list[ErrorCode]:
    if (
        isinstance(outcome, Rejected)
        and outcome.rejection == Rejection.UNKNOWN_GROUP
        and version < FIRST_VERSION_NO_GROUP
    ):
        return [ErrorCode.ILLEGAL_GENERATION] * count
    if isinstance(outcome, Rejected):
        return [error_of(outcome.rejection)] * count
    assert isinstance(outcome, PerItem), f"unexpected outcome of a commit: {outcome}"
    return [error_of(rejection) for rejection in outcome.rejections]

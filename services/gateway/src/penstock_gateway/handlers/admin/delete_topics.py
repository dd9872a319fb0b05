"""DeleteTopics: deletes topics by name, and from version 6 on also by id (KIP-516)."""

from collections import Counter
from typing import Protocol

from penstock.contracts.commands import DeleteTopic, Rejected, Tick
from penstock.contracts.errors import Unavailable
from penstock.contracts.ids import NO_TOPIC_ID, is_internal_topic, is_legal_topic_name
from penstock.contracts.queries.topics import TopicView
from penstock.contracts.rejections import Rejection
from penstock.kafkawire.api.delete_topics import (
    API as API,
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from penstock.kafkawire.error_codes import ErrorCode
from penstock.runtime.concurrency.slices import Slices
from penstock_gateway.kafka.client import Client
from penstock_gateway.kafka.parts import HasClock, HasSequencer, HasTopics
from penstock_gateway.metadata.admin_commands import AdminResult, result_of, run_commands
from penstock_gateway.quotas.partition_mutation_quota import EXCEEDED, admits
from penstock_gateway.quotas.quota_cache import HasQuotas

FIRST_VERSION_MUTATIONS = 5  # with an error for topics above the quota (KIP-599)
FIRST_VERSION_IDS = 6
INTERNAL: AdminResult = (ErrorCode.INVALID_TOPIC_EXCEPTION, "Cannot delete an internal topic.")


class Needs(HasClock, HasQuotas, HasSequencer, HasTopics, Protocol):
    """The parts of the gateway that this module uses."""


async def handle(gateway: Needs, client: Client, version: int, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    slices = Slices()
    if version >= FIRST_VERSION_IDS:
        asked = Counter(request.topics)
    else:
        asked = Counter([DeleteTopicState(name) async for name in slices.of(request.topic_names)])
    results = {topic: _validation_error(topic, times) async for topic, times in slices.of(asked.items())}
    good = [topic for topic, (error, _) in results.items() if not error]
    try:
        found = await _find(gateway, good, request.timeout_ms)
    except Unavailable as error:
        results |= dict.fromkeys(good, result_of(Rejected(Rejection.OUTCOME_UNKNOWN, str(error))))
        found = {}
    else:
        results |= {topic: (_unknown(topic), None) async for topic in slices.of(good) if topic not in found}
    internal = [topic for topic, view in found.items() if is_internal_topic(view.name)]
    results |= dict.fromkeys(internal, INTERNAL)
    is_strict = version >= FIRST_VERSION_MUTATIONS
    exceeding = [
        topic
        for topic, view in found.items()
        if topic not in internal and not admits(gateway, client, view.partitions, is_strict=is_strict)
    ]
    results |= dict.fromkeys(exceeding, EXCEEDED)
    found = {topic: view for topic, view in found.items() if topic not in exceeding and topic not in internal}
    commands = [DeleteTopic(gateway.clock.now_ms(), "", view.topic_id) for view in found.values()]
    outcomes = await run_commands(gateway, commands, request.timeout_ms)
    async for topic, outcome in slices.of(zip(found, outcomes, strict=True)):
        results[topic] = result_of(outcome)
        if isinstance(outcome, Rejected) and outcome.rejection == Rejection.UNKNOWN_TOPIC:
            results[topic] = _unknown(topic), None
    gateway.topics.remove(view.name for view in found.values())
    return DeleteTopicsResponse(
        responses=[_result(topic, found, *result) async for topic, result in slices.of(results.items())]
    )


async def _find(gateway: Needs, asked: list[DeleteTopicState], timeout_ms: int) -> dict[DeleteTopicState, TopicView]:
    """The topics that exist, with the ids that their names have when the request arrives.

    Topics are deleted by id: a delayed deletion by name, that was sent again meanwhile, could delete a newer topic of
    that name. The Tick is journaled, so the query after it sees all changes before the request, through any gateway.
    """
    if not asked:
        return {}
    (ticked,) = await run_commands(gateway, [Tick(gateway.clock.now_ms())], timeout_ms)
    if isinstance(ticked, Rejected):
        raise Unavailable(ticked.message)
    names = [topic.name for topic in asked if topic.name is not None]
    topic_ids = [topic.topic_id for topic in asked if topic.name is None]
    known = (gateway.topics.cached_id(topic_id) for topic_id in topic_ids)
    gateway.topics.remove([*names, *(view.name for view in known if view is not None)])
    by_name, by_id = await gateway.topics.find(names), await gateway.topics.find_ids(topic_ids)
    found = {}
    async for topic in Slices().of(asked):
        view = by_id.get(topic.topic_id) if topic.name is None else by_name.get(topic.name)
        if view is not None:
            found[topic] = view
    return found


def _unknown(topic: DeleteTopicState) -> ErrorCode:
    return ErrorCode.UNKNOWN_TOPIC_ID if topic.name is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _validation_error(topic: DeleteTopicState, times: int) -> AdminResult:
    if times > 1:
        return ErrorCode.INVALID_REQUEST, "the topic occurs more than once in the request"
    if topic.name is not None and topic.topic_id != NO_TOPIC_ID:
        return ErrorCode.INVALID_REQUEST, "send either the name or the id of a topic, not both"
    if topic.name is None and topic.topic_id == NO_TOPIC_ID:
        return ErrorCode.INVALID_REQUEST, "send the name or the id of the topic: the request has neither"
    if topic.name is not None and not is_legal_topic_name(topic.name):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None
    return ErrorCode.NONE, None


def _result(
    topic: DeleteTopicState, found: dict[DeleteTopicState, TopicView], error: ErrorCode, message: str | None
) -> DeletableTopicResult:
    view = found.get(topic)
    return DeletableTopicResult(
        name=view.name if topic.name is None and view is not None else topic.name,
        topic_id=topic.topic_id,
        error_code=error,
        error_message=message,
    )

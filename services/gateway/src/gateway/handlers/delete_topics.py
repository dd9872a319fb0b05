"""DeleteTopics: by name, or by id from version 6 on (KIP-516)."""

from collections import Counter

from gateway.administration import Verdict, run_commands, verdict_of
from gateway.context import Client, Gateway
from penstock.contracts.commands import DeleteTopic, Refused
from penstock.contracts.errors import Unavailable
from penstock.contracts.ids import NO_TOPIC_ID, TopicId, is_legal_topic_name
from penstock.contracts.refusals import Refusal
from penstock.kafkawire.api.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from penstock.kafkawire.error_codes import ErrorCode

FIRST_VERSION_IDS = 6


async def handle(gateway: Gateway, client: Client, version: int, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    if version >= FIRST_VERSION_IDS:
        asked = Counter(request.topics)
    else:
        asked = Counter(DeleteTopicState(name) for name in request.topic_names)
    names = await _names(gateway, [topic.topic_id for topic in asked if topic.name is None])
    verdicts = {topic: _objection(topic, times) for topic, times in asked.items()}
    good = [topic for topic, (error, _) in verdicts.items() if not error]
    commands = [DeleteTopic(gateway.clock.now_ms(), topic.name or "", topic.topic_id) for topic in good]
    outcomes = await run_commands(gateway, commands, request.timeout_ms)
    for topic, outcome in zip(good, outcomes, strict=True):
        verdicts[topic] = verdict_of(outcome)
        if isinstance(outcome, Refused) and outcome.refusal == Refusal.UNKNOWN_TOPIC and topic.name is None:
            verdicts[topic] = ErrorCode.UNKNOWN_TOPIC_ID, None
    gateway.topics.forget(topic.name or names.get(topic.topic_id, "") for topic in good)
    return DeleteTopicsResponse(responses=[_result(topic, names, *verdict) for topic, verdict in verdicts.items()])


def _objection(topic: DeleteTopicState, times: int) -> Verdict:
    if times > 1:
        return ErrorCode.INVALID_REQUEST, "the topic occurs more than once in the request"
    if topic.name is not None and topic.topic_id != NO_TOPIC_ID:
        return ErrorCode.INVALID_REQUEST, "a topic is named or identified, not both"
    if topic.name is None and topic.topic_id == NO_TOPIC_ID:
        return ErrorCode.INVALID_REQUEST, "neither name nor id"
    if topic.name is not None and not is_legal_topic_name(topic.name):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None
    return ErrorCode.NONE, None


async def _names(gateway: Gateway, topic_ids: list[TopicId]) -> dict[TopicId, str]:
    try:
        found = await gateway.topics.find_ids(topic_ids)
    except Unavailable:
        return {}
    return {topic_id: view.name for topic_id, view in found.items()}


def _result(
    topic: DeleteTopicState, names: dict[TopicId, str], error: ErrorCode, message: str | None
) -> DeletableTopicResult:
    return DeletableTopicResult(
        name=topic.name if topic.name is not None else names.get(topic.topic_id),
        topic_id=topic.topic_id,
        error_code=error,
        error_message=message,
    )

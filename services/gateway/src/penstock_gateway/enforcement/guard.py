"""Puts checks before a handler, and makes the usual kinds of checks: of a whole request, and of each item in a list."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from penstock.contracts.acls import CLUSTER_NAME, AclOperation, ResourceType
from penstock.kafkawire.api import API_TABLE
from penstock.kafkawire.error_codes import ErrorCode
from penstock.runtime.concurrency.slices import Slices
from penstock_gateway.handlers import Handler
from penstock_gateway.kafka.client import Client
from penstock_gateway.security.authorizer import Access, Authorizer

ERRORS: Mapping[ResourceType, ErrorCode] = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
# The texts of Kafka's Errors.
MESSAGES: Mapping[ErrorCode, str] = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "Topic authorization failed.",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "Group authorization failed.",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "Cluster authorization failed.",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "Transactional Id authorization failed.",
}

# The messages of all APIs pass here, so their types are not known.
Message = Any
Resource = tuple[AclOperation, ResourceType, str]  # the operation that a part of a request needs, and on which resource


@dataclass(frozen=True, slots=True)
class Call:
    """One request, apart from its message: the parts of the gateway, the client, and the client's access."""

    gateway: Any
    client: Client
    api_key: int
    version: int
    access: Access


Proceed = Callable[[Message], Awaitable[Message]]  # the later checks, and at last the handler
Check = Callable[[Call, Message, Proceed], Awaitable[Message]]
Checks = Mapping[int, Sequence[Check]]  # by the keys of APIs; in the order in which they run


def guarded(handlers: Mapping[int, Handler], checks: Checks, authorizer: Authorizer) -> dict[int, Handler]:
    """The handlers behind their checks. An API without an entry in `checks` is an error: it would be open to all."""
    return {key: _guarded(key, handler, checks[key], authorizer) for key, handler in handlers.items()}


def _guarded(api_key: int, handler: Handler, checks: Sequence[Check], authorizer: Authorizer) -> Handler:
    if not checks:
        return handler

    async def handle(gateway: Any, client: Client, version: int, request: Message) -> Message:
        access = authorizer.access(client, api_key)
        if access is None:
            return await handler(gateway, client, version, request)
        return await run_checks(Call(gateway, client, api_key, version, access), checks, handler, request)

    return handle


async def run_checks(call: Call, checks: Sequence[Check], handler: Handler, request: Message) -> Message:
    """Run the checks in their order, and the handler if they all pass the request on."""
    if not checks:
        return await handler(call.gateway, call.client, call.version, request)
    first, *rest = checks
    return await first(call, request, lambda passed: run_checks(call, rest, handler, passed))


def on_request(
    operation: AclOperation,
    resource_type: ResourceType,
    name_of: Callable[[Message], str],
    refused: Callable[[int, Message, ErrorCode], Message],
) -> Check:
    """A check of one resource for the whole request; `refused` makes the answer of version, request and error."""

    async def check(call: Call, request: Message, proceed: Proceed) -> Message:
        if call.access.allows(operation, resource_type, name_of(request)):
            return await proceed(request)
        return refused(call.version, request, ERRORS[resource_type])

    return check


def on_cluster(operation: AclOperation, refused: Callable[[int, Message, ErrorCode], Message]) -> Check:
    """A check of the cluster."""
    return on_request(operation, ResourceType.CLUSTER, lambda request: CLUSTER_NAME, refused)


def on_items(
    items: str,
    needed: Callable[[Message], Resource | None],
    results: str,
    refused: Callable[[Message, ErrorCode], Message],
) -> Check:
    """A check of each item in the list `items` of a request.

    The answers of refused items come after the others in the list `results` of the response. `needed` gives None for
    an item that needs nothing. If all items are refused, the request ends here.
    """

    async def check(call: Call, request: Message, proceed: Proceed) -> Message:
        allowed, refusals = await split(call, getattr(request, items), needed)
        answers = [refused(item, error) for item, error in refusals]
        return await _proceed_with(call, request, proceed, (items, allowed), (results, answers))

    return check


async def _proceed_with(
    call: Call,
    request: Message,
    proceed: Proceed,
    allowed: tuple[str, list[Message]],
    refused: tuple[str, list[Message]],
) -> Message:
    """Pass on the allowed items of a list, and add the refused ones to the list in the response."""
    items, results = allowed[0], refused[0]
    if not refused[1]:
        return await proceed(request)
    if allowed[1]:
        response = await proceed(msgspec.structs.replace(request, **{items: allowed[1]}))
    else:
        response = API_TABLE[call.api_key].response()
    return msgspec.structs.replace(response, **{results: [*getattr(response, results), *refused[1]]})


def on_topics(
    operation: AclOperation, first_version_ids: int, refused: Callable[[Message, ErrorCode], Message]
) -> Check:
    """A check of each item of `topics`, which have ids from a version on; the answers are in `topics`, too."""

    async def check(call: Call, request: Message, proceed: Proceed) -> Message:
        allowed, refusals = await split_topics(call, operation, first_version_ids, request.topics)
        answers = [refused(topic, error) for topic, error in refusals]
        return await _proceed_with(call, request, proceed, ("topics", allowed), ("topics", answers))

    return check


async def split_topics(
    call: Call, operation: AclOperation, first_version_ids: int, topics: Sequence[Message]
) -> tuple[list[Message], list[tuple[Message, ErrorCode]]]:
    """As `split`, for topics by `name`, and from a version on by `topic_id`."""
    if call.version >= first_version_ids:
        return await split_by_id(call, operation, topics)
    return await split(call, topics, lambda topic: (operation, ResourceType.TOPIC, topic.name))


async def split(
    call: Call, items: Sequence[Message] | None, needed: Callable[[Message], Resource | None]
) -> tuple[list[Message], list[tuple[Message, ErrorCode]]]:
    """The items that the client may use, and the others with their errors."""
    allowed, refused = [], []
    async for item in Slices().of(items or ()):
        resource = needed(item)
        if resource is None or call.access.allows(*resource):
            allowed.append(item)
        else:
            refused.append((item, ERRORS[resource[1]]))
    return allowed, refused


def on_results(results: str, operation: AclOperation, resource_type: ResourceType, name: str) -> Check:
    """A check that leaves out the items of an answer that the client may not see; it reports no denials."""

    async def check(call: Call, request: Message, proceed: Proceed) -> Message:
        response = await proceed(request)
        found = getattr(response, results)
        seen = [
            each
            async for each in Slices().of(found)
            if call.access.allows(operation, resource_type, getattr(each, name), reports=False)
        ]
        return response if len(seen) == len(found) else msgspec.structs.replace(response, **{results: seen})

    return check


async def split_by_id(
    call: Call, operation: AclOperation, topics: Sequence[Message]
) -> tuple[list[Message], list[tuple[Message, ErrorCode]]]:
    """As `split`, for items with a `topic_id`; a topic that does not exist is refused, too.

    The handler looks for the topics again. So it must not see a topic that was created after this check.
    """
    ids = list(dict.fromkeys(topic.topic_id for topic in topics))
    found = await call.gateway.topics.find_ids(ids) if ids else {}
    allowed, refused = [], []
    async for topic in Slices().of(topics):
        view = found.get(topic.topic_id)
        if view is None:
            refused.append((topic, ErrorCode.UNKNOWN_TOPIC_ID))
        elif call.access.allows(operation, ResourceType.TOPIC, view.name):
            allowed.append(topic)
        else:
            refused.append((topic, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    return allowed, refused

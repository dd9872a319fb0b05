"""Puts the recording of changes around the handlers of administrative APIs; other handlers stay as they are."""

import itertools
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import msgspec

from penstock.contracts.acls import user_principal
from penstock.kafkawire.api import API_TABLE
from penstock.kafkawire.error_codes import ErrorCode
from penstock.runtime.concurrency.slices import Slices
from penstock_gateway.audit_topic.change_log import ChangeLog
from penstock_gateway.audit_topic.changes import CHANGES, Change, ChangesOf
from penstock_gateway.audit_topic.token_changes import TOKEN_CHANGES
from penstock_gateway.handlers import Handler
from penstock_gateway.kafka.client import Client
from penstock_gateway.security.audit_trail import AuditEvent, AuditKind

SUCCEEDED, UNKNOWN = "succeeded", "unknown"
FindChanges = Callable[[Any], ChangesOf]  # in one gateway
UNANSWERED_MAX = 10_000  # changes of one request without an answer that are recorded at once: some milliseconds


def audited(handlers: Mapping[int, Handler], log: ChangeLog) -> dict[int, Handler]:
    """The handlers, with those of administrative APIs recording their changes."""
    finders: dict[int, FindChanges] = {key: partial(_same, changes_of) for key, changes_of in CHANGES.items()}
    finders |= {key: partial(partial, changes_of) for key, changes_of in TOKEN_CHANGES.items()}
    return {
        key: _audited(key, handler, finders[key], log) if key in finders else handler
        for key, handler in handlers.items()
    }


def _same(changes_of: ChangesOf, gateway: Any) -> ChangesOf:
    return changes_of


def _audited(api_key: int, handler: Handler, find_changes: FindChanges, log: ChangeLog) -> Handler:
    async def handle(gateway: Any, client: Client, version: int, request: Any) -> msgspec.Struct | None:
        changes_of = find_changes(gateway)
        if getattr(request, "validate_only", False):
            return await handler(gateway, client, version, request)
        try:
            response = await handler(gateway, client, version, request)
        except BaseException:  # the client may leave before its answer, and the change may be made all the same
            for change in itertools.islice(changes_of(request, None), UNANSWERED_MAX):
                log.record(_event(api_key, client, change))
            raise
        changes = iter(changes_of(request, response))
        try:
            async for change in Slices().of(changes):
                log.record(_event(api_key, client, change))
        finally:  # the client may leave now, too
            for change in itertools.islice(changes, UNANSWERED_MAX):
                log.record(_event(api_key, client, change))
        return response

    return handle


def _event(api_key: int, client: Client, change: Change) -> AuditEvent:
    return AuditEvent(
        kind=AuditKind.CHANGED,
        principal=user_principal(client.user),
        peer=client.host,
        listener=client.listener,
        api=API_TABLE[api_key].name,
        operation=change.operation,
        resource=change.resource,
        detail=change.detail,
        outcome=_outcome(change.error),
    )


def _outcome(error: int | None) -> str:
    if error is None:
        return UNKNOWN
    return ErrorCode(error).name if error else SUCCEEDED

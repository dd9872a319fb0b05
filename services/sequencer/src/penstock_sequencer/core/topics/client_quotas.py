"""Client quotas: rates for users, client ids and addresses. The state machine keeps them; gateways enforce them.

As with configurations, the sender of a change must have seen the last change (`seen_sequence`). A command may be
journaled long after its sender has sent it again elsewhere.
"""

from collections import Counter

from penstock.contracts.commands import AlterClientQuotas, Done, QuotaPart, Rejected
from penstock.contracts.configs.quotas import Entity, entity_of, entity_validation_error, value_validation_error
from penstock.contracts.queries.log import LogSizes, LogSizesQuery, LogSizesView
from penstock.contracts.queries.quotas import ClientQuotasQuery, ClientQuotasView, QuotaEntry
from penstock.contracts.rejections import Rejection
from penstock_sequencer.core.state.cluster import Changes, State, Topic
from penstock_sequencer.core.state.pages import NUMBER_BYTES, page_of, text_bytes


def alter_client_quotas(state: State, command: AlterClientQuotas, changes: Changes) -> Done | Rejected:
    """Change the quotas of the entity."""
    entity, altered = _altered(state, command)
    if isinstance(altered, Rejected):
        return altered
    if altered == state.client_quotas.get(entity, {}):
        return Done()
    if altered:
        state.client_quotas[entity] = altered
    else:
        del state.client_quotas[entity]
    state.quotas_altered_sequence = state.sequence
    return Done()


def check_alter_client_quotas(state: State, command: AlterClientQuotas) -> Done | Rejected:
    """The outcome that `alter_client_quotas` would have."""
    _, altered = _altered(state, command)
    return altered if isinstance(altered, Rejected) else Done()


def client_quotas(state: State, query: ClientQuotasQuery) -> ClientQuotasView:
    """All entities that have quotas."""
    entries = [
        QuotaEntry([QuotaPart(kind, name) for kind, name in entity], values)
        for entity, values in state.client_quotas.items()
    ]
    return ClientQuotasView(state.sequence, state.quotas_altered_sequence, entries)


def log_sizes(state: State, query: LogSizesQuery) -> LogSizesView:
    """The log sizes of the existing topics among those in the query, each once; pages as in `metadata`."""
    names, is_more = list(dict.fromkeys(query.names or ())), False
    if query.names is None:
        names, is_more = page_of(
            state.topics, query.after, state.limits.answers, lambda name: _sizes_bytes(state.topics[name])
        )
    topics = [state.topics[name] for name in names if name in state.topics]
    sizes = [LogSizes(topic.name, [partition.size_bytes for partition in topic.partitions]) for topic in topics]
    return LogSizesView(state.sequence, sizes, is_more=is_more)


def _sizes_bytes(topic: Topic) -> int:
    return text_bytes(topic.name) + NUMBER_BYTES * (1 + len(topic.partitions))


def _altered(state: State, command: AlterClientQuotas) -> tuple[Entity, dict[str, str] | Rejected]:
    """The entity, and its quotas after the command."""
    entity = entity_of([(part.kind, part.name) for part in command.entity])
    before = state.client_quotas.get(entity, {})
    after = _changed(command, entity, before)
    if isinstance(after, Rejected) or after == before:
        return entity, after
    if 0 <= command.seen_sequence < state.quotas_altered_sequence:
        return entity, Rejected(Rejection.STALE, "client quotas have been changed since")
    entities_max = state.limits.topics.quota_entities_max
    if not before and len(state.client_quotas) >= entities_max:
        return entity, Rejected(Rejection.INVALID_REQUEST, f"{entities_max} entities have quotas already")
    return entity, after


def _changed(command: AlterClientQuotas, entity: Entity, before: dict[str, str]) -> dict[str, str] | Rejected:
    reason = entity_validation_error(entity)
    twice = [key for key, count in Counter(change.key for change in command.changes).items() if count > 1]
    if not reason and twice:
        reason = f"more than once in the request: {', '.join(twice)}"
    after = dict(before)
    for change in command.changes:
        if change.value is None:
            after.pop(change.key, None)
        else:
            reason = reason or value_validation_error(entity, change.key, change.value)
            after[change.key] = change.value
    return Rejected(Rejection.INVALID_REQUEST, reason) if reason else {key: after[key] for key in sorted(after)}

"""The changes in the requests of administrators, by API, with their outcomes.

Values of configurations are left out: a broker's may be a password, even if Penstock does not accept it. No change has
the salt, the password or the iterations of a user.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from penstock.contracts.acls import CLUSTER_NAME, AclOperation, AclPermission, PatternType, ResourceType
from penstock.contracts.commands.security import ScramMechanism
from penstock.contracts.configs.quotas import value_text
from penstock.contracts.ids import topic_id_text
from penstock.kafkawire.api import (
    alter_client_quotas,
    alter_configs,
    alter_partition_reassignments,
    alter_share_group_offsets,
    alter_user_scram_credentials,
    create_acls,
    create_partitions,
    create_topics,
    delete_acls,
    delete_groups,
    delete_records,
    delete_share_group_offsets,
    delete_topics,
    incremental_alter_configs,
    offset_delete,
    write_txn_markers,
)

CREATE, DELETE, ALTER, ALTER_CONFIGS = "CREATE", "DELETE", "ALTER", "ALTER_CONFIGS"
CLUSTER = f"CLUSTER:{CLUSTER_NAME}"
CONFIGURED = {2: "TOPIC", 4: "BROKER", 8: "BROKER_LOGGER", 16: "CLIENT_METRICS", 32: "GROUP"}
CONFIG_OPERATIONS = {0: "set", 1: "delete", 2: "append", 3: "subtract"}


class Change(NamedTuple):
    """One change; `error` is Kafka's code, None if the outcome is not known."""

    operation: str
    resource: str
    error: int | None
    detail: str = ""


# The messages of all APIs pass here, so their types are not known.
Message = Any
ChangesOf = Callable[[Message, Message | None], Iterable[Change]]  # of request and response; None without an answer


def _named(
    items: str,
    results: str,
    operation: str,
    kind: str,
    *,
    result_name: str = "name",
    detail: Callable[[Message], str] = lambda item: "",
) -> ChangesOf:
    """The changes of an API whose items and results have names."""

    def changes(request: Message, response: Message | None) -> Iterator[Change]:
        answers = getattr(response, results) if response is not None else ()
        errors = {getattr(each, result_name): each.error_code for each in answers}
        for item in getattr(request, items):
            yield Change(operation, f"{kind}:{item.name}", errors.get(item.name), detail(item))

    return changes


def _new_topic(topic: create_topics.CreatableTopic) -> str:
    return " ".join([f"partitions={topic.num_partitions}", *(f"set {config.name}" for config in topic.configs)])


def _deleted_topics(request: delete_topics.DeleteTopicsRequest, response: Message | None) -> Iterator[Change]:
    if response is not None:  # has also the names of topics that were asked for by id
        for each in response.responses:
            yield Change(DELETE, _topic(each.name, each.topic_id), each.error_code)
        return
    for state in request.topics:
        yield Change(DELETE, _topic(state.name, state.topic_id), None)
    for name in request.topic_names:
        yield Change(DELETE, f"TOPIC:{name}", None)


def _topic(name: str | None, topic_id: bytes) -> str:
    return f"TOPIC:{topic_id_text(topic_id) if name is None else name}"


def _of_partitions(operation: str, results: str, detail: str = "") -> ChangesOf:
    """The changes of an API whose topics have results by partition: one for each topic, with its first error."""

    def changes(request: Message, response: Message | None) -> Iterator[Change]:
        answers = getattr(response, results) if response is not None else ()
        errors = {each.name: _first_error(each.partitions) for each in answers}
        whole = getattr(response, "error_code", 0) or None
        for topic in request.topics:
            count = f"{detail}partitions={len(topic.partitions)}"
            yield Change(operation, f"TOPIC:{topic.name}", whole or errors.get(topic.name), count)

    return changes


def _first_error(results: Iterable[Message]) -> int:
    return next((each.error_code for each in results if each.error_code), 0)


def _configs(request: Message, response: Message | None) -> Iterator[Change]:
    answers = response.responses if response is not None else ()
    errors = {(each.resource_type, each.resource_name): each.error_code for each in answers}
    for each in request.resources:
        kind = CONFIGURED.get(each.resource_type, "UNKNOWN")
        changed = (f"{_config_operation(config)} {config.name}" for config in each.configs)
        error = errors.get((each.resource_type, each.resource_name))
        yield Change(ALTER_CONFIGS, f"{kind}:{each.resource_name}", error, ", ".join(changed))


def _config_operation(config: Message) -> str:
    """The operation of one configuration. AlterConfigs has none: it sets these, and deletes all others."""
    return CONFIG_OPERATIONS.get(getattr(config, "config_operation", 0), "unknown")


def _created_acls(request: create_acls.CreateAclsRequest, response: Message | None) -> Iterator[Change]:
    results = response.results if response is not None else [None] * len(request.creations)
    for acl, result in zip(request.creations, results, strict=True):
        error = None if result is None else result.error_code
        resource = (acl.resource_type, acl.resource_pattern_type, acl.resource_name)
        rule = (acl.permission_type, acl.principal, acl.operation, acl.host)
        yield Change(ALTER, CLUSTER, error, _acl(resource, rule))


def _deleted_acls(request: delete_acls.DeleteAclsRequest, response: Message | None) -> Iterator[Change]:
    """The lists that were deleted, and the filters that deleted none."""
    results = response.filter_results if response is not None else [None] * len(request.filters)
    for asked, result in zip(request.filters, results, strict=True):
        matching = () if result is None else result.matching_acls
        for acl in matching:
            resource = (acl.resource_type, acl.pattern_type, acl.resource_name)
            rule = (acl.permission_type, acl.principal, acl.operation, acl.host)
            yield Change(ALTER, CLUSTER, acl.error_code, _acl(resource, rule))
        if not matching:
            error = None if result is None else result.error_code
            resource = (asked.resource_type_filter, asked.pattern_type_filter, asked.resource_name_filter)
            rule = (asked.permission_type, asked.principal_filter, asked.operation, asked.host_filter)
            yield Change(ALTER, CLUSTER, error, f"filter {_acl(resource, rule)}")


def _acl(resource: tuple[int, int, str | None], rule: tuple[int, str | None, int, str | None]) -> str:
    """One list, or a filter, where None matches anything: the resources by type, pattern and name, and the rule."""
    kind, pattern, name = resource
    permission, principal, operation, host = rule
    allowed = f"{_code(AclPermission, permission)} {principal or 'ANY'} {_code(AclOperation, operation)}"
    place = f"{_code(ResourceType, kind)}:{_code(PatternType, pattern)}:{'ANY' if name is None else name}"
    return f"{allowed} on {place} from {host or 'ANY'}"


def _code(kind: type[AclPermission | AclOperation | ResourceType | PatternType], code: int) -> str:
    try:
        return kind(code).name
    except ValueError:
        return "UNKNOWN"


def _credentials(
    request: alter_user_scram_credentials.AlterUserScramCredentialsRequest, response: Message | None
) -> Iterator[Change]:
    errors = {each.user: each.error_code for each in response.results} if response is not None else {}
    for verb, items in (("delete", request.deletions), ("set", request.upsertions)):
        for each in items:
            mechanism = next((known.name for known in ScramMechanism if known == each.mechanism), "UNKNOWN")
            yield Change(ALTER, f"USER:{each.name}", errors.get(each.name), f"{verb} {mechanism}")


def _quotas(request: alter_client_quotas.AlterClientQuotasRequest, response: Message | None) -> Iterator[Change]:
    answers = response.entries if response is not None else ()
    errors = {_entity(each): each.error_code for each in answers}
    for entry in request.entries:
        changed = [f"delete {op.key}" if op.remove else f"set {op.key}={value_text(op.value)}" for op in entry.ops]
        yield Change(ALTER_CONFIGS, f"CLIENT_QUOTA:{_entity(entry)}", errors.get(_entity(entry)), ", ".join(changed))


def _entity(entry: Message) -> str:
    parts = ((part.entity_type, part.entity_name) for part in entry.entity)
    return ",".join(sorted(f"{kind}={'<default>' if name is None else name}" for kind, name in parts))


def _deleted_groups(request: delete_groups.DeleteGroupsRequest, response: Message | None) -> Iterator[Change]:
    errors = {each.group_id: each.error_code for each in response.results} if response is not None else {}
    for group in request.groups_names:
        yield Change(DELETE, f"GROUP:{group}", errors.get(group))


def _group_offsets(operation: str, results: str, topic_name: str) -> ChangesOf:
    """The change of an API that alters or deletes offsets of one group."""

    def changes(request: Message, response: Message | None) -> Iterator[Change]:
        error = None
        if response is not None:
            topics = getattr(response, results)
            parts = (part for topic in topics for part in getattr(topic, "partitions", [topic]))
            error = response.error_code or _first_error(parts)
        names = ", ".join(getattr(topic, topic_name) for topic in request.topics)
        yield Change(operation, f"GROUP:{request.group_id}", error, f"offsets of {names}")

    return changes


def _markers(request: write_txn_markers.WriteTxnMarkersRequest, response: Message | None) -> Iterator[Change]:
    answers = response.markers if response is not None else ()
    errors = {
        each.producer_id: _first_error(part for topic in each.topics for part in topic.partitions) for each in answers
    }
    for marker in request.markers:
        names = ", ".join(topic.name for topic in marker.topics)
        verb = "commit" if marker.transaction_result else "abort"
        error = errors.get(marker.producer_id)
        yield Change(ALTER, f"PRODUCER_ID:{marker.producer_id}", error, f"{verb} the transaction in {names}")


CHANGES: Mapping[int, ChangesOf] = {
    create_topics.API.key: _named("topics", "topics", CREATE, "TOPIC", detail=_new_topic),
    delete_topics.API.key: _deleted_topics,
    create_partitions.API.key: _named(
        "topics", "results", ALTER, "TOPIC", detail=lambda topic: f"partitions={topic.count}"
    ),
    delete_records.API.key: _of_partitions(DELETE, "topics"),
    alter_partition_reassignments.API.key: _of_partitions(ALTER, "responses", "replicas of "),
    alter_configs.API.key: _configs,
    incremental_alter_configs.API.key: _configs,
    create_acls.API.key: _created_acls,
    delete_acls.API.key: _deleted_acls,
    alter_user_scram_credentials.API.key: _credentials,
    alter_client_quotas.API.key: _quotas,
    delete_groups.API.key: _deleted_groups,
    offset_delete.API.key: _group_offsets(DELETE, "topics", "name"),
    alter_share_group_offsets.API.key: _group_offsets(ALTER, "responses", "topic_name"),
    delete_share_group_offsets.API.key: _group_offsets(DELETE, "responses", "topic_name"),
    write_txn_markers.API.key: _markers,
}

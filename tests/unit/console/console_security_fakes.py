"""Answers to Kafka's requests about users, access control lists and subscriptions, over a state machine."""

from collections.abc import Callable, Sequence
from typing import Any

from kafka.protocol.admin import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

from penstock.contracts.acls import (
    AclBinding,
    AclFilter,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
    matches,
)
from penstock.contracts.commands import (
    AclsDeleted,
    AlterClientMetrics,
    AlterScramCredentials,
    ConfigChange,
    ConfigOperation,
    CreateAcls,
    DeleteAcls,
    Outcome,
    PerItem,
    Rejected,
    ScramDeletion,
    ScramMechanism,
    ScramUpsertion,
)
from penstock.contracts.configs.client_metrics import CLIENT_METRICS_CONFIGS
from penstock.contracts.queries.security import SecurityQuery, SecurityView
from penstock.contracts.scram_keys import verifier_of_password, verifier_of_salted
from penstock_sequencer.core import queries
from tests.unit.sequencer.core.core_world import World

INVALID = 42  # an error code of Kafka
CLIENT_METRICS = 16  # a resource type of Kafka
ITERATIONS = 4_096


def security_of(world: World) -> SecurityView:
    """All users and access control lists."""
    found = queries.QUERIES["security"](world.state, SecurityQuery(0))
    assert isinstance(found, SecurityView) and found.is_last
    return found


def add_user(world: World, name: str, password: str = "a-password", *mechanisms: ScramMechanism) -> None:
    """A user with a password for these mechanisms, for all without one."""
    verifiers = [
        verifier_of_password(each, password.encode(), b"salt", ITERATIONS) for each in mechanisms or ScramMechanism
    ]
    made = world.do(AlterScramCredentials(world.now_ms, [ScramUpsertion(name, each) for each in verifiers], []))
    assert _error(made) is None, made


def add_bindings(world: World, *bindings: AclBinding) -> None:
    """Entries of access control lists."""
    assert _error(world.do(CreateAcls(world.now_ms, list(bindings)))) is None


def subscribe(world: World, name: str, **configs: str) -> None:
    """A subscription to metrics of clients with these configurations."""
    changes = [ConfigChange(each.replace("_", "."), ConfigOperation.SET, value) for each, value in configs.items()]
    assert _error(world.do(AlterClientMetrics(world.now_ms, name, changes))) is None


def has_password(world: World, name: str, password: str) -> bool:
    """Whether a user can log in with a password, by each of its mechanisms."""
    verifiers = next((each.verifiers for each in security_of(world).users if each.name == name), [])
    return bool(verifiers) and all(
        each == verifier_of_password(each.mechanism, password.encode(), each.salt, each.iterations)
        for each in verifiers
    )


def answer(world: World, request: Any) -> Any:
    """The answer of a gateway that lets each user do everything."""
    return _ANSWERS[type(request)](world, request)


def _describe_users(world: World, _request: Any) -> Any:
    kind = DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult
    results = [
        kind(
            user=user.name,
            error_code=0,
            error_message=None,
            credential_infos=[
                kind.CredentialInfo(mechanism=int(each.mechanism), iterations=each.iterations)
                for each in user.verifiers
            ],
        )
        for user in security_of(world).users
    ]
    return DescribeUserScramCredentialsResponse(error_code=0, error_message=None, results=results)


def _alter_users(world: World, request: Any) -> Any:
    upsertions = [
        ScramUpsertion(
            each.name,
            verifier_of_salted(ScramMechanism(each.mechanism), each.salted_password, each.salt, each.iterations),
        )
        for each in request.upsertions
    ]
    deletions = [ScramDeletion(each.name, ScramMechanism(each.mechanism)) for each in request.deletions]
    error = _error(world.do(AlterScramCredentials(world.now_ms, upsertions, deletions)))
    kind = AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult
    names = dict.fromkeys(each.user for each in (*upsertions, *deletions))
    return AlterUserScramCredentialsResponse(
        results=[kind(user=each, error_code=INVALID if error else 0, error_message=error) for each in names]
    )


def _describe_acls(world: World, request: Any) -> Any:
    kind = DescribeAclsResponse.DescribeAclsResource
    resources = [
        kind(
            resource_type=int(each.resource_type),
            resource_name=each.name,
            pattern_type=int(each.pattern_type),
            acls=[kind.AclDescription(**_who(each))],
        )
        for each in security_of(world).bindings
        if matches(_filter(request), each)
    ]
    return DescribeAclsResponse(error_code=0, error_message=None, resources=resources)


def _create_acls(world: World, request: Any) -> Any:
    bindings = [
        AclBinding(
            ResourceType(each.resource_type),
            each.resource_name,
            PatternType(each.resource_pattern_type),
            each.principal,
            each.host,
            AclOperation(each.operation),
            AclPermission(each.permission_type),
        )
        for each in request.creations
    ]
    error = _error(world.do(CreateAcls(world.now_ms, bindings)))
    kind = CreateAclsResponse.AclCreationResult
    return CreateAclsResponse(results=[kind(error_code=INVALID if error else 0, error_message=error) for _ in bindings])


def _delete_acls(world: World, request: Any) -> Any:
    outcome = world.do(DeleteAcls(world.now_ms, [_filter(each) for each in request.filters]))
    assert isinstance(outcome, AclsDeleted)
    kind = DeleteAclsResponse.DeleteAclsFilterResult
    return DeleteAclsResponse(
        filter_results=[
            kind(error_code=0, error_message=None, matching_acls=_matching(kind.DeleteAclsMatchingAcl, found))
            for found in outcome.deleted
        ]
    )


def _list_resources(world: World, request: Any) -> Any:
    assert request.resource_types == [CLIENT_METRICS]
    kind = ListConfigResourcesResponse.ConfigResource
    names = world.state.client_metrics
    return ListConfigResourcesResponse(
        error_code=0, config_resources=[kind(resource_name=each, resource_type=CLIENT_METRICS) for each in names]
    )


def _describe_resources(world: World, request: Any) -> Any:
    kind = DescribeConfigsResponse.DescribeConfigsResult
    defaults = {name: config.default for name, config in CLIENT_METRICS_CONFIGS.items()}
    return DescribeConfigsResponse(
        results=[
            kind(
                error_code=0,
                error_message=None,
                resource_type=CLIENT_METRICS,
                resource_name=each.resource_name,
                configs=[
                    kind.DescribeConfigsResourceResult(name=name, value=value)
                    for name, value in (defaults | world.state.client_metrics[each.resource_name]).items()
                ],
            )
            for each in request.resources
        ]
    )


def _matching(kind: Any, bindings: Sequence[AclBinding]) -> list[Any]:
    return [
        kind(
            error_code=0,
            error_message=None,
            resource_type=int(each.resource_type),
            resource_name=each.name,
            pattern_type=int(each.pattern_type),
            **_who(each),
        )
        for each in bindings
    ]


def _who(binding: AclBinding) -> dict[str, Any]:
    return {
        "principal": binding.principal,
        "host": binding.host,
        "operation": int(binding.operation),
        "permission_type": int(binding.permission),
    }


def _filter(asked: Any) -> AclFilter:
    return AclFilter(
        ResourceType(asked.resource_type_filter),
        asked.resource_name_filter,
        PatternType(asked.pattern_type_filter),
        asked.principal_filter,
        asked.host_filter,
        AclOperation(asked.operation),
        AclPermission(asked.permission_type),
    )


def _error(outcome: Outcome) -> str | None:
    if isinstance(outcome, Rejected):
        return outcome.message or outcome.rejection.name
    rejected = [each for each in outcome.rejections if each] if isinstance(outcome, PerItem) else []
    return rejected[0].name if rejected else None


_ANSWERS: dict[Any, Callable[[World, Any], Any]] = {
    DescribeUserScramCredentialsRequest: _describe_users,
    AlterUserScramCredentialsRequest: _alter_users,
    DescribeAclsRequest: _describe_acls,
    CreateAclsRequest: _create_acls,
    DeleteAclsRequest: _delete_acls,
    ListConfigResourcesRequest: _list_resources,
    DescribeConfigsRequest: _describe_resources,
}

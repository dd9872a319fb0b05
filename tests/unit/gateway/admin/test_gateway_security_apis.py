"""The APIs of users and access control lists: results as Kafka's, and reads that see the client's own writes."""

import hashlib
import hmac
from typing import Any

import msgspec
import pytest

from penstock.contracts.commands import AlterScramCredentials, Command, Outcome, ScramMechanism
from penstock.contracts.levels import SECURITY_LEVEL
from penstock.kafkawire.api.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from penstock.kafkawire.api.create_acls import AclCreation, CreateAclsRequest
from penstock.kafkawire.api.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from penstock.kafkawire.api.describe_acls import DescribeAclsRequest
from penstock.kafkawire.api.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName
from penstock.kafkawire.error_codes import ErrorCode
from penstock_sequencer.core.state.cluster import new_state
from penstock_sequencer.core.state.limits import Limits, SecurityLimits
from tests.unit.gateway.gateway_fakes import World, new_world
from tests.unit.gateway.gateway_wire import ask

DESCRIBE_ACLS, CREATE_ACLS, DELETE_ACLS, DESCRIBE_SCRAM, ALTER_SCRAM = 29, 30, 31, 50, 51
ANY, TOPIC, GROUP, CLUSTER = 1, 2, 3, 4
LITERAL, PREFIXED, MATCH = 3, 4, 2
READ, WRITE, ALLOW, DENY = 3, 4, 3, 2
SHA_256, SHA_512 = 1, 2
SALT, SALTED = b"sodium chloride", b"\1\2\3\4" * 8
OK = (0, None)

every_version = pytest.mark.parametrize("version", [1, 2, 3])


@pytest.fixture
def world() -> World:
    world = new_world()
    world.sequencer.seen_level = SECURITY_LEVEL
    world.sequencer.on_command = world.sequencer.apply
    return world


def acl(name: str = "orders", pattern: int = LITERAL, **others: Any) -> AclCreation:
    fields = {"resource_type": TOPIC, "principal": "User:alice", "host": "*", "operation": READ} | others
    return AclCreation(resource_name=name, resource_pattern_type=pattern, permission_type=ALLOW, **fields)


async def create(world: World, *creations: AclCreation, version: int = 3) -> list[tuple[int, str | None]]:
    response = await ask(world, CREATE_ACLS, version, CreateAclsRequest(list(creations)))
    return [(each.error_code, each.error_message) for each in response.results]


async def listed(world: World, asked: DescribeAclsRequest | None = None, version: int = 3) -> list[tuple[Any, ...]]:
    asked = asked or DescribeAclsRequest(ANY, None, ANY, None, None, ANY, ANY)
    response = await ask(world, DESCRIBE_ACLS, version, asked)
    assert (response.error_code, response.error_message) == OK
    return [
        (each.resource_type, each.resource_name, each.pattern_type, *msgspec.structs.astuple(acl))
        for each in response.resources
        for acl in each.acls
    ]


@every_version
async def test_created_lists_are_described_by_resource_and_deleted_by_filters(world: World, version: int) -> None:
    denied = AclCreation(TOPIC, "orders", LITERAL, "User:bob", "10.0.0.1", WRITE, DENY)
    created = await create(world, acl(), denied, acl("ord", PREFIXED), acl(), version=version)
    assert created == [OK] * 4
    alice = (TOPIC, "orders", LITERAL, "User:alice", "*", READ, ALLOW)
    bob = (TOPIC, "orders", LITERAL, "User:bob", "10.0.0.1", WRITE, DENY)
    prefixed = (TOPIC, "ord", PREFIXED, "User:alice", "*", READ, ALLOW)
    assert await listed(world, version=version) == [alice, bob, prefixed]
    matching = DescribeAclsRequest(TOPIC, "orders", MATCH, "User:alice", None, ANY, ANY)
    assert await listed(world, matching, version) == [alice, prefixed]
    filters = [
        DeleteAclsFilter(TOPIC, "orders", LITERAL, None, None, ANY, ANY),
        DeleteAclsFilter(GROUP, None, ANY, None, None, ANY, ANY),
        DeleteAclsFilter(TOPIC, None, ANY, "User:bob", None, ANY, DENY),
    ]
    response = await ask(world, DELETE_ACLS, version, DeleteAclsRequest(filters))
    deleted = [[msgspec.structs.astuple(acl)[2:] for acl in each.matching_acls] for each in response.filter_results]
    assert deleted == [[alice, bob], [], [bob]]
    assert [(each.error_code, each.error_message) for each in response.filter_results] == [OK] * 3
    assert await listed(world, version=version) == [prefixed]


async def test_each_invalid_list_has_its_error_and_the_others_are_created(world: World) -> None:
    invalid = {
        "Invalid resourceType UNKNOWN": acl(resource_type=0),
        "Invalid resourceType ANY": acl(resource_type=ANY),
        "Invalid patternType UNKNOWN": acl(pattern=9),
        "Invalid patternType MATCH": acl(pattern=MATCH),
        "Invalid operation UNKNOWN": acl(operation=99),
        "Invalid operation ANY": acl(operation=ANY),
        "Invalid permissionType UNKNOWN": msgspec.structs.replace(acl(), permission_type=7),
        "Resource name should not be empty": acl(""),
        "The only valid name for the CLUSTER resource is kafka-cluster": acl("orders", resource_type=CLUSTER),
        "Could not parse principal from `alice` (no colon is present separating the principal type from the "
        "principal name)": acl(principal="alice"),
    }
    results = await create(world, *invalid.values(), acl())
    assert results == [*((ErrorCode.INVALID_REQUEST, reason) for reason in invalid), OK]
    assert [each.name for each in world.sequencer.machine.bindings] == ["orders"]
    sent = len(world.sequencer.commands)
    await create(world, acl(""))
    assert len(world.sequencer.commands) == sent, "nothing was valid"


async def test_filters_with_unknown_codes_are_rejected_and_delete_nothing(world: World) -> None:
    await create(world, acl())
    filters = [
        DeleteAclsFilter(0, None, ANY, None, None, ANY, ANY),
        DeleteAclsFilter(ANY, None, 17, None, None, ANY, ANY),
        DeleteAclsFilter(ANY, None, ANY, None, None, 0, ANY),
        DeleteAclsFilter(ANY, None, ANY, None, None, ANY, 4),
        DeleteAclsFilter(TOPIC, "other", LITERAL, None, None, ANY, ANY),
    ]
    response = await ask(world, DELETE_ACLS, 3, DeleteAclsRequest(filters))
    pattern, entry = "Unknown patternFilter.", "Unknown entryFilter."
    bad = ErrorCode.INVALID_REQUEST
    found = [(each.error_code, each.error_message) for each in response.filter_results]
    assert found == [(bad, pattern), (bad, pattern), (bad, entry), (bad, entry), OK]
    described = await ask(world, DESCRIBE_ACLS, 3, DescribeAclsRequest(99, None, ANY, None, None, ANY, ANY))
    assert (described.error_code, described.error_message) == (bad, pattern)
    assert len(await listed(world)) == 1


async def test_a_full_cluster_rejects_lists_in_words(world: World) -> None:
    world.sequencer.machine = new_state(Limits(security=SecurityLimits(bindings_max=1)))
    results = await create(world, acl("a"), acl("b"))
    assert results == [(ErrorCode.POLICY_VIOLATION, "the cluster may have 1 access control list entries")] * 2


def upsertion(name: str = "alice", mechanism: int = SHA_256, **others: Any) -> ScramCredentialUpsertion:
    fields = {"iterations": 4_096, "salt": SALT, "salted_password": SALTED} | others
    return ScramCredentialUpsertion(name, mechanism, **fields)


async def alter(
    world: World, *changes: ScramCredentialUpsertion | ScramCredentialDeletion
) -> dict[str, tuple[int, str | None]]:
    deletions = [each for each in changes if isinstance(each, ScramCredentialDeletion)]
    upsertions = [each for each in changes if isinstance(each, ScramCredentialUpsertion)]
    request = AlterUserScramCredentialsRequest(deletions, upsertions)
    response = await ask(world, ALTER_SCRAM, 0, request)
    results = {each.user: (each.error_code, each.error_message) for each in response.results}
    assert len(results) == len(response.results), "one result per user"
    return results


async def described(world: World, *names: str) -> dict[str, Any]:
    users = [UserName(name) for name in names] or None
    response = await ask(world, DESCRIBE_SCRAM, 0, DescribeUserScramCredentialsRequest(users))
    assert (response.error_code, response.error_message) == OK
    return {
        each.user: each.error_code or [(info.mechanism, info.iterations) for info in each.credential_infos]
        for each in response.results
    }


@pytest.mark.parametrize(("mechanism", "name"), [(SHA_256, "sha256"), (SHA_512, "sha512")])
async def test_the_verifier_has_the_keys_of_the_salted_password_and_not_the_password(
    world: World, mechanism: int, name: str
) -> None:
    salted = hashlib.pbkdf2_hmac(name, b"secret", SALT, 4_096)
    assert await alter(world, upsertion(mechanism=mechanism, salted_password=salted)) == {"alice": OK}
    (verifier,) = world.sequencer.machine.users["alice"]
    assert (verifier.mechanism, verifier.iterations, verifier.salt) == (mechanism, 4_096, SALT)
    client_key = hmac.digest(salted, b"Client Key", name)
    assert verifier.stored_key == hashlib.new(name, client_key).digest()
    assert verifier.server_key == hmac.digest(salted, b"Server Key", name)
    (sent,) = world.sequencer.commands[-1]
    encoded = msgspec.msgpack.encode(sent)
    assert isinstance(sent, AlterScramCredentials)
    assert salted not in encoded
    assert client_key not in encoded


async def test_users_are_described_after_each_change_without_a_wait(world: World) -> None:
    assert await described(world) == {}
    assert await alter(world, upsertion(), upsertion(mechanism=SHA_512, iterations=8_192), upsertion("bob")) == {
        "alice": OK,
        "bob": OK,
    }
    assert world.gateway.security.verifier("bob", ScramMechanism.SHA_256) is not None
    assert await described(world) == {"alice": [(1, 4_096), (2, 8_192)], "bob": [(1, 4_096)]}
    assert await alter(world, ScramCredentialDeletion("alice", SHA_256), ScramCredentialDeletion("bob", SHA_256)) == {
        "alice": OK,
        "bob": OK,
    }
    asked = await described(world, "alice", "bob", "carol", "carol")
    missing, twice = ErrorCode.RESOURCE_NOT_FOUND, ErrorCode.DUPLICATE_RESOURCE
    assert asked == {"alice": [(2, 8_192)], "bob": missing, "carol": twice}


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (upsertion(""), ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty"),
        (upsertion("a" * 256), ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must have at most 255 letters"),
        (upsertion(mechanism=0), ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"),
        (upsertion(mechanism=3), ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"),
        (upsertion(iterations=4_095), ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations"),
        (upsertion(iterations=16_385), ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations"),
        (upsertion(salt=b""), ErrorCode.UNACCEPTABLE_CREDENTIAL, "The salt must have 1 to 255 bytes"),
        (upsertion(salted_password=b""), ErrorCode.UNACCEPTABLE_CREDENTIAL, "The salted password must not be empty"),
        (ScramCredentialDeletion("", SHA_256), ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty"),
        (ScramCredentialDeletion("bob", 9), ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"),
        (
            ScramCredentialDeletion("bob", SHA_512),
            ErrorCode.RESOURCE_NOT_FOUND,
            "Attempt to delete a user credential that does not exist",
        ),
    ],
)
async def test_an_invalid_item_rejects_its_user_and_no_other(
    world: World, change: Any, error: ErrorCode, message: str
) -> None:
    await alter(world, upsertion("bob"))
    results = await alter(world, upsertion("carol"), upsertion(change.name or "bob", mechanism=SHA_512), change)
    assert results["carol"] == OK
    assert results[change.name] == (error, message)
    assert set(await described(world)) == {"bob", "carol"}
    assert (await described(world))["bob"] == [(1, 4_096)] if change.name else True


async def test_a_credential_that_is_changed_twice_in_a_request_is_a_duplicate(world: World) -> None:
    twice = (ErrorCode.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request")
    assert await alter(world, upsertion(), upsertion(salt=b"other")) == {"alice": twice}
    assert await alter(world, upsertion()) == {"alice": OK}
    assert await alter(world, upsertion(), ScramCredentialDeletion("alice", SHA_256)) == {"alice": twice}


async def test_a_gateway_that_missed_a_change_sends_the_command_again(world: World) -> None:
    await alter(world, upsertion("bob"))
    real = world.sequencer.apply

    def late_once(command: Command) -> Outcome:
        late = msgspec.structs.replace(command, seen_sequence=0)
        world.sequencer.on_command = real
        return real(late)

    world.sequencer.on_command = late_once
    sent = len(world.sequencer.commands)
    assert await create(world, acl()) == [OK]
    assert len(world.sequencer.commands) == sent + 2


async def test_without_sequencers_all_apis_have_a_retriable_error(world: World) -> None:
    world.sequencer.is_down = True
    timed_out = ErrorCode.REQUEST_TIMED_OUT
    assert [error for error, _ in await create(world, acl())] == [timed_out]
    assert (await alter(world, upsertion()))["alice"][0] == timed_out
    request = DescribeAclsRequest(ANY, None, ANY, None, None, ANY, ANY)
    assert (await ask(world, DESCRIBE_ACLS, 3, request)).error_code == timed_out
    deletion = DeleteAclsRequest([DeleteAclsFilter(ANY, None, ANY, None, None, ANY, ANY)])
    assert (await ask(world, DELETE_ACLS, 3, deletion)).filter_results[0].error_code == timed_out
    assert (await ask(world, DESCRIBE_SCRAM, 0, DescribeUserScramCredentialsRequest())).error_code == timed_out


async def test_a_cluster_below_the_level_has_no_users_and_says_so(world: World) -> None:
    world.sequencer.seen_level = SECURITY_LEVEL - 1
    (result,) = await create(world, acl())
    assert result[0] == ErrorCode.UNSUPPORTED_VERSION
    assert "until all sequencers of the cluster are upgraded" in (result[1] or "")
    assert world.sequencer.commands == []

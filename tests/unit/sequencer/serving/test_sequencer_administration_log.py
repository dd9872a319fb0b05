"""Commands of operators are events in the log of the sequencer that takes them, and no other commands are."""

from typing import Any

from structlog.testing import capture_logs

from penstock.contracts import codec, subjects
from penstock.contracts.acls import AclBinding, AclFilter, AclOperation, AclPermission, PatternType, ResourceType
from penstock.contracts.commands import (
    AlterClientQuotas,
    Command,
    CommandReply,
    CommandRequest,
    ExpireToken,
    UndeleteTopic,
)
from penstock.contracts.commands.quotas import QuotaChange, QuotaPart
from penstock.contracts.commands.security import (
    AlterScramCredentials,
    CreateAcls,
    DeleteAcls,
    ScramDeletion,
    ScramMechanism,
    ScramUpsertion,
)
from penstock.contracts.levels import NEWEST_LEVEL
from penstock.contracts.scram_keys import verifier_of_password
from tests.testkit.fakes.virtual_time import in_virtual_time
from tests.testkit.waiting import until
from tests.unit.sequencer.sequencer_rig import CLUSTER, SequencerRig, rig

SALT, ITERATIONS = b"planted-salt", 4_096
SHA_256 = ScramMechanism.SHA_256
BINDING = AclBinding(
    ResourceType.TOPIC, "orders", PatternType.LITERAL, "User:alice", "*", AclOperation.READ, AclPermission.ALLOW
)


async def logged(one: SequencerRig, sender: subjects.Sender, command: Command) -> list[Any]:
    """The events of a command: its change and its outcome."""
    with capture_logs() as logs:
        data = codec.encode(CommandRequest([command]))
        reply = await one.client_bus.request(subjects.sequencer_command(CLUSTER, sender), data, 5)
        assert codec.decode(reply, CommandReply).failure is None
    assert SALT.decode() not in str(logs)
    events = [each for each in logs if each["event"] == "administrative_command"]
    assert all(each["command"] == type(command).__name__ for each in events)
    return [(each["change"], each["outcome"]) for each in events]


@in_virtual_time
async def test_each_change_of_an_operator_is_logged_with_its_outcome_and_without_verifiers() -> None:
    async with rig("a") as one:
        await until(lambda: one.level == NEWEST_LEVEL)
        verifier = verifier_of_password(SHA_256, b"secret", SALT, ITERATIONS)
        users = AlterScramCredentials(1, [ScramUpsertion("alice", verifier)], [ScramDeletion("bob", SHA_256)])
        rule = "ALLOW User:alice READ on TOPIC:LITERAL:orders from *"
        quotas = AlterClientQuotas(
            1,
            [QuotaPart("user", "alice"), QuotaPart("client-id")],
            [QuotaChange("producer_byte_rate", "1000"), QuotaChange("consumer_byte_rate")],
        )
        expected: list[tuple[Command, list[tuple[str, str]]]] = [
            (
                users,
                [("set SHA_256 of User:alice", "accepted"), ("delete SHA_256 of User:bob", "resource_not_found")],
            ),
            (CreateAcls(1, [BINDING]), [(rule, "accepted")]),
            (DeleteAcls(1, [AclFilter(name="orders")]), [("ANY ANY ANY on ANY:ANY:orders from ANY", "accepted")]),
            (
                quotas,
                [
                    ("producer_byte_rate=1000 of user=alice,client-id=<default>", "accepted"),
                    ("consumer_byte_rate=None of user=alice,client-id=<default>", "accepted"),
                ],
            ),
            (ExpireToken(1, "id", None, -1), [("revoke delegation token id", "token_not_found")]),
            (UndeleteTopic(1, "gone", bytes(16)), [("topic gone", "unknown_topic")]),
        ]
        for command, events in expected:
            assert await logged(one, subjects.Sender.ADMIN, command) == events


@in_virtual_time
async def test_commands_of_gateways_are_not_logged() -> None:
    async with rig("a") as one:
        await until(lambda: one.level == NEWEST_LEVEL)
        assert await logged(one, subjects.Sender.CLIENT, CreateAcls(1, [BINDING])) == []


@in_virtual_time
async def test_a_large_command_has_a_limited_number_of_lines() -> None:
    async with rig("a") as one:
        await until(lambda: one.level == NEWEST_LEVEL)
        many = [BINDING] * 150
        assert len(await logged(one, subjects.Sender.ADMIN, CreateAcls(1, many))) == 100

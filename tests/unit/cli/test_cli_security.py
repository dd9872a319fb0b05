"""`penstock user`, `acl` and `token`: flags, passwords, texts, and changes against the real state machine."""

import argparse
import asyncio
import base64
import hashlib
import hmac
import json
from pathlib import Path
from typing import Any

import pytest

from penstock.cli import main, parse_arguments
from penstock.cli.kafka.settings import read_settings
from penstock.cli.output import Listing, as_text
from penstock.cli.security import acl, delegation_tokens as token, user
from penstock.cli.security.client import SecurityClient
from penstock.cli.security.connecting import is_over_kafka
from penstock.cli.security.over_nats import NatsAdmin
from penstock.contracts.acls import AclBinding, AclFilter, AclOperation, AclPermission, PatternType, ResourceType
from penstock.contracts.commands import (
    AlterScramCredentials,
    CreateAcls,
    CreateToken,
    PerItem,
    ScramDeletion,
    ScramMechanism,
    ScramUpsertion,
)
from penstock.contracts.errors import Invalid
from penstock.contracts.rejections import Rejection
from penstock.contracts.scram_keys import verifier_of_password
from penstock_sequencer.core.machine import apply_entry
from penstock_sequencer.core.security.queries import security
from penstock_sequencer.core.security.tokens import delegation_tokens
from penstock_sequencer.core.state.cluster import new_state
from penstock_sequencer.core.state.limits import AnswerLimits, Limits, SecurityLimits

SHA_256, SHA_512 = ScramMechanism
NOW_MS = 4_102_444_800_000  # in 2100, so that no token has ended
ALICE = ("--principal", "User:alice", "--operation", "read")


class Sequencer:
    """A sequencer with the real machine, and small pages."""

    def __init__(self) -> None:
        self.state = new_state(
            Limits(answers=AnswerLimits(names_listed_max=2), security=SecurityLimits(items_listed_max=2))
        )
        self.seen_sequence = 0
        self.attempts = 0

    async def command(self, commands: list[Any], *, deadline_s: float) -> list[Any]:
        self.attempts += 1
        outcomes, _ = apply_entry(self.state, self.state.sequence + 1, [commands])
        self.seen_sequence = self.state.sequence
        return outcomes[0]

    async def query(self, name: str, query: Any, view: Any, *, deadline_s: float) -> Any:
        return {"security": security, "delegation_tokens": delegation_tokens}[name](self.state, query)


def arguments(*argv: str) -> argparse.Namespace:
    return parse_arguments(list(argv))


def test_a_password_comes_from_a_file_the_environment_or_a_prompt_and_never_from_a_flag(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "password"
    file.write_text("from the file\r\nsecond line\n")
    monkeypatch.setenv("PENSTOCK_USER_PASSWORD", "from the environment")
    assert user.read_password(str(file)) == b"from the file"
    assert user.read_password("") == b"from the environment"
    monkeypatch.delenv("PENSTOCK_USER_PASSWORD")
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    answers = iter(["pässword", "pässword", "password", "passwort"])
    assert user.read_password("", lambda text: next(answers)) == "pässword".encode()
    with pytest.raises(Invalid, match="the two passwords differ"):
        user.read_password("", lambda text: next(answers))
    with pytest.raises(SystemExit):
        arguments("user", "create", "alice", "--password", "secret")


def test_a_missing_or_short_password_is_rejected_without_its_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: False)
    monkeypatch.delenv("PENSTOCK_USER_PASSWORD", raising=False)
    with pytest.raises(Invalid, match="no password is given"):
        user.read_password("")
    with pytest.raises(Invalid, match=r"cannot read the password in .*: No such file or directory"):
        user.read_password(str(tmp_path / "none"))
    monkeypatch.setenv("PENSTOCK_USER_PASSWORD", "shorty")
    with pytest.raises(Invalid) as caught:
        user.read_password("")
    assert "shorty" not in str(caught.value)
    monkeypatch.setenv("PENSTOCK_USER_PASSWORD", "no text \udcff")  # as Python reads bytes that are not UTF-8
    with pytest.raises(Invalid) as caught:
        user.read_password("")
    assert "no text" not in str(caught.value)


@pytest.mark.parametrize("mechanism", [SHA_256, SHA_512])
def test_a_verifier_has_the_keys_of_rfc_5802(mechanism: ScramMechanism) -> None:
    made = verifier_of_password(mechanism, b"pencil", b"salt", 4_096)
    name = {SHA_256: "sha256", SHA_512: "sha512"}[mechanism]
    assert len(made.stored_key) == hashlib.new(name).digest_size
    assert made == verifier_of_password(mechanism, b"pencil", b"salt", 4_096)
    assert made.stored_key != verifier_of_password(mechanism, b"pencil", b"other", 4_096).stored_key


def test_the_keys_are_those_of_the_example_in_rfc_7677() -> None:
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    made = verifier_of_password(SHA_256, b"pencil", salt, 4_096)
    message = (
        b"n=user,r=rOprNGfwEbeRWgbNEkqO,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        b"s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    )
    signature = hmac.digest(made.server_key, message, "sha256")
    assert base64.b64encode(signature) == b"6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def test_users_are_read_in_pages_and_shown_without_keys() -> None:
    async def check() -> None:
        sequencer = Sequencer()
        client = SecurityClient(sequencer)  # type: ignore[arg-type]
        made = verifier_of_password(SHA_256, b"secret", b"salt", 4_096)
        names = ["erin", "alice", "dora", "bob", "carol"]
        upsertions = [ScramUpsertion(name, made) for name in names]
        await client.change(lambda now_ms, seen: AlterScramCredentials(now_ms, upsertions, [], seen))
        users = await NatsAdmin(client).users()
        assert [each.name for each in users] == sorted(names)
        assert await NatsAdmin(client).bindings([AclFilter()]) == []
        text = as_text(Listing([user.row_of(each) for each in users], ""), "json")
        assert json.loads(text)[0] == {"name": "alice", "mechanisms": ["SCRAM-SHA-256"], "iterations": [4_096]}
        assert user.found_user(users, "bob").name == "bob"
        with pytest.raises(Invalid, match="there is no user 'mallory'"):
            user.found_user(users, "mallory")

    asyncio.run(check())


def test_passwords_are_set_and_deleted_and_a_rejected_change_is_an_error() -> None:
    async def check() -> None:
        admin = NatsAdmin(SecurityClient(Sequencer()))  # type: ignore[arg-type]
        one, two = user.new_passwords("alice", [SHA_256, SHA_512], b"secret word", 4_096)
        assert one.salt != two.salt and one.salted_password == hashlib.pbkdf2_hmac(
            "sha256", b"secret word", one.salt, 4_096
        )
        await admin.set_passwords([one, two])
        await admin.delete_credentials([ScramDeletion("alice", SHA_256)])
        (alice,) = await admin.users()
        assert user.row_of(alice) == {"name": "alice", "mechanisms": ["SCRAM-SHA-512"], "iterations": [4_096]}
        with pytest.raises(Invalid, match="the change was rejected: "):
            await admin.delete_credentials([ScramDeletion("alice", SHA_256)])

    asyncio.run(check())


def test_entries_are_created_found_and_deleted_by_filters() -> None:
    async def check() -> None:
        admin = NatsAdmin(SecurityClient(Sequencer()))  # type: ignore[arg-type]
        read, write = acl.bindings_of(arguments("acl", "add", *ALICE, "--operation", "write", "--topic", "t"))
        await admin.create_bindings([read, write])
        assert await admin.bindings([AclFilter(operation=AclOperation.WRITE)]) == [write]
        assert await admin.delete_bindings([AclFilter(operation=AclOperation.READ), AclFilter(name="t")]) == [
            read,
            write,
        ]
        assert await admin.bindings([AclFilter()]) == []

    asyncio.run(check())


@pytest.mark.parametrize("command", ["user", "acl", "quota", "token"])
def test_only_a_flag_of_a_kafka_listener_selects_kafka(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_BOOTSTRAP", "127.0.0.1:9092")
    monkeypatch.setenv("PENSTOCK_COMMAND_CONFIG", "client.properties")
    assert not is_over_kafka(arguments(command, "list"))
    assert not is_over_kafka(arguments(command, "list", "--data", "elsewhere"))
    for flag in ("--bootstrap", "--profile", "--command-config"):
        assert is_over_kafka(arguments(command, "list", flag, "x"))
        with pytest.raises(Invalid, match="a Kafka listener and NATS"):
            is_over_kafka(arguments(command, "list", flag, "x", "--nats-url", "nats://127.0.0.1:4222"))


def test_the_password_file_of_a_new_user_is_not_the_one_of_the_login() -> None:
    found = arguments("user", "create", "alice", "--password-file", "secret", "--bootstrap", "127.0.0.1:9092")
    assert found.new_password_file == "secret"
    assert read_settings(found, {}).password_file == ""


def test_a_change_that_missed_another_one_is_sent_again_and_a_rejection_is_an_error() -> None:
    async def check() -> None:
        sequencer = Sequencer()
        client = SecurityClient(sequencer)  # type: ignore[arg-type]
        one, two = acl.bindings_of(arguments("acl", "add", *ALICE, "--operation", "write", "--topic", "t"))
        apply_entry(sequencer.state, 5, [[CreateAcls(1, [one])]])
        assert await client.change(lambda now_ms, seen: CreateAcls(now_ms, [two], max(seen, 1))) == PerItem(
            [Rejection.NONE]
        )
        assert sequencer.attempts == 2
        with pytest.raises(Invalid, match="a request creates at most"):
            await client.change(lambda now_ms, seen: CreateAcls(now_ms, [one] * 5_000, seen))

    asyncio.run(check())


def test_the_flags_of_add_name_one_binding_per_operation() -> None:
    both = arguments("acl", "add", *ALICE, "--operation", "describe-configs", "--topic", "ord", "--prefixed", "--deny")
    denied = (ResourceType.TOPIC, "ord", PatternType.PREFIXED, "User:alice", "*")
    assert acl.bindings_of(both) == [
        AclBinding(*denied, AclOperation.READ, AclPermission.DENY),
        AclBinding(*denied, AclOperation.DESCRIBE_CONFIGS, AclPermission.DENY),
    ]
    (cluster,) = acl.bindings_of(arguments("acl", "add", *ALICE, "--cluster-resource", "--host", "10.0.0.1"))
    assert (cluster.name, cluster.host, cluster.permission) == ("kafka-cluster", "10.0.0.1", AclPermission.ALLOW)
    with pytest.raises(Invalid, match=r"a principal is TYPE:NAME, such as User:alice: \'alice\'"):
        acl.bindings_of(arguments("acl", "add", "--principal", "alice", "--operation", "read", "--topic", "t"))


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ((), AclFilter()),
        (("--principal", "User:a"), AclFilter(principal="User:a")),
        (("--group", "g"), AclFilter(ResourceType.GROUP, "g")),
        (
            ("--transactional-id", "x", "--prefixed"),
            AclFilter(ResourceType.TRANSACTIONAL_ID, "x", PatternType.PREFIXED),
        ),
        (("--deny",), AclFilter(permission=AclPermission.DENY)),
        (("--allow", "--operation", "all"), AclFilter(operation=AclOperation.ALL, permission=AclPermission.ALLOW)),
    ],
)
def test_the_flags_of_list_and_remove_name_a_filter(flags: tuple[str, ...], expected: AclFilter) -> None:
    for verb in ("list", "remove"):
        assert acl.filters_of(arguments("acl", verb, *flags)) == [expected]


def test_a_table_has_a_heading_and_no_control_characters() -> None:
    assert as_text(Listing([], "there are no users"), "table") == "there are no users"
    table = as_text(Listing([{"name": "a\x1b[31m", "iterations": [1, 2]}], ""), "table")
    assert table == "NAME    ITERATIONS\na?[31m  1, 2"


@pytest.mark.parametrize(
    ("argv", "error_text"),
    [
        (("user", "create", ""), "not a user name: Username must not be empty"),
        (("user", "create", "a", "--iterations", "1"), "too few iterations: 1, allowed are 4096 to 16384"),
        (("user", "list", "--data", "/nowhere"), "no `penstock up` has run in /nowhere"),
        (("user", "list", "--bootstrap", "127.0.0.1:1"), "no gateway accepts a connection (127.0.0.1:1: "),
        (("acl", "list", "--allow", "--deny"), "an entry allows or denies"),
        (("acl", "add", *ALICE, "--topic", ""), "Resource name should not be empty"),
        (("token", "create"), "`penstock token create` needs a Kafka listener: give --command-config, "),
        (("token", "renew", "t0", "--data", "x"), "`penstock token renew` needs a Kafka listener: "),
        (("token", "renew", "t0", "--period", "soon"), "not a length of time: 'soon'; it is such as 30s"),
        (("token", "create", "--max-lifetime", "0s"), "not a length of time: '0s'"),
        (("token", "create", "--renewer", ""), "not a user name: "),
        (("token", "create", *("--renewer", "a") * 2, *(f"--renewer={n}" for n in range(20))), "at most 20 renewers"),
        (("token", "list", "--bootstrap", "127.0.0.1:1"), "no gateway accepts a connection (127.0.0.1:1: "),
        (("quota", "list", "--bootstrap", "127.0.0.1:1"), "no gateway accepts a connection (127.0.0.1:1: "),
    ],
)
def test_an_impossible_command_ends_with_one_sentence(
    argv: tuple[str, ...], error_text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(argv) == 1
    assert error_text in capsys.readouterr().err


def test_tokens_are_read_page_by_page_and_revoked_by_their_ids() -> None:
    async def check() -> None:
        sequencer = Sequencer()
        admin = NatsAdmin(SecurityClient(sequencer))  # type: ignore[arg-type]
        for number in range(5):
            create = CreateToken(NOW_MS, f"t{number}", "k", "alice", "service", ("bob",), 1_000, 2_000)
            await sequencer.command([create], deadline_s=1.0)
        tokens = await admin.tokens()
        assert [each.token_id for each in tokens] == ["t0", "t1", "t2", "t3", "t4"]
        assert token.row_of(token.found_token(tokens, "t0")) == {
            "id": "t0",
            "owner": "alice",
            "requester": "service",
            "renewers": ["bob"],
            "expires": "2100-01-01T00:00:01+00:00",
            "until": "2100-01-01T00:00:02+00:00",
        }
        await admin.revoke_token("t1")
        found = {each.token_id: token.row_of(each)["expires"] for each in await admin.tokens()}
        assert found["t1"] == "revoked"
        assert len(found) == 5
        with pytest.raises(Invalid, match="there is no delegation token 't9'"):
            token.found_token(tokens, "t9")
        with pytest.raises(Invalid):
            await admin.revoke_token("unknown")

    asyncio.run(check())


@pytest.mark.parametrize(
    ("text", "expected_ms"), [("", -1), ("30s", 30_000), ("15m", 900_000), ("2h", 7_200_000), ("7d", 604_800_000)]
)
def test_a_length_of_time_has_a_unit_and_is_the_longest_by_default(text: str, expected_ms: int) -> None:
    assert token.read_duration(text) == expected_ms

"""PLAIN: passwords are checked against SCRAM verifiers, in threads, and a few are recognised again."""

import asyncio

import pytest
from hypothesis import given, strategies as st

from penstock.contracts.commands.security import ScramMechanism
from penstock.contracts.errors import Unavailable
from penstock_gateway.security.login.credentials import Verifiers
from penstock_gateway.security.login.exchange import Identity, LoginFailed
from penstock_gateway.security.login.plain_login import PasswordChecker, PasswordLimits, PlainLogin, parse_plain
from tests.unit.gateway.security.gateway_logins import FakeUsers


def checker(users: FakeUsers, limits: PasswordLimits | None = None) -> PasswordChecker:
    return PasswordChecker(Verifiers(users, b"key"), b"k" * 32, limits)


async def test_the_right_password_names_the_user() -> None:
    users = FakeUsers()
    users.add("älice", "pässwörd")
    step = await PlainLogin(checker(users)).respond("\0älice\0pässwörd".encode())
    assert (step.answer, step.identity) == (b"", Identity("älice"))


@pytest.mark.parametrize("mechanism", list(ScramMechanism))
async def test_a_verifier_of_either_mechanism_is_enough(mechanism: ScramMechanism) -> None:
    users = FakeUsers()
    users.add("alice", "secret", mechanism)
    assert await checker(users).is_right("alice", b"secret")


@pytest.mark.parametrize("name", ["alice", "mallory"])
async def test_a_wrong_password_and_an_unknown_user_fail_with_the_same_work(name: str) -> None:
    users = FakeUsers()
    users.add("alice", "secret")
    passwords = checker(users)
    with pytest.raises(LoginFailed, match="wrong password or unknown user"):
        await PlainLogin(passwords).respond(f"\0{name}\0guess".encode())
    assert passwords.checks == 1


async def test_a_password_that_was_right_is_recognised_until_it_changes() -> None:
    users = FakeUsers()
    users.add("alice", "secret")
    passwords = checker(users)
    for _ in range(3):
        assert await passwords.is_right("alice", b"secret")
    assert passwords.checks == 1
    assert not await passwords.is_right("alice", b"guess")
    users.add("alice", "changed")
    assert not await passwords.is_right("alice", b"secret")
    users.remove("alice")
    assert not await passwords.is_right("alice", b"changed")


async def test_only_some_passwords_are_recognised() -> None:
    users = FakeUsers()
    for name in ("a", "b", "c"):
        users.add(name, "secret")
    passwords = checker(users, PasswordLimits(recognised_max=2))
    for name in ("a", "b", "c", "c", "b", "a"):
        assert await passwords.is_right(name, b"secret")
    assert passwords.checks == 4


async def test_more_passwords_at_once_than_may_wait_are_not_decided() -> None:
    users = FakeUsers()
    users.add("alice", "secret")
    passwords = checker(users, PasswordLimits(at_once=1, waiting_max=2))
    found = await asyncio.gather(*(passwords.is_right("alice", b"guess") for _ in range(5)), return_exceptions=True)
    assert found[:2] == [False, False]
    assert [type(each) for each in found[2:]] == [Unavailable] * 3
    assert await passwords.is_right("alice", b"secret"), "the places are free again"


async def test_the_event_loop_runs_while_a_password_is_checked() -> None:
    users = FakeUsers()
    users.add("alice", "secret", iterations=300_000)
    checking = asyncio.create_task(checker(users).is_right("alice", b"secret"))
    turns = 0
    while not checking.done():
        await asyncio.sleep(0)
        turns += 1
    assert checking.result()
    assert turns > 10


async def test_while_users_are_not_known_no_password_is_judged() -> None:
    passwords = PasswordChecker(Verifiers(FakeUsers(is_known=False), b"key"), b"k" * 32)
    with pytest.raises(Unavailable):
        await passwords.is_right("alice", b"secret")


@pytest.mark.parametrize(
    ("token", "reason"),
    [
        (b"", "malformed"),
        (b"alice\0secret", "malformed"),
        (b"\0alice\0secret\0", "malformed"),
        (b"\0\0secret", "without a user"),
        (b"\0alice\0", "without a password"),
        (b"root\0alice\0secret", "another user"),
        (b"\0alice\0\xff", "UTF-8"),
    ],
)
def test_a_malformed_message_fails(token: bytes, reason: str) -> None:
    with pytest.raises(LoginFailed, match=reason):
        parse_plain(token)


@given(st.binary(max_size=60))
def test_any_message_is_parsed_or_fails(token: bytes) -> None:
    try:
        user, password = parse_plain(token)
    except LoginFailed:
        return
    assert token in (b"\0" + user.encode() + b"\0" + password, user.encode() + b"\0" + user.encode() + b"\0" + password)

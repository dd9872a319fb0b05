"""Unknown users look like users: made-up verifiers, which stay the same and which no password fits."""

import pytest

from penstock.contracts.commands.security import ScramMechanism
from penstock.contracts.errors import Unavailable
from penstock_gateway.security.login.credentials import ITERATIONS, Verifiers
from tests.unit.gateway.security.gateway_logins import FakeUsers

BOTH = tuple(ScramMechanism)
SHA_256 = [ScramMechanism.SHA_256]


def test_a_user_has_its_own_verifier() -> None:
    users = FakeUsers()
    users.add("alice", "secret")
    assert Verifiers(users, b"key").find("alice", SHA_256) == users.verifier("alice", ScramMechanism.SHA_256)


def test_a_made_up_verifier_stays_the_same_at_all_gateways_with_the_same_secret() -> None:
    users = FakeUsers()
    made_up = Verifiers(users, b"key").find("mallory", SHA_256)
    assert made_up == Verifiers(users, b"key").find("mallory", SHA_256)
    assert made_up.salt != Verifiers(users, b"another").find("mallory", SHA_256).salt
    assert made_up.salt != Verifiers(users, b"key").find("trent", SHA_256).salt


def test_another_user_changes_no_made_up_salt() -> None:
    users = FakeUsers()
    users.add("alice", "secret")
    verifiers = Verifiers(users, b"key")
    before = verifiers.find("mallory", SHA_256)
    users.add("bob", "secret")
    assert verifiers.find("mallory", SHA_256) == before


def test_made_up_verifiers_have_the_iterations_of_real_users() -> None:
    users = FakeUsers()
    users.add("alice", "secret", iterations=8192)
    verifiers = Verifiers(users, b"key")
    assert {verifiers.find(f"user-{number}", SHA_256).iterations for number in range(20)} == {8192}
    users.add("bob", "secret", iterations=10_000)
    found = {verifiers.find(f"user-{number}", SHA_256).iterations for number in range(50)}
    assert found == {8192, 10_000}


def test_made_up_salts_look_like_those_of_the_java_client() -> None:
    verifiers = Verifiers(FakeUsers(), b"key")
    salts = [verifiers.find(f"user-{number}", SHA_256).salt for number in range(200)]
    assert {len(salt) for salt in salts} <= {24, 25, 26}
    # 130 bits have 26 digits only with a first digit of 1.
    assert {salt[:1] for salt in salts if len(salt) == 26} == {b"1"}
    assert all(salt.isalnum() and salt == salt.lower() for salt in salts)
    assert len(set(salts)) == 200


def test_a_user_without_a_verifier_of_the_mechanism_gets_a_made_up_one() -> None:
    users = FakeUsers()
    users.add("alice", "secret", ScramMechanism.SHA_512)
    made_up = Verifiers(users, b"key").find("alice", SHA_256)
    assert (made_up.mechanism, made_up.iterations) == (ScramMechanism.SHA_256, ITERATIONS)


def test_a_password_is_looked_for_in_all_mechanisms() -> None:
    users = FakeUsers()
    users.add("alice", "secret", ScramMechanism.SHA_512)
    assert Verifiers(users, b"key").find("alice", BOTH) == users.verifier("alice", ScramMechanism.SHA_512)


def test_while_users_are_not_known_nothing_is_made_up() -> None:
    with pytest.raises(Unavailable):
        Verifiers(FakeUsers(is_known=False), b"key").find("alice", SHA_256)

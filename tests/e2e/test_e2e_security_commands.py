"""`penstock user`, `acl`, `quota` and `token` over Kafka, with the rights of a login, and the same over NATS."""

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.contracts.levels import TOKENS_LEVEL
from penstock_gateway.security.delegation.token_keys import read_token_keys
from tests.testkit.clusters.cluster import Cluster, running, wait_for_level, wait_until
from tests.testkit.clusters.commands import TIMEOUT_S, run

pytestmark = pytest.mark.e2e

PASSWORD = "correct horse battery staple"
TOKEN_KEY = "a secret key of delegation tokens, for tests"
TWO_PHASE_COMMIT = ("--operation", "two-phase-commit", "--transactional-id", "payments")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("PENSTOCK_DELEGATION_TOKEN_SECRET_KEY", TOKEN_KEY)
        with running(tmp_path_factory.mktemp("security-commands") / "data", "--secure") as started:
            wait_for_level(started, TOKENS_LEVEL)
            yield started


@pytest.fixture
def password_file(tmp_path: Path) -> str:
    path = tmp_path / "password"
    path.write_text(f"{PASSWORD}\n")
    return str(path)


class Login:
    """The command line with the login of a user."""

    def __init__(self, *flags: str) -> None:
        self._flags = flags

    def values(self, *words: str) -> Any:
        done = run(*words, *self._flags, "-o", "json")
        assert (done.returncode, done.stderr) == (0, b"")
        return json.loads(done.stdout)

    def error(self, *words: str) -> str:
        done = run(*words, *self._flags)
        assert (done.returncode, done.stdout) == (1, b"")
        return done.stderr.decode()


@pytest.fixture
def admin(cluster: Cluster) -> Login:
    """The administrator, over Kafka."""
    return Login("--command-config", str(cluster.data / "secure" / "client.properties"), "--bootstrap", cluster.kafka)


@pytest.fixture
def over_nats(cluster: Cluster) -> Login:
    return Login("--data", str(cluster.data))


def flags_of(cluster: Cluster, user: str, folder: Path) -> tuple[str, str]:
    """The flags for the login of a user with the password."""
    lines = (cluster.data / "secure" / "librdkafka.conf").read_text().splitlines()
    changed = {"sasl.username": user, "sasl.password": PASSWORD}
    parts = (line.partition("=") for line in lines)
    path = folder / f"{user}.conf"
    path.write_text("\n".join(f"{name}={changed.get(name, value)}" for name, _, value in parts))
    return "--command-config", str(path)


def can_log_in(flags: tuple[str, str]) -> bool:
    return run("topic", "list", *flags).returncode == 0


def test_a_user_is_created_replaced_and_deleted_over_kafka(
    cluster: Cluster, admin: Login, over_nats: Login, tmp_path: Path, password_file: str
) -> None:
    create = ("user", "create", "alice", "--password-file", password_file)
    alice = {"name": "alice", "mechanisms": ["SCRAM-SHA-256", "SCRAM-SHA-512"], "iterations": [8_192, 8_192]}
    assert admin.values("user", "create", "alice", "--dry-run") == [alice | {"result": "would be created"}]
    assert admin.error("user", "describe", "alice").startswith("penstock: there is no user 'alice'")
    assert admin.values(*create) == [alice | {"result": "created"}]
    assert admin.error(*create) == "penstock: user 'alice' exists already; --replace gives it a new password\n"
    assert admin.values(*create, "--replace", "--mechanism", "SCRAM-SHA-256")[0]["result"] == "replaced"
    flags = flags_of(cluster, "alice", tmp_path)
    wait_until(lambda: can_log_in(flags), TIMEOUT_S, "the login of alice")
    assert admin.values("user", "list") == over_nats.values("user", "list")
    assert admin.values("user", "describe", "alice") == [alice]

    half = ("user", "delete", "alice", "--mechanism", "SCRAM-SHA-256")
    assert admin.error(*half).endswith("Delete the SCRAM-SHA-256 password of user alice? Confirm it with --yes\n")
    assert admin.values(*half, "--yes") == [
        {"name": "alice", "mechanisms": ["SCRAM-SHA-256"], "iterations": [8_192], "result": "deleted"}
    ]
    assert admin.error(*half, "--yes") == "penstock: user 'alice' has no password of SCRAM-SHA-256\n"
    assert admin.values("user", "delete", "alice", "--dry-run")[0]["result"] == "would be deleted"
    assert admin.error("user", "delete", "alice") == "penstock: Delete user alice? Confirm it with --yes\n"
    assert over_nats.values("user", "delete", "alice", "--yes")[0]["mechanisms"] == ["SCRAM-SHA-512"]
    assert [each["name"] for each in admin.values("user", "list")] == ["admin"]


def test_entries_are_added_listed_and_removed_over_kafka(admin: Login, over_nats: Login) -> None:
    bob = ("--principal", "User:bob")
    add = ("acl", "add", *bob, "--operation", "read", "--operation", "write", "--topic", "orders", "--prefixed")
    row = {
        "principal": "User:bob",
        "permission": "allow",
        "operation": "read",
        "resource_type": "topic",
        "name": "orders",
        "pattern": "prefixed",
        "host": "*",
    }
    rows = [row, row | {"operation": "write"}]
    assert admin.values(*add, "--dry-run") == [each | {"result": "would be added"} for each in rows]
    assert admin.values("acl", "list", *bob) == []
    assert admin.values(*add) == [each | {"result": "added"} for each in rows]
    assert admin.values(*add) == [each | {"result": "exists already"} for each in rows]
    assert admin.values("acl", "add", *bob, *TWO_PHASE_COMMIT, "--host", "10.0.0.1")[0]["result"] == "added"
    assert admin.values("acl", "add", *bob, "--operation", "describe", "--user", "carol", "--deny")
    listed = admin.values("acl", "list", *bob)
    assert len(listed) == 4 and [each for each in listed if each["resource_type"] == "topic"] == rows
    assert sorted(map(json.dumps, listed)) == sorted(map(json.dumps, over_nats.values("acl", "list", *bob)))
    assert [each["name"] for each in admin.values("acl", "list", *bob, "--deny")] == ["carol"]

    remove = ("acl", "remove", *bob, "--topic", "orders")
    assert admin.values(*remove, "--dry-run") == [each | {"result": "would be removed"} for each in rows]
    assert admin.error(*remove).startswith("penstock: Remove 2 entries, ")
    assert admin.values(*remove, "--yes") == [each | {"result": "removed"} for each in rows]
    assert admin.values(*remove, "--yes") == []
    assert len(admin.values("acl", "remove", *bob, "--yes")) == 2
    assert over_nats.values("acl", "list", *bob) == []


def test_quotas_are_set_listed_and_removed_over_kafka(admin: Login, over_nats: Login) -> None:
    alice = ("--user", "alice", "--default-client-id")
    wanted = ("quota", "set", *alice, "producer_byte_rate=1000", "request_percentage=12.5")
    row = {
        "entity": "the default client-id, user alice",
        "quotas": ["producer_byte_rate=1000", "request_percentage=12.5"],
    }
    rate = row | {"quotas": ["producer_byte_rate=2000"]}
    assert admin.values(*wanted, "--dry-run") == [row | {"before": [], "result": "would be set"}]
    assert over_nats.values(*wanted, "--dry-run") == [row | {"before": [], "result": "would be set"}]
    assert admin.values("quota", "list") == []
    assert admin.values(*wanted) == [row | {"before": [], "result": "set"}]
    assert admin.values("quota", "set", *alice, "producer_byte_rate=2000") == [
        rate | {"before": ["producer_byte_rate=1000"], "result": "set"}
    ]
    assert admin.values("quota", "set", "--ip", "127.0.0.9", "connection_creation_rate=9")
    assert len(admin.values("quota", "list")) == 2
    assert admin.values("quota", "list") == over_nats.values("quota", "list")

    half = ("quota", "remove", *alice, "producer_byte_rate")
    assert admin.values(*half, "--dry-run") == [rate | {"result": "would be removed"}]
    assert admin.error(*half).startswith("penstock: Remove producer_byte_rate of the default client-id, user alice? ")
    assert admin.values(*half, "--yes") == [rate | {"result": "removed"}]
    assert admin.error(*half, "--yes").endswith("user alice has no quota producer_byte_rate\n")
    assert over_nats.values("quota", "remove", *alice, "--yes")[0]["quotas"] == ["request_percentage=12.5"]
    assert admin.values("quota", "remove", "--ip", "127.0.0.9", "--yes")[0]["result"] == "removed"
    assert admin.values("quota", "list") == []


def test_a_token_is_created_renewed_and_revoked_over_kafka(admin: Login, over_nats: Login) -> None:
    (made,) = admin.values("token", "create", "--renewer", "bob", "--max-lifetime", "2h")
    assert (made["owner"], made["requester"], made["renewers"]) == ("admin", "admin", ["bob"])
    keys = read_token_keys(TOKEN_KEY, "")
    assert base64.b64decode(made["password"]) == keys.hmac(made["id"], keys.newest_id)
    (row,) = admin.values("token", "list")
    assert made == row | {"password": made["password"], "result": "created"}
    assert over_nats.values("token", "list") == [row]
    (renewed,) = admin.values("token", "renew", made["id"], "--period", "1h")
    assert renewed["expires"] < renewed["until"] == row["until"]
    assert admin.values("token", "list") == [{name: renewed[name] for name in row}]

    revoke = ("token", "revoke", made["id"])
    assert admin.values(*revoke, "--dry-run") == [renewed | {"result": "would be revoked"}]
    assert admin.error(*revoke).endswith(" of admin? Confirm it with --yes\n")
    assert admin.values(*revoke, "--yes") == [renewed | {"expires": "revoked", "result": "revoked"}]
    assert admin.error(*revoke, "--yes").startswith("penstock: there is no delegation token ")
    assert admin.values("token", "list") == []
    assert [each["expires"] for each in over_nats.values("token", "list")] == ["revoked"]


def test_an_operator_ends_tokens_of_others_over_nats_only(admin: Login, over_nats: Login) -> None:
    (made,) = admin.values("token", "create", "--owner", "dora")
    assert (made["owner"], made["requester"]) == ("dora", "admin")
    revoke = ("token", "revoke", made["id"], "--yes")
    assert "owner mismatch" in admin.error(*revoke)
    assert [each["id"] for each in admin.values("token", "list", "--owner", "dora")] == [made["id"]]
    assert over_nats.values(*revoke)[0]["result"] == "revoked"
    assert admin.values("token", "list") == []


def test_a_login_without_rights_over_the_cluster_changes_nothing(
    cluster: Cluster, admin: Login, tmp_path: Path, password_file: str
) -> None:
    admin.values("user", "create", "mallory", "--password-file", password_file)
    flags = flags_of(cluster, "mallory", tmp_path)
    mallory = Login(*flags)
    wait_until(lambda: can_log_in(flags), TIMEOUT_S, "the login of mallory")
    before = admin.values("acl", "list")
    assert "authorization" in mallory.error("user", "list").lower()
    assert "authorization" in mallory.error("user", "delete", "admin", "--yes").lower()
    own = ("--principal", "User:mallory", "--operation", "all", "--cluster-resource")
    assert "authorization" in mallory.error("acl", "list").lower()
    assert "authorization" in mallory.error("acl", "add", *own).lower()
    assert "authorization" in mallory.error("acl", "remove", "--yes").lower()
    assert "authorization" in mallory.error("quota", "list").lower()
    assert "authorization" in mallory.error("quota", "set", "--user", "mallory", "producer_byte_rate=1").lower()
    assert "authorization" in mallory.error("token", "create", "--owner", "admin").lower()
    (token,) = admin.values("token", "create")
    assert mallory.values("token", "list") == []
    assert mallory.error("token", "revoke", token["id"], "--yes").startswith("penstock: there is no delegation token ")
    assert admin.values("token", "revoke", token["id"], "--yes")
    assert admin.values("acl", "list") == before
    assert [each["name"] for each in admin.values("user", "list")] == ["admin", "mallory"]

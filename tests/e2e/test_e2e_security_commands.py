"""`penstock user` and `penstock acl` over Kafka, with the rights of a login, beside the same commands over NATS."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.testkit.clusters.cluster import Cluster, running, wait_until
from tests.testkit.clusters.commands import TIMEOUT_S, run

pytestmark = pytest.mark.e2e

PASSWORD = "correct horse battery staple"
TWO_PHASE_COMMIT = ("--operation", "two-phase-commit", "--transactional-id", "payments")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running(tmp_path_factory.mktemp("security-commands") / "data", "--secure") as started:
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
    assert admin.values("acl", "list") == before
    assert [each["name"] for each in admin.values("user", "list")] == ["admin", "mallory"]

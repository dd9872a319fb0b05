"""Users and access control lists with stock clients and the command line, on a whole cluster with two gateways."""

import base64
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

from tests.testkit.clusters.cluster import Cluster, running, wait_until

pytestmark = pytest.mark.e2e

PASSWORD, SALT = b"correct horse battery staple", b"sodium-chloride-0123456789"
TIMEOUT_S = 60
EVERYTHING = AclBindingFilter(
    ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running(tmp_path_factory.mktemp("security") / "data", "--gateways", "2") as started:
        yield started


@pytest.fixture
def admin(cluster: Cluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.kafka})


def binding(name: str, principal: str = "User:alice", pattern: Any = ResourcePatternType.LITERAL) -> AclBinding:
    return AclBinding(ResourceType.TOPIC, name, pattern, principal, "*", AclOperation.READ, AclPermissionType.ALLOW)


def names(bindings: Any) -> set[tuple[str, str]]:
    return {(each.name, each.principal) for each in bindings}


def upsert(user: str, mechanism: Any = ScramMechanism.SCRAM_SHA_256) -> UserScramCredentialUpsertion:
    return UserScramCredentialUpsertion(user, ScramCredentialInfo(mechanism, 8_192), PASSWORD, SALT)


def run_command(cluster: Cluster, *arguments: str, password: str = "") -> subprocess.CompletedProcess[str]:
    environment = os.environ | ({"PENSTOCK_USER_PASSWORD": password} if password else {})
    command = [sys.executable, "-m", "penstock.cli", *arguments, "--data", str(cluster.data)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)


def test_stock_clients_create_describe_and_delete_access_control_lists(admin: AdminClient) -> None:
    wanted = [binding("orders"), binding("ord", "User:bob", ResourcePatternType.PREFIXED)]
    for future in admin.create_acls(wanted).values():
        future.result(TIMEOUT_S)
    assert names(admin.describe_acls(EVERYTHING).result(TIMEOUT_S)) == {("orders", "User:alice"), ("ord", "User:bob")}
    of_orders = AclBindingFilter(
        ResourceType.TOPIC,
        "orders",
        ResourcePatternType.MATCH,
        "User:bob",
        None,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    assert names(admin.describe_acls(of_orders).result(TIMEOUT_S)) == {("ord", "User:bob")}
    deleted = admin.delete_acls([of_orders])[of_orders].result(TIMEOUT_S)
    assert names(deleted) == {("ord", "User:bob")}
    assert names(admin.describe_acls(EVERYTHING).result(TIMEOUT_S)) == {("orders", "User:alice")}
    bad = binding("orders", "alice")
    with pytest.raises(KafkaException, match="no colon is present") as caught:
        admin.create_acls([bad])[bad].result(TIMEOUT_S)
    assert caught.value.args[0].code() == KafkaError.INVALID_REQUEST


def test_stock_clients_set_describe_and_delete_passwords(cluster: Cluster, admin: AdminClient) -> None:
    changes = [upsert("alice"), upsert("alice", ScramMechanism.SCRAM_SHA_512), upsert("bob")]
    for future in admin.alter_user_scram_credentials(changes).values():
        future.result(TIMEOUT_S)
    described = admin.describe_user_scram_credentials().result(TIMEOUT_S)
    found = {
        user: sorted((info.mechanism.name, info.iterations) for info in each.scram_credential_infos)
        for user, each in described.items()
    }
    assert found == {
        "alice": [("SCRAM_SHA_256", 8_192), ("SCRAM_SHA_512", 8_192)],
        "bob": [("SCRAM_SHA_256", 8_192)],
    }
    gone = UserScramCredentialDeletion("bob", ScramMechanism.SCRAM_SHA_256)
    admin.alter_user_scram_credentials([gone])["bob"].result(TIMEOUT_S)
    with pytest.raises(KafkaException) as caught:
        admin.alter_user_scram_credentials([gone])["bob"].result(TIMEOUT_S)
    assert caught.value.args[0].code() == KafkaError.RESOURCE_NOT_FOUND
    assert list(admin.describe_user_scram_credentials().result(TIMEOUT_S)) == ["alice"]


def test_the_command_line_and_clients_see_the_same_users_and_lists(cluster: Cluster, admin: AdminClient) -> None:
    made = run_command(cluster, "user", "create", "operator", password="let-me-in-please")
    assert made.returncode == 0, made.stderr
    assert "operator" in admin.describe_user_scram_credentials().result(TIMEOUT_S)
    added = run_command(
        cluster, "acl", "add", "--principal", "User:operator", "--operation", "all", "--cluster-resource"
    )
    assert added.returncode == 0, added.stderr
    lists = admin.describe_acls(EVERYTHING).result(TIMEOUT_S)
    assert ("kafka-cluster", "User:operator") in names(lists)
    shown = run_command(cluster, "acl", "list", "--principal", "User:operator", "--output", "json")
    (only,) = json.loads(shown.stdout)
    assert (only["resource_type"], only["operation"], only["permission"]) == ("cluster", "all", "allow")
    removed = run_command(cluster, "acl", "remove", "--principal", "User:operator", "--yes")
    assert removed.returncode == 0, removed.stderr
    assert ("kafka-cluster", "User:operator") not in names(admin.describe_acls(EVERYTHING).result(TIMEOUT_S))
    assert run_command(cluster, "user", "delete", "operator", "--yes").returncode == 0
    assert "operator" not in admin.describe_user_scram_credentials().result(TIMEOUT_S)


def test_the_command_line_sets_lists_and_removes_quotas(cluster: Cluster) -> None:
    made = run_command(cluster, "quota", "set", "--user", "reader", "consumer_byte_rate=1000000")
    assert made.returncode == 0, made.stderr
    shown = run_command(cluster, "quota", "list", "--output", "json")
    assert json.loads(shown.stdout) == [{"entity": "user reader", "quotas": ["consumer_byte_rate=1000000"]}]
    removed = run_command(cluster, "quota", "remove", "--user", "reader", "--yes")
    assert removed.returncode == 0, removed.stderr
    again = run_command(cluster, "quota", "remove", "--user", "reader", "--yes")
    assert (again.returncode, again.stderr) == (1, "penstock: user reader has no quotas\n")


def test_no_file_of_the_cluster_has_a_password_or_a_salted_one(cluster: Cluster, admin: AdminClient) -> None:
    """Neither journal, snapshots and archive nor logs; the verifier's salt shows that the journal was read."""
    admin.alter_user_scram_credentials([upsert("carol")])["carol"].result(TIMEOUT_S)
    run_command(cluster, "user", "create", "dora", password="let-me-in-please")
    salted = hashlib.pbkdf2_hmac("sha256", PASSWORD, SALT, 8_192)
    secrets = [PASSWORD, b"let-me-in-please", *forms(salted)]
    wait_until(lambda: any(SALT in data for _, data in files(cluster.data)), TIMEOUT_S, "the journal on disk")
    found = [(path.name, secret) for path, data in files(cluster.data) for secret in secrets if secret in data]
    assert found == []


def forms(secret: bytes) -> list[bytes]:
    """The ways in which a log could show bytes."""
    return [secret, secret.hex().encode(), base64.b64encode(secret), repr(secret)[2:-1].encode()]


def files(folder: Path) -> Iterator[tuple[Path, bytes]]:
    for path in folder.rglob("*"):
        if path.is_file():
            try:
                yield path, path.read_bytes()
            except FileNotFoundError:  # it was replaced meanwhile
                continue


def test_users_and_lists_survive_the_end_of_all_processes(cluster: Cluster, admin: AdminClient) -> None:
    admin.alter_user_scram_credentials([upsert("erin")])["erin"].result(TIMEOUT_S)
    admin.create_acls([binding("kept", "User:erin")])[binding("kept", "User:erin")].result(TIMEOUT_S)
    cluster.stop()
    cluster.start()
    again = AdminClient({"bootstrap.servers": cluster.kafka})
    assert "erin" in again.describe_user_scram_credentials().result(TIMEOUT_S)
    assert ("kept", "User:erin") in names(again.describe_acls(EVERYTHING).result(TIMEOUT_S))

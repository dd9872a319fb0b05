"""The audit topic with stock clients: a super user reads it, no client writes to it, and it has no secret."""

import json
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicCollection
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from penstock.contracts.ids import AUDIT_TOPIC
from tests.testkit.clusters.cluster import running, wait_until
from tests.testkit.clusters.secured_gateway import SecuredGateway, add_user, secured_gateway
from tests.testkit.loads.retries import until_done

pytestmark = pytest.mark.e2e

TIMEOUT_S = 120.0
LISTENER = "SASL_PLAINTEXT"
RETENTION_MS = "86400000"
PASSWORD, WRONG, MISTYPED, SALT = (secrets.token_urlsafe(18) for _ in range(4))
NEW_PASSWORD = secrets.token_urlsafe(18)
Events = list[dict[str, Any]]


class Audited(NamedTuple):
    """A gateway with logins, access control and the audit topic; `root` is a super user, `alice` has no rights."""

    gateway: SecuredGateway

    def settings(self, user: str, password: str = PASSWORD) -> dict[str, Any]:
        return {
            "bootstrap.servers": self.gateway.addresses[LISTENER],
            "security.protocol": LISTENER,
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.username": user,
            "sasl.password": password,
            "error_cb": lambda error: None,
        }

    def admin(self, user: str = "root", password: str = PASSWORD) -> AdminClient:
        return AdminClient(self.settings(user, password))


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Audited]:
    data: Path = tmp_path_factory.mktemp("audit") / "data"
    with running(data, "--flush-ms", "20") as cluster:
        for user in ("root", "alice"):
            add_user(cluster, user, PASSWORD)
        settings = {"authorizer": "on", "super_users": "User:root", "audit": "on", "audit_retention_ms": RETENTION_MS}
        with secured_gateway(cluster, "audited", LISTENER, **settings) as gateway:
            yield Audited(gateway)


class Reader:
    """A super user's consumer of the audit topic from its beginning, which keeps all events."""

    def __init__(self, audited: Audited) -> None:
        group = {"group.id": secrets.token_hex(8), "auto.offset.reset": "earliest"}
        self._consumer = Consumer(audited.settings("root") | group)
        self._consumer.subscribe([AUDIT_TOPIC])
        self.events: Events = []
        self.values: list[bytes] = []

    def until(self, is_wanted: Callable[[dict[str, Any]], bool], what: str) -> dict[str, Any]:
        """The first event of a kind, as soon as it is in the topic."""

        def found() -> dict[str, Any] | None:
            message = self._consumer.poll(0.2)
            if message is not None and message.error() is None:
                event = json.loads(message.value())
                assert message.key().decode() == event["principal"]
                self.events.append(event)
                self.values.append(message.value())
            return next((each for each in self.events if is_wanted(each)), None)

        event = wait_until(found, TIMEOUT_S, what)
        assert event is not None
        return event

    def close(self) -> None:
        self._consumer.close()


@pytest.fixture
def reader(audited: Audited) -> Iterator[Reader]:
    opened = Reader(audited)
    yield opened
    opened.close()


def fail_to_log_in(audited: Audited, user: str, password: str) -> None:
    errors: list[KafkaError] = []
    client = AdminClient(audited.settings(user, password) | {"error_cb": errors.append})

    def is_refused() -> bool:
        client.poll(0.1)
        return any(error.code() == KafkaError._AUTHENTICATION for error in errors)

    wait_until(is_refused, TIMEOUT_S, "the login to fail")


def error_of(audited: Audited, user: str, topic: str) -> int:
    """The error of one record to a topic."""
    errors: list[KafkaError | None] = []
    producer = Producer(audited.settings(user) | {"message.timeout.ms": int(TIMEOUT_S * 1000)})
    producer.produce(topic, b"x", on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(TIMEOUT_S) == 0
    (error,) = errors
    return 0 if error is None else int(error.code())


def code_of(call: Callable[[], Any]) -> int:
    with pytest.raises(KafkaException) as raised:
        until_done(call)
    return int(raised.value.args[0].code())


def test_a_super_user_reads_logins_denials_and_changes_and_no_secret(audited: Audited, reader: Reader) -> None:
    admin = audited.admin()
    until_done(lambda: admin.create_topics([NewTopic("orders", 1)])["orders"].result(TIMEOUT_S))
    rule = AclBinding(
        ResourceType.TOPIC,
        "orders",
        ResourcePatternType.LITERAL,
        "User:alice",
        "*",
        AclOperation.DESCRIBE,
        AclPermissionType.ALLOW,
    )
    until_done(lambda: admin.create_acls([rule])[rule].result(TIMEOUT_S))
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4_096)
    change = UserScramCredentialUpsertion("bob", info, NEW_PASSWORD.encode(), SALT.encode())
    until_done(lambda: admin.alter_user_scram_credentials([change])["bob"].result(TIMEOUT_S))
    fail_to_log_in(audited, "alice", WRONG)
    fail_to_log_in(audited, MISTYPED, PASSWORD)
    wait_until(
        lambda: error_of(audited, "alice", "orders") == KafkaError.TOPIC_AUTHORIZATION_FAILED, TIMEOUT_S, "a denial"
    )

    created = reader.until(lambda each: each.get("resource") == "TOPIC:orders", "the new topic")
    assert (created["api"], created["operation"], created["outcome"]) == ("CreateTopics", "CREATE", "succeeded")
    assert (created["kind"], created["principal"], created["peer"]) == ("changed", "User:root", "127.0.0.1")
    assert (created["gateway"], created["listener"]) == ("audited", LISTENER)
    listed = reader.until(lambda each: each.get("api") == "CreateAcls", "the new list")
    assert listed["detail"] == "ALLOW User:alice DESCRIBE on TOPIC:LITERAL:orders from *"
    password = reader.until(lambda each: each.get("api") == "AlterUserScramCredentials", "the new password")
    assert (password["resource"], password["detail"]) == ("USER:bob", "set SHA_256")
    failed = reader.until(lambda each: each["kind"] == "login_failed" and each["principal"] != "unknown", "a failure")
    assert (failed["principal"], failed["mechanism"]) == ("User:alice", "SCRAM-SHA-256")
    assert failed["reason"] == "wrong password or unknown user"
    reader.until(lambda each: each["kind"] == "login_failed" and each["principal"] == "unknown", "the other failure")
    denied = reader.until(
        lambda each: each["kind"] == "access_denied" and each.get("api") == "Produce" and "outcome" in each, "a denial"
    )
    assert (denied["principal"], denied["resource"], denied["outcome"]) == ("User:alice", "TOPIC:orders", "denied")
    reader.until(lambda each: each["kind"] == "login_succeeded" and each["principal"] == "User:root", "a login")
    # The events of the secrets are there, so those that the gateway recorded before them are, too.
    text = b"".join(reader.values)
    assert [each for each in (PASSWORD, WRONG, MISTYPED, NEW_PASSWORD, SALT) if each.encode() in text] == []


def test_no_client_changes_the_topic_and_its_retention_can_be_altered(audited: Audited, reader: Reader) -> None:
    reader.until(lambda each: each["kind"] == "login_succeeded", "the topic")
    admin = audited.admin()
    assert error_of(audited, "root", AUDIT_TOPIC) == KafkaError.TOPIC_EXCEPTION
    assert error_of(audited, "alice", AUDIT_TOPIC) == KafkaError.TOPIC_AUTHORIZATION_FAILED
    deleted = code_of(lambda: admin.delete_topics([AUDIT_TOPIC])[AUDIT_TOPIC].result(TIMEOUT_S))
    assert deleted == KafkaError.TOPIC_EXCEPTION
    refused = reader.until(lambda each: each.get("api") == "DeleteTopics", "the refused deletion")
    assert (refused["resource"], refused["outcome"]) == (f"TOPIC:{AUDIT_TOPIC}", "INVALID_TOPIC_EXCEPTION")
    resource = ConfigResource(ConfigResource.Type.TOPIC, AUDIT_TOPIC)
    configs = until_done(lambda: admin.describe_configs([resource])[resource].result(TIMEOUT_S))
    assert configs["retention.ms"].value == RETENTION_MS
    described = until_done(lambda: admin.describe_topics(TopicCollection([AUDIT_TOPIC]))[AUDIT_TOPIC].result(TIMEOUT_S))
    assert described.is_internal
    entry = ConfigEntry("retention.ms", "7200000", incremental_operation=AlterConfigOpType.SET)
    altered = ConfigResource(ConfigResource.Type.TOPIC, AUDIT_TOPIC, incremental_configs=[entry])
    until_done(lambda: admin.incremental_alter_configs([altered])[altered].result(TIMEOUT_S))
    event = reader.until(lambda each: each.get("api") == "IncrementalAlterConfigs", "the new retention")
    assert (event["resource"], event["detail"], event["outcome"]) == (
        f"TOPIC:{AUDIT_TOPIC}",
        "set retention.ms",
        "succeeded",
    )

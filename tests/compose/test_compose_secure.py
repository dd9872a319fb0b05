"""The project with compose.secure.yaml: stock clients log in with the copied files, and no other client is served.

It also has compose.certificates.yaml, and an issuer of tokens.
"""

import asyncio
import base64
import contextlib
import json
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import aiokafka
import boto3
import botocore.exceptions
import kafka
import nats
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from penstock.cli.credentials import ROLES
from penstock.contracts import senders, subjects
from penstock.contracts.subjects import Sender
from penstock.runtime.process.env_file import parse_env
from tests.testkit.clusters.cluster import wait_until
from tests.testkit.clusters.compose import CLIENT_IMAGE, HTTP_PORT, Project, docker
from tests.testkit.clusters.secured_project import SecuredProject, secured_project
from tests.testkit.servers.certificates import CLIENT, Authority
from tests.testkit.servers.token_issuer import LIFETIME_S, Issuer

pytestmark = [pytest.mark.compose, pytest.mark.timeout(900)]

TIMEOUT_S = 60.0
CLUSTER = "default"
USER, PASSWORD = "alice", "pässwörd of alice, =2C"
NAME_IN_CERTIFICATE = "CN=laptop,O=Example"
TOPIC, SECRET_TOPIC = "orders", "salaries"
SCRAMS = {"SCRAM-SHA-256": ScramMechanism.SCRAM_SHA_256, "SCRAM-SHA-512": ScramMechanism.SCRAM_SHA_512}
MECHANISMS = [*SCRAMS, "PLAIN"]
VALUES = [b"%d" % number for number in range(5)]
ITERATIONS = 4_096
SERVICES = ("gateway", "flusher", "sequencer", "cacher", "janitor", "console")
# Prints all files of the volumes with credentials.
PRINT_FILES = "import pathlib\nfor path in pathlib.Path('/c').rglob('*'): path.is_file() and print(path.read_text())"
# Runs in the network: the brokers that a client gets, and their topics.
INSIDE = """
from confluent_kafka.admin import AdminClient
lines = [line.rstrip("\\n").split("=", 1) for line in open("librdkafka.conf")]
found = AdminClient(dict(lines) | {"bootstrap.servers": "gateway:9092"}).list_topics(timeout=30)
print(sorted(f"{each.host}:{each.port}" for each in found.brokers.values()), sorted(found.topics))
"""


class Secure(NamedTuple):
    """The running project, and the logins at it."""

    started: SecuredProject

    @property
    def project(self) -> Project:
        return self.started.project

    @property
    def folder(self) -> Path:
        """The copied files of the administrator."""
        return self.started.client

    @property
    def administrator(self) -> dict[str, Any]:
        """The settings of librdkafka."""
        lines = (self.folder / "librdkafka.conf").read_text().splitlines()
        ca = {"ssl.ca.location": str(self.folder / "ca.pem"), "bootstrap.servers": self.project.kafka}
        return dict(line.split("=", 1) for line in lines) | ca | {"log_level": "0"}

    def settings(self, mechanism: str, password: str = PASSWORD, user: str = USER) -> dict[str, Any]:
        """The settings of librdkafka for another user."""
        given = {"sasl.mechanism": mechanism, "sasl.username": user, "sasl.password": password}
        return self.administrator | given

    def python_settings(self, mechanism: str, password: str = PASSWORD) -> dict[str, Any]:
        """The settings of kafka-python and of aiokafka for the user."""
        return {
            "bootstrap_servers": self.project.kafka,
            "security_protocol": "SASL_SSL",
            "ssl_context": ssl.create_default_context(cafile=str(self.folder / "ca.pem")),
            "sasl_mechanism": mechanism,
            "sasl_plain_username": USER,
            "sasl_plain_password": password,
        }


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secure]:
    with secured_project("penstock-e2e-secure", tmp_path_factory.mktemp("secure")) as started:
        one = Secure(started)
        admin = AdminClient(one.administrator)
        wait_until(lambda: served(one.administrator), TIMEOUT_S, "the administrator to be known")
        for created in admin.create_topics([NewTopic(name, 1) for name in (TOPIC, SECRET_TOPIC)]).values():
            created.result(TIMEOUT_S)
        infos = [ScramCredentialInfo(each, ITERATIONS) for each in SCRAMS.values()]
        upsertions = [UserScramCredentialUpsertion(USER, info, PASSWORD.encode()) for info in infos]
        admin.alter_user_scram_credentials(upsertions)[USER].result(TIMEOUT_S)
        lists = [
            allowed(ResourceType.TOPIC, TOPIC),
            allowed(ResourceType.GROUP, "g"),
            allowed(ResourceType.TOPIC, TOPIC, NAME_IN_CERTIFICATE),
        ]
        for created in admin.create_acls(lists).values():
            created.result(TIMEOUT_S)
        wait_until(lambda: TOPIC in served(one.settings("PLAIN")), TIMEOUT_S, "the user to be known")
        yield one


def allowed(kind: ResourceType, name: str, user: str = USER) -> AclBinding:
    """Everything for the user."""
    return AclBinding(
        kind, name, ResourcePatternType.LITERAL, f"User:{user}", "*", AclOperation.ALL, AclPermissionType.ALLOW
    )


def served(settings: dict[str, Any]) -> set[str]:
    """The topics that a client sees; none if it is refused or gets no answer."""
    with contextlib.suppress(KafkaException):
        return set(AdminClient(settings | {"error_cb": lambda _: None}).list_topics(timeout=5).topics) or {""}
    return set()


def answered(settings: dict[str, Any]) -> set[str]:
    """The topics that a client sees as soon as it gets an answer."""
    found: set[str] = wait_until(lambda: served(settings), TIMEOUT_S, "an answer")
    return found


def refusal(settings: dict[str, Any]) -> str:
    """The error with which a client's connection fails; "" if it is served."""
    errors: list[KafkaError] = []
    admin = AdminClient(settings | {"error_cb": errors.append})

    def is_decided() -> bool:
        admin.poll(0)
        with contextlib.suppress(KafkaException):
            return bool(admin.list_topics(timeout=1).brokers)
        return any(error.code() != KafkaError._ALL_BROKERS_DOWN for error in errors)

    wait_until(is_decided, TIMEOUT_S, "an answer")
    return "; ".join(error.str() for error in errors)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_confluent_kafka_produces_and_consumes(secure: Secure, mechanism: str) -> None:
    producer, errors = Producer(secure.settings(mechanism)), list[object]()
    for value in VALUES:
        producer.produce(TOPIC, value, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(TIMEOUT_S) == 0
    assert errors == [None] * len(VALUES)
    consumer = Consumer(secure.settings(mechanism) | {"group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe([TOPIC])
    try:
        found = consumer.consume(len(VALUES), TIMEOUT_S)
        assert [message.value() for message in found] == VALUES
        consumer.commit()
    finally:
        consumer.close()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_aiokafka_and_kafka_python_log_in(secure: Secure, mechanism: str) -> None:
    async def produce() -> None:
        async with aiokafka.AIOKafkaProducer(**secure.python_settings(mechanism)) as producer:
            await asyncio.wait_for(producer.send_and_wait(TOPIC, b"aiokafka"), TIMEOUT_S)

    asyncio.run(produce())
    with contextlib.closing(kafka.KafkaProducer(**secure.python_settings(mechanism))) as producer:
        assert producer.send(TOPIC, b"kafka-python").get(TIMEOUT_S).topic == TOPIC


def test_a_client_in_the_network_logs_in_at_the_name_of_all_gateways(secure: Secure) -> None:
    mounted = ("--volume", f"{secure.folder}:/files:ro", "--workdir", "/files")
    command = ("--user", "0", "--entrypoint", "python3", CLIENT_IMAGE, "-c", INSIDE)
    printed = docker("run", "--rm", "--network", secure.project.network, *mounted, *command)
    assert printed.startswith("['gateway:9092'] ")
    assert SECRET_TOPIC in printed


def test_operators_log_in_in_a_container(secure: Secure) -> None:
    listed = json.loads(secure.project.compose("run", "--rm", "admin", "topic", "list", "-o", "json"))
    assert {TOPIC, SECRET_TOPIC} <= {each["name"] for each in listed}


def test_users_log_in_at_the_console_with_their_own_rights(secure: Secure) -> None:
    def ask(path: str, user: str, password: str) -> int:
        login = base64.b64encode(f"{user}:{password}".encode()).decode()
        url = f"http://127.0.0.1:{secure.project.console_port}/api/v1{path}"
        request = urllib.request.Request(url, headers={"Authorization": f"Basic {login}"} if user else {})
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code

    administrator = ("admin", (secure.folder / "password").read_text().strip())
    assert ask("/topics", *administrator) == ask(f"/topics/{SECRET_TOPIC}/messages", *administrator) == 200
    assert ask("/topics", "", "") == ask("/topics", "admin", "wrong") == 401
    assert ask("/topics", USER, PASSWORD) == 403, "the user may not describe the cluster"


def test_a_token_of_the_issuer_logs_in_and_a_forged_one_is_refused(secure: Secure) -> None:
    def settings(issuer: Issuer) -> dict[str, Any]:
        def give(_: str) -> tuple[str, float]:
            return issuer.token(USER), time.time() + LIFETIME_S

        return {**secure.administrator, "sasl.mechanism": "OAUTHBEARER", "oauth_cb": give}

    assert answered(settings(secure.started.issuer)) == {TOPIC}
    assert "invalid_token" in refusal(settings(Issuer()))


def test_a_certificate_logs_in_at_its_listener_and_one_of_another_authority_is_refused(
    secure: Secure, tmp_path: Path
) -> None:
    def settings(authority: Authority) -> dict[str, Any]:
        pair = authority.issue("client", NAME_IN_CERTIFICATE, usage=CLIENT)
        files = {"ssl.certificate.location": str(pair.certificate), "ssl.key.location": str(pair.key)}
        where = {"bootstrap.servers": secure.started.certificates, "security.protocol": "SSL"}
        return {"ssl.ca.location": str(secure.folder / "ca.pem"), "log_level": "0", **where, **files}

    assert answered(settings(secure.started.authority)) == {TOPIC}
    assert "unknown ca" in refusal(settings(Authority(tmp_path / "others"))).lower()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_wrong_password_and_an_unknown_user_are_refused_alike(secure: Secure, mechanism: str) -> None:
    errors = {
        refusal(secure.settings(mechanism, password="wrong-password")).partition(": ")[2].partition("(after")[0],
        refusal(secure.settings(mechanism, user="mallory")).partition(": ")[2].partition("(after")[0],
    }
    assert len(errors) == 1
    assert "invalid credentials" in errors.pop()


def test_no_client_is_served_without_tls_and_a_login(secure: Secure) -> None:
    ca = {"ssl.ca.location": str(secure.folder / "ca.pem")}
    for settings in (
        {"security.protocol": "PLAINTEXT"},
        {"security.protocol": "SSL", **ca},
        secure.settings("PLAIN") | {"security.protocol": "SASL_PLAINTEXT"},
        secure.settings("PLAIN") | {"ssl.ca.location": "probe"},  # the machine's own authorities
    ):
        given = {"bootstrap.servers": secure.project.kafka, "log_level": "0", **settings}
        assert not served(given), settings["security.protocol"]


def test_a_user_sees_and_does_only_what_its_lists_allow(secure: Secure) -> None:
    settings = secure.settings("SCRAM-SHA-512")
    admin = AdminClient(settings)
    assert answered(settings) == {TOPIC}
    failed: list[KafkaError] = []
    producer = Producer(settings)
    producer.produce(SECRET_TOPIC, b"x", on_delivery=lambda error, _: failed.append(error))
    producer.flush(TIMEOUT_S)
    assert failed[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    with pytest.raises(KafkaException, match=r"CLUSTER_AUTHORIZATION_FAILED|TOPIC_AUTHORIZATION_FAILED"):
        admin.create_topics([NewTopic("mine", 1)])["mine"].result(TIMEOUT_S)


def http_token(secure: Secure) -> str:
    return docker("exec", secure.project.one("gateway").id, "cat", "/run/credentials/http-token").strip()


def test_metrics_need_the_token_and_readiness_needs_none(secure: Secure) -> None:
    token = http_token(secure)
    for service in SERVICES:
        address = f"http://{secure.project.one(service).address}:{HTTP_PORT}"
        with urllib.request.urlopen(f"{address}/ready", timeout=TIMEOUT_S) as answer:
            assert answer.status == 200
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(f"{address}/metrics", timeout=TIMEOUT_S)
        asked = urllib.request.Request(f"{address}/metrics", headers={"Authorization": f"Bearer {token}"})
        with urllib.request.urlopen(asked, timeout=TIMEOUT_S) as answer:
            assert b"penstock_" in answer.read()


def test_only_sequencers_reach_the_monitoring_of_nats(secure: Secure) -> None:
    code = (
        "import socket, sys\n"
        "for host in sys.argv[1:]:\n"
        "    try: socket.create_connection((host, 8222), 3).close(); print('open', end=' ')\n"
        "    except OSError: print('closed', end=' ')"
    )
    address = secure.project.one("nats").address  # in the network of all services
    found = {
        service: docker("exec", secure.project.one(service).id, "python3", "-c", code, "nats-monitor", address).split()
        for service in ("sequencer", "gateway", "cacher")
    }
    assert found["gateway"] == found["cacher"] == ["closed", "closed"]
    assert found["sequencer"][0] == "open"


def test_a_stolen_credential_of_a_gateway_does_no_more_than_its_role(secure: Secure, tmp_path: Path) -> None:
    """With all files of its volume: each subject of the other roles, and writes to the store."""
    gateway = secure.project.one("gateway")
    for name in ("ca.pem", "nats.pem", "nats-key.pem", "credentials.env"):
        (tmp_path / name).write_text(docker("exec", gateway.id, "cat", f"/run/credentials/{name}"))
    given = parse_env((tmp_path / "credentials.env").read_text(), "gateway")
    denied, wanted = asyncio.run(denied_subjects(secure, tmp_path, given))
    assert denied == wanted
    store = boto3.client(
        "s3",
        endpoint_url=f"http://{secure.project.one('s3').address}:8333",
        aws_access_key_id=given["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=given["AWS_SECRET_ACCESS_KEY"],
        region_name="us-east-1",
    )
    store.list_objects_v2(Bucket="penstock", Prefix="default/segments/")
    marker = "default/journal-identity"  # the sequencer made it
    for attack in (
        lambda: store.list_objects_v2(Bucket="penstock"),
        lambda: store.get_object(Bucket="penstock", Key=marker),
        lambda: store.put_object(Bucket="penstock", Key="forged", Body=b"x"),
        lambda: store.put_object(Bucket="penstock", Key=marker, Body=b"x"),
        lambda: store.delete_object(Bucket="penstock", Key=marker),
        lambda: store.create_bucket(Bucket="other"),
        lambda: store.delete_bucket(Bucket="penstock"),
    ):
        with pytest.raises(botocore.exceptions.ClientError, match="AccessDenied"):
            attack()


async def denied_subjects(secure: Secure, folder: Path, given: dict[str, str]) -> tuple[set[str], set[str]]:
    """The subjects that the server did not let the gateway's user publish to, and those that it must not."""
    context = ssl.create_default_context(cafile=str(folder / "ca.pem"))
    context.load_cert_chain(folder / "nats.pem", folder / "nats-key.pem")
    errors: list[str] = []
    heard = asyncio.Event()

    async def keep(error: Exception) -> None:
        errors.append(str(error))
        heard.set()

    client = await nats.connect(
        f"tls://{secure.project.one('nats').address}:4222",
        user=given["PENSTOCK_NATS_USER"],
        password=given["PENSTOCK_NATS_PASSWORD"],
        tls=context,
        tls_hostname="nats",
        tls_handshake_first=True,
        error_cb=keep,
        allow_reconnect=False,
    )
    stream, instance = subjects.journal_stream(CLUSTER), (CLUSTER, "a", "x")
    wanted = {
        *(subjects.sequencer_command(CLUSTER, each) for each in Sender if each != Sender.CLIENT),
        subjects.sequencer_command_of_any(CLUSTER),
        subjects.journal_subject(CLUSTER),
        subjects.advanced(CLUSTER),
        *(f"$JS.API.STREAM.{verb}.{stream}" for verb in ("INFO", "PURGE", "DELETE", "UPDATE", "MSG.GET", "MSG.DELETE")),
        *(subjects.presence(CLUSTER, role, "a", "x") for role in ROLES if role != "gateway"),
        *(f"_INBOX.{role}.1.1" for role in ROLES if role not in ("gateway", "flusher", "agent")),
        subjects.explain(CLUSTER),
        "$SYS.REQ.SERVER.PING",
        subjects.flush("elsewhere", *instance[1:]),
        subjects.sequencer_command("elsewhere", Sender.CLIENT),
    }
    assert senders.QUERIES[Sender.CLIENT]
    for subject in wanted:
        await client.publish(subject, b"")
    await client.flush()  # its PING may overtake messages, so errors may come after it
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(TIMEOUT_S):
            while len(errors) < len(wanted):
                heard.clear()
                await heard.wait()
    await client.close()
    return {subject for subject in wanted if any(f'"{subject.lower()}"' in each.lower() for each in errors)}, wanted


def test_no_secret_is_in_an_image_a_log_a_metric_a_command_line_or_a_volume_of_data(
    secure: Secure, tmp_path: Path
) -> None:
    project = secure.project
    secrets = {PASSWORD.encode(), *secrets_of(project)}
    assert len(secrets) > len(ROLES) * 2
    token = {"Authorization": f"Bearer {http_token(secure)}"}
    images = {}
    for container in project.containers():
        texts = {
            "log": container.logs(),
            "facts": docker("inspect", container.id),
            "processes": docker("top", container.id, "-eo", "pid,args"),
        }
        if container.service in SERVICES:
            asked = urllib.request.Request(f"http://{container.address}:{HTTP_PORT}/metrics", headers=token)
            with urllib.request.urlopen(asked, timeout=TIMEOUT_S) as answer:
                texts["metrics"] = answer.read().decode()
        image = images[container.service] = json.loads(texts["facts"])[0]["Image"]
        texts["image"] = docker("image", "inspect", image) + docker("history", "--no-trunc", image)
        found = [name for name, text in texts.items() for secret in secrets if secret in text.encode()]
        assert found == [], container.name
    (tmp_path / "patterns").write_bytes(b"\n".join(secrets))
    for service in SERVICES:
        assert files_with(tmp_path, images[service], "/opt /usr/local /etc /home /root /srv /var /scratch") == []
    for volume in ("nats-data", "s3-data"):  # the journal and the objects
        assert files_with(tmp_path, CLIENT_IMAGE, "/searched", f"{project.name}_{volume}") == []
    assert files_with(tmp_path, CLIENT_IMAGE, "/searched", f"{project.name}_gateway-credentials"), "it finds some"


def files_with(patterns: Path, image: str, folders: str, volume: str = "") -> list[str]:
    """The files of an image or of a volume that have a text of the file `patterns` in that folder."""
    mounts = ["--volume", f"{patterns}:/patterns:ro", *(["--volume", f"{volume}:/searched:ro"] if volume else [])]
    command = f"grep -rlaF -f /patterns/patterns {folders} 2>/dev/null || test $? -le 2"
    return docker("run", "--rm", "--user", "0", *mounts, "--entrypoint", "sh", image, "-c", command).split()


def secrets_of(project: Project) -> set[bytes]:
    """All passwords and tokens in the volumes, and a part of each private key."""
    names = [*ROLES, "bucket", "nats", "s3", "client", "http", "kafka-ca", "ca"]
    mounts = [part for name in names for part in ("--volume", f"{project.name}_{name}-credentials:/c/{name}:ro")]
    text = docker("run", "--rm", "--user", "0", *mounts, "--entrypoint", "python3", CLIENT_IMAGE, "-c", PRINT_FILES)
    found: set[bytes] = set()
    is_key = False
    for line in text.splitlines():
        if "PRIVATE KEY" in line:
            is_key = "BEGIN" in line
        elif is_key and len(line) > 60:
            found.add(line[30:].encode())  # the first letters name the curve
        elif len(line) == 64 and " " not in line:
            found.add(line.encode())
        elif "PASSWORD=" in line or "SECRET" in line:
            found.add(line.partition("=")[2].encode())
    return found - {b""}


def test_a_new_password_of_the_administrator_counts_after_the_steps_of_the_page(secure: Secure, tmp_path: Path) -> None:
    old = secure.administrator
    secure.project.compose("run", "--rm", "credentials", "--rotate", "client")
    secure.project.compose("up", "--detach", "--no-build", "--no-deps", "administrator")
    secure.project.compose("cp", "credentials:/credentials/client", str(tmp_path / "client"))
    new = Secure(secure.started._replace(client=tmp_path / "client")).administrator
    assert new["sasl.password"] != old["sasl.password"]
    wait_until(lambda: SECRET_TOPIC in served(new), TIMEOUT_S, "the new password")
    wait_until(lambda: "invalid credentials" in refusal(old), TIMEOUT_S, "the end of the old one")

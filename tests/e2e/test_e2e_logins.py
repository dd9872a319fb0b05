"""Stock clients log in with each mechanism, fail with a clear error, and log in again before their sessions end."""

import asyncio
import contextlib
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import aiokafka
import kafka
import pytest
from aiokafka.abc import AbstractTokenProvider as AsyncTokenProvider
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.admin import AdminClient
from kafka.net.sasl.oauth import AbstractTokenProvider

from tests.testkit.clusters.cluster import Cluster, running, wait_until
from tests.testkit.clusters.console import running_console
from tests.testkit.clusters.secured_gateway import SecuredGateway, add_user, remove_user, secured_gateway
from tests.testkit.servers.certificates import Authority, tls_settings
from tests.testkit.servers.openid_provider import CLIENT_ID, CLIENT_SECRET, KEYS, providing
from tests.testkit.servers.ports import free_port
from tests.testkit.servers.token_issuer import AUDIENCE, ISSUER, LIFETIME_S, Issuer, serving

pytestmark = pytest.mark.e2e

USER, PASSWORD = "älice, with = and comma", "pässwörd, =2C"
PLAIN_USER = "zoë"  # kafka-python 3.0 does not escape commas and equals signs
USER_OF_TOKEN = "service-7"
PROTOCOLS = ["SASL_PLAINTEXT", "SASL_SSL"]
SCRAMS = ["SCRAM-SHA-256", "SCRAM-SHA-512"]
PASSWORDS = [*SCRAMS, "PLAIN"]
OAUTHBEARER = "OAUTHBEARER"
MECHANISMS = [*PASSWORDS, OAUTHBEARER]
VALUES = [b"%d" % number for number in range(20)]
TIMEOUT_S = 60.0
SESSION_MS = 20_000  # librdkafka logs in again 2 s before the end
LOGINS = "penstock_gateway_logins_total"
CLOSED_CONNECTIONS = "penstock_gateway_connections_closed_total"

every_mechanism = pytest.mark.parametrize("mechanism", MECHANISMS)


class Secured(NamedTuple):
    """A cluster, its gateway with logins, and the issuer of tokens that it trusts."""

    cluster: Cluster
    gateway: SecuredGateway
    issuer: Issuer
    authority: Authority
    protocol: str = "SASL_PLAINTEXT"

    @property
    def address(self) -> str:
        """The address of the listener with this protocol."""
        return self.gateway.addresses[self.protocol]


@contextlib.contextmanager
def secured(data: Path, **settings: str) -> Iterator[Secured]:
    issuer, authority = Issuer(), Authority(data.parent / "certificates")
    files = {name: str(value) for name, value in tls_settings(authority.issue("server")).items()}
    with running(data, "--flush-ms", "20") as cluster, serving(issuer) as keys:
        for user in (USER, PLAIN_USER):  # a gateway that runs already would know them a moment later
            add_user(cluster, user, PASSWORD)
        with secured_gateway(
            cluster,
            "secured",
            *PROTOCOLS,
            sasl_enabled_mechanisms=",".join(MECHANISMS),
            sasl_plain_without_tls="true",
            sasl_oauthbearer_jwks_endpoint_url=keys,
            sasl_oauthbearer_expected_issuer=ISSUER,
            sasl_oauthbearer_expected_audience=AUDIENCE,
            **files,
            **settings,
        ) as gateway:
            yield Secured(cluster, gateway, issuer, authority)


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with secured(tmp_path_factory.mktemp("logins") / "data") as started:
        yield started


@pytest.fixture(params=PROTOCOLS)
def either(one: Secured, request: pytest.FixtureRequest) -> Secured:
    """The same gateway, by its listener without TLS and by its listener with TLS."""
    return one._replace(protocol=request.param)


class Tokens(AbstractTokenProvider):
    """Gives kafka-python the tokens of an issuer."""

    def __init__(self, make: Callable[[], str]) -> None:
        super().__init__()
        self._make = make

    def token(self) -> str:
        return self._make()


class AsyncTokens(AsyncTokenProvider):
    """Gives aiokafka the tokens of an issuer."""

    def __init__(self, make: Callable[[], str]) -> None:
        self._make = make

    async def token(self) -> str:
        return self._make()


def confluent_settings(one: Secured, mechanism: str, password: str = PASSWORD) -> dict[str, Any]:
    common = {
        "bootstrap.servers": one.address,
        "security.protocol": one.protocol,
        "ssl.ca.location": str(one.authority.certificate),
        "sasl.mechanism": mechanism,
        "error_cb": lambda error: None,
    }
    if mechanism == OAUTHBEARER:
        return common | {"oauth_cb": lambda config: (one.issuer.token(USER_OF_TOKEN), time.time() + LIFETIME_S)}
    return common | {"sasl.username": USER, "sasl.password": password}


def python_settings(
    one: Secured, mechanism: str, tokens: Any, password: str = PASSWORD, user: str = USER
) -> dict[str, Any]:
    """The settings of kafka-python and of aiokafka."""
    common = {
        "bootstrap_servers": one.address,
        "security_protocol": one.protocol,
        "ssl_context": one.authority.client_context(),
        "sasl_mechanism": mechanism,
    }
    if mechanism == OAUTHBEARER:
        return common | {"sasl_oauth_token_provider": tokens(lambda: one.issuer.token(USER_OF_TOKEN))}
    return common | {"sasl_plain_username": user, "sasl_plain_password": password}


@every_mechanism
def test_confluent_kafka_produces_and_consumes(either: Secured, mechanism: str) -> None:
    topic, settings = f"confluent-{either.protocol}-{mechanism}", confluent_settings(either, mechanism)
    before = either.gateway.metric(LOGINS, mechanism=mechanism, outcome="succeeded")
    failures: list[KafkaError] = []
    producer = Producer(settings)
    for value in VALUES:
        producer.produce(topic, value, partition=0, on_delivery=lambda error, _: failures.append(error))
    assert producer.flush(TIMEOUT_S) == 0
    assert failures == [None] * len(VALUES)
    consumer = Consumer(settings | {"group.id": topic, "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe([topic])
        read: list[Any] = []
        wait_until(lambda: _grown(read, consumer.poll(1.0)) >= len(VALUES), TIMEOUT_S, "the records")
    finally:
        consumer.close()
    assert [message.value() for message in read] == VALUES
    assert either.gateway.metric(LOGINS, mechanism=mechanism, outcome="succeeded") > before


def _grown(read: list[Any], message: Any) -> int:
    if message is not None:
        assert message.error() is None, message.error()
        read.append(message)
    return len(read)


@every_mechanism
async def test_aiokafka_produces_and_consumes(either: Secured, mechanism: str) -> None:
    topic, settings = f"aiokafka-{either.protocol}-{mechanism}", python_settings(either, mechanism, AsyncTokens)
    async with aiokafka.AIOKafkaProducer(**settings) as producer:
        for value in VALUES:
            await producer.send_and_wait(topic, value)
    async with aiokafka.AIOKafkaConsumer(topic, auto_offset_reset="earliest", group_id=topic, **settings) as consumer:
        read = [await asyncio.wait_for(consumer.getone(), TIMEOUT_S) for _ in VALUES]
    assert [record.value for record in read] == VALUES


@every_mechanism
def test_kafka_python_produces_and_consumes(either: Secured, mechanism: str) -> None:
    topic, settings = (
        f"kafka-python-{either.protocol}-{mechanism}",
        python_settings(either, mechanism, Tokens, user=PLAIN_USER),
    )
    producer = kafka.KafkaProducer(**settings)
    try:
        sent = [producer.send(topic, value) for value in VALUES]
        assert [answer.get(TIMEOUT_S).offset for answer in sent] == list(range(len(VALUES)))
    finally:
        producer.close()
    consumer = kafka.KafkaConsumer(
        topic, auto_offset_reset="earliest", group_id=topic, consumer_timeout_ms=TIMEOUT_S * 1000, **settings
    )
    try:
        assert [next(consumer).value for _ in VALUES] == VALUES
    finally:
        consumer.close()


@pytest.mark.parametrize("mechanism", PASSWORDS)
def test_confluent_kafka_reports_a_wrong_password(one: Secured, mechanism: str) -> None:
    errors: list[KafkaError] = []
    settings = confluent_settings(one, mechanism, "wrong") | {"error_cb": errors.append}
    admin = AdminClient(settings)
    wait_until(lambda: admin.poll(0.5) or _authentication(errors), TIMEOUT_S, "the error")
    assert "invalid credentials" in str(errors[0])


def _authentication(errors: list[KafkaError]) -> bool:
    return any(error.code() == KafkaError._AUTHENTICATION for error in errors)


def test_kafka_python_reports_a_wrong_password(one: Secured) -> None:
    """It logs the reason, and tries again until its time-out. It leaves a socket open, so it has a process.

    A connection of it may end before it has read the reason, so one of several has to do.
    """
    settings = python_settings(one, SCRAMS[0], Tokens, "wrong", PLAIN_USER)
    del settings["ssl_context"]
    settings["bootstrap_timeout_ms"] = int(TIMEOUT_S * 1000)
    code = f"import kafka, logging; logging.basicConfig(); kafka.KafkaProducer(**{settings})"
    reason = f"invalid credentials with SASL mechanism {SCRAMS[0]}"
    with subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True) as client:
        assert client.stderr is not None
        watch = threading.Timer(TIMEOUT_S, client.kill)
        watch.start()
        try:
            assert any(reason in line for line in client.stderr), "no connection got the reason"
        finally:
            watch.cancel()
            client.kill()


@pytest.mark.parametrize("mechanism", PASSWORDS)
async def test_aiokafka_reports_a_wrong_password(
    one: Secured, mechanism: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It raises at the first failure, and logs the reason."""
    producer = aiokafka.AIOKafkaProducer(**python_settings(one, mechanism, AsyncTokens, "wrong"))
    try:
        with pytest.raises(aiokafka.errors.KafkaConnectionError):
            await producer.start()
    finally:
        await producer.stop()
    assert f"invalid credentials with SASL mechanism {mechanism}" in caplog.text


def test_a_token_of_another_issuer_is_reported(one: Secured) -> None:
    errors: list[KafkaError] = []
    forged = Issuer()  # its key ids are those of the right issuer
    settings = confluent_settings(one, OAUTHBEARER) | {
        "oauth_cb": lambda config: (forged.token("root"), time.time() + LIFETIME_S),
        "error_cb": errors.append,
    }
    admin = AdminClient(settings)
    wait_until(lambda: admin.poll(0.5) or _authentication(errors), TIMEOUT_S, "the error")
    assert "invalid_token" in str(errors[0])


def test_no_password_and_no_token_reaches_the_log(one: Secured) -> None:
    text = one.gateway.log()
    assert "login_failed" in text
    for secret in (PASSWORD, 'wrong"', "Bearer", "eyJ"):
        assert secret not in text.replace("wrong password", "")


def test_clients_log_in_again_and_a_removed_user_is_disconnected(tmp_path: Path) -> None:
    with secured(tmp_path / "data", connections_max_reauth_ms=str(SESSION_MS)) as one:
        settings = confluent_settings(one, SCRAMS[0])
        errors: list[KafkaError] = []
        results: list[Any] = []
        settings |= {"error_cb": errors.append, "message.timeout.ms": 60_000}
        producer = Producer(settings)

        def send() -> None:
            producer.produce("t", b"value", partition=0, on_delivery=lambda error, _: results.append(error))
            producer.flush(1)

        def logins() -> float:
            """The logins, but not those of connections that replace closed ones."""
            return one.gateway.metric(LOGINS, outcome="succeeded") - one.gateway.metric(CLOSED_CONNECTIONS)

        wait_until(lambda: send() or results, TIMEOUT_S, "the first record")
        first = wait_until(logins, TIMEOUT_S, "the logins of all connections")
        again = first + 2  # the second of these is behind the end of the first session
        wait_until(lambda: send() or logins() >= again, 2 * TIMEOUT_S, "the client to log in again", 0.2)
        assert not any(results), results
        # A gateway that stood still closes all connections.
        assert one.gateway.metric(CLOSED_CONNECTIONS) <= one.gateway.metric(CLOSED_CONNECTIONS, cause="stalled")
        remove_user(one.cluster, USER)
        removed_s = time.monotonic()
        wait_until(lambda: send() or _authentication(errors), TIMEOUT_S, "the login to fail")
        wait_until(lambda: one.gateway.metric("penstock_gateway_connections") == 0, TIMEOUT_S, "no connection")
        print(f"ended {time.monotonic() - removed_s:.1f} s after the removal, sessions of {SESSION_MS / 1000:g} s")


def test_a_user_of_the_issuer_logs_in_at_the_console_and_has_its_own_rights(one: Secured, tmp_path: Path) -> None:
    secret, command_config, port = tmp_path / "secret", tmp_path / "client.properties", free_port()
    secret.write_text(CLIENT_SECRET)
    command_config.write_text(f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={OAUTHBEARER}\n")
    with (
        providing() as provider,
        secured_gateway(
            one.cluster,
            "of-the-console",
            PROTOCOLS[0],
            zone="of-the-console",  # clients get no gateway with another issuer
            sasl_enabled_mechanisms=OAUTHBEARER,
            sasl_oauthbearer_jwks_endpoint_url=provider.url + KEYS,
            sasl_oauthbearer_expected_issuer=provider.url,
            sasl_oauthbearer_expected_audience=AUDIENCE,
            authorizer="on",
            super_users="User:alice",
        ) as gateway,
        running_console(
            one.cluster,
            port=port,
            bootstrap=gateway.addresses[PROTOCOLS[0]],
            command_config=str(command_config),
            changes="true",
            public_url=f"http://127.0.0.1:{port}",
            oidc_issuer=provider.url,
            oidc_client_id=CLIENT_ID,
            oidc_client_secret_file=str(secret),
        ) as origin,
    ):
        browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
        page = browser.open(f"{origin}/login/openid?next=/topics", timeout=TIMEOUT_S).read().decode()
        assert 'content="0; url=/topics"' in page
        assert ">alice<" in browser.open(f"{origin}/topics", timeout=TIMEOUT_S).read().decode()
        browser.open(f"{origin}/topics", b"name=made-by-alice&partitions=1", timeout=TIMEOUT_S).close()
        assert "made-by-alice" in _topics_at(origin, provider.access_token())

        provider.user = "bob"
        for token, status in ((provider.access_token(), 403), (Issuer().token(iss=provider.url), 401)):
            with pytest.raises(urllib.error.HTTPError) as refused:
                _topics_at(origin, token)
            with refused.value as answer:
                assert answer.code == status
        assert gateway.metric(LOGINS, mechanism=OAUTHBEARER, outcome="succeeded") >= 3


def _topics_at(origin: str, token: str) -> str:
    request = urllib.request.Request(f"{origin}/api/v1/topics", headers={"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
        return str(answer.read().decode())

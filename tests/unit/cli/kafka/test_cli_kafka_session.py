"""The sentence for a listener that does not serve a command names the setting to change; no failed client stays."""

import gc
import logging
import socket
import ssl
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from kafka import TopicPartition
from kafka.errors import KafkaError, RequestTimedOutError

from penstock.cli.kafka.profiles import KafkaSettings
from penstock.cli.kafka.session import Session, connection_error_text
from penstock.contracts.errors import Unavailable
from tests.testkit.servers.certificates import Authority
from tests.testkit.servers.schema_registry import serving
from tests.unit.cli.kafka.kafka_silent_listener import listening

TIMEOUT_S = 10.0
SHORT_S = 2.0  # the tests wait for its end, but a busy machine connects within it
# Reasons as kafka-python logs them.
OTHER_ANSWER = "InvalidReceiveError: Invalid frame length: 1213486160"
UNKNOWN_AUTHORITY = (
    "KafkaConnectionError: Handshake failed: [SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: "
    "unable to get local issuer certificate (_ssl.c:1006)"
)
NO_LOGINS = "[Error 34] IllegalSaslStateError"
NO_LOGIN = "KafkaConnectionError: socket disconnected"


@pytest.fixture
def plain() -> Iterator[str]:
    """The address of a server without TLS."""
    with serving() as server:
        yield server.url.rpartition("/")[2]


@pytest.fixture
def with_tls(tmp_path: Path) -> Iterator[str]:
    """The address of a server with TLS."""
    pair = Authority(tmp_path).issue("server")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.certificate, pair.key)
    with serving(context) as server:
        yield server.url.rpartition("/")[2]


def error_at(address: str, protocol: str, reason: str) -> str:
    """The sentence without the address."""
    settings = KafkaSettings(bootstrap=address, security_protocol=protocol, username="alice")
    return connection_error_text(settings, TIMEOUT_S, reason).replace(address, "ADDRESS")


def test_a_server_of_another_kind_is_no_kafka_listener(plain: str) -> None:
    assert error_at(plain, "PLAINTEXT", OTHER_ANSWER) == (
        f"ADDRESS does not answer as PLAINTEXT ({OTHER_ANSWER}): give the address of a Kafka listener, "
        "and its security protocol"
    )


def test_a_certificate_of_an_unknown_authority_names_the_settings_for_it(with_tls: str) -> None:
    assert error_at(with_tls, "SASL_SSL", UNKNOWN_AUTHORITY) == (
        "the certificate of ADDRESS is not valid here (unable to get local issuer certificate): give the certificate "
        "of its authority as ssl.truststore.location or --ca-file, and a name of the certificate as the host"
    )


def test_a_login_at_a_listener_without_logins_names_its_protocol(plain: str, with_tls: str) -> None:
    assert error_at(plain, "SASL_PLAINTEXT", NO_LOGINS).endswith(
        "knows no logins: give PLAINTEXT as the security protocol"
    )
    assert error_at(with_tls, "SASL_SSL", NO_LOGINS).endswith("knows no logins: give SSL as the security protocol")


def test_a_listener_that_ends_the_connection_after_tls_needs_a_login(with_tls: str) -> None:
    assert "it needs a login (SASL_SSL), or a certificate" in error_at(with_tls, "SSL", NO_LOGIN)


@pytest.mark.parametrize("make", [lambda each: each.admin, Session.new_consumer, Session.new_producer])
def test_a_client_that_cannot_connect_leaves_no_thread_and_no_connection(make: Callable[[Session], object]) -> None:
    """A console makes such a client for each wrong password."""
    before = set(threading.enumerate())
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(TIMEOUT_S)
        settings = KafkaSettings(bootstrap=f"127.0.0.1:{silent.getsockname()[1]}", security_protocol="PLAINTEXT")
        with pytest.raises(Unavailable, match="does not answer as PLAINTEXT"):
            make(Session(settings, 0.2))
        assert set(threading.enumerate()) <= before
        silent.accept()[0].close()  # of the check that the address accepts connections
        connection, _ = silent.accept()
        with connection:
            connection.settimeout(TIMEOUT_S)
            while connection.recv(4_096):
                pass


@pytest.mark.parametrize("make", [lambda each: each.admin, Session.new_producer])
def test_the_reason_for_a_failed_connection_is_never_that_of_another_client(make: Callable[[Session], object]) -> None:
    """A console has clients of many users at the same time."""
    errors: list[str] = []

    def connect(session: Session) -> None:
        with pytest.raises(Unavailable) as found:
            make(session)
        errors.append(str(found.value))

    with socket.create_server(("127.0.0.1", 0)) as silent:
        settings = KafkaSettings(bootstrap=f"127.0.0.1:{silent.getsockname()[1]}", security_protocol="PLAINTEXT")
        thread = threading.Thread(target=connect, args=(Session(settings, 1.0),))
        thread.start()
        while thread.is_alive():
            logging.getLogger("kafka.net.connection").error("Connection lost: SaslAuthenticationFailedError: wrong")
            thread.join(0.01)
    assert "does not answer as PLAINTEXT (kafka timeout" in errors[0]


@pytest.mark.parametrize("make", [lambda each: each.admin, Session.new_consumer, Session.new_producer])
def test_the_reason_for_a_failed_connection_is_that_of_the_client(make: Callable[[Session], object]) -> None:
    with listening() as listener:
        listener.garbage = b"HTTP/1.1 400 Bad Request\r\n\r\n"
        session = Session(KafkaSettings(bootstrap=listener.address, security_protocol="PLAINTEXT"), 1.0)
        with pytest.raises(Unavailable, match="Invalid frame length: 1213486160"):
            make(session)


def test_a_producer_whose_records_are_not_acknowledged_leaves_no_thread() -> None:
    with listening() as listener:
        session = Session(KafkaSettings(bootstrap=listener.address, security_protocol="PLAINTEXT"), SHORT_S)
        before = set(threading.enumerate())
        producer = session.new_producer(acks="all")
        sent = producer.send("t", b"x", partition=0)
        listener.is_silent.set()
        [sender] = [each for each in threading.enumerate() if each not in before and "network-thread" in each.name]
        session.close()
        sender.join(TIMEOUT_S)
        assert not sender.is_alive()
        assert sent.failed()


def test_a_question_to_a_gateway_that_hangs_ends_with_its_time() -> None:
    with listening() as listener:
        session = Session(KafkaSettings(bootstrap=listener.address, security_protocol="PLAINTEXT"), SHORT_S)
        assert [each["name"] for each in session.admin.describe_topics(["t"])] == ["t"]
        listener.is_silent.set()
        with pytest.raises(RequestTimedOutError):
            session.admin.describe_topics(["t"])
        session.close()


def send_a_record(session: Session) -> None:
    session.new_producer().send("t", b"x", partition=0)


def describe_a_topic(session: Session) -> None:
    admin = session.admin
    with pytest.raises(KafkaError, match="timed out"):
        admin.describe_topics(["t"])


def read_a_record(session: Session) -> None:
    consumer = session.new_consumer()
    consumer.assign([TopicPartition("t", 0)])
    assert not consumer.poll(timeout_ms=100)


@contextmanager
def accepting_nothing() -> Iterator[int]:
    """A port whose queue of connections is full."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as server, ExitStack() as queue:
        for _ in range(4):
            connection = queue.enter_context(socket.socket())
            connection.setblocking(False)
            connection.connect_ex(server.getsockname())
        yield server.getsockname()[1]


@pytest.mark.parametrize(
    ("ask", "timeout_s"), [(send_a_record, SHORT_S), (describe_a_topic, SHORT_S), (read_a_record, 60.0)]
)
def test_a_connection_that_is_not_made_leaves_no_socket(ask: Callable[[Session], None], timeout_s: float) -> None:
    """It times out, or the client closes before."""
    gc.collect()
    with listening() as listener, accepting_nothing() as broker, warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always", ResourceWarning)
        listener.broker_port = broker
        session = Session(KafkaSettings(bootstrap=listener.address, security_protocol="PLAINTEXT"), timeout_s)
        ask(session)
        session.close()
        del session
        gc.collect()
    assert [str(each.message) for each in found] == []

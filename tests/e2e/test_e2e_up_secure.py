"""`penstock up --secure`: clients log in over TLS with the files that it makes, and no others are served."""

import contextlib
import stat
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.testkit.clusters.cluster import Cluster, running, wait_until

pytestmark = pytest.mark.e2e

TIMEOUT_S = 60.0
TOKENS = ("0123456789abcdef", "fedcba9876543210")


def settings(cluster: Cluster, **changed: str) -> dict[str, str]:
    """The settings in the file for librdkafka."""
    lines = (cluster.data / "secure" / "librdkafka.conf").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines) | {
        name.replace("_", "."): value for name, value in changed.items()
    }


def topics(config: dict[str, str]) -> set[str]:
    return set(AdminClient(config | {"log_level": "0"}).list_topics(timeout=20).topics)


def logs_in(config: dict[str, str]) -> bool:
    """Whether a client gets an answer; False if its login fails."""
    errors: list[KafkaError] = []
    admin = AdminClient(config | {"log_level": "0", "error_cb": errors.append})

    def is_decided() -> bool:
        admin.poll(0)
        if any(error.code() == KafkaError._AUTHENTICATION for error in errors):
            return True
        with contextlib.suppress(KafkaException):
            return bool(admin.list_topics(timeout=1).brokers)
        return False

    wait_until(is_decided, TIMEOUT_S, "the end of a login")
    return not any(error.code() == KafkaError._AUTHENTICATION for error in errors)


def metrics(cluster: Cluster, token: str) -> bytes:
    """The metrics of all processes; nothing with a wrong token."""
    request = urllib.request.Request(f"http://{cluster.http}/metrics", headers={"Authorization": f"Bearer {token}"})
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
            return bytes(answer.read())
    except urllib.error.HTTPError as error:
        assert error.code == 401
        return b""


@pytest.mark.parametrize("shape", ["--agents=1", "--separate"])
def test_the_administrator_logs_in_with_its_files_and_no_other_client_does(tmp_path: Path, shape: str) -> None:
    with running(tmp_path / "data", "--secure", shape) as cluster:
        given = settings(cluster)
        admin = AdminClient(given)
        admin.create_topics([NewTopic("private", 1, 1)])["private"].result(60)
        producer, errors = Producer(given), list[object]()
        producer.produce("private", b"x", on_delivery=lambda error, _: errors.append(error))
        assert (producer.flush(60), errors) == (0, [None])
        strangers = [
            {"bootstrap.servers": cluster.kafka},
            settings(cluster, sasl_password="wrong"),
            settings(cluster, sasl_username="stranger"),
            {
                "bootstrap.servers": cluster.kafka,
                "security.protocol": "SSL",
                "ssl.ca.location": given["ssl.ca.location"],
            },
        ]
        for config in strangers:
            with pytest.raises(KafkaException):
                topics(config)
        folder = cluster.data / "secure"
        assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        password = (folder / "password").read_text().strip()
        assert f"--command-config {folder / 'client.properties'}" in "".join(cluster.output)
        texts = [path.read_text(errors="replace") for path in (cluster.data / "logs").iterdir()]
        assert not any(password in text for text in [*texts, *cluster.output])
        before = {path.name: path.read_bytes() for path in folder.iterdir()}
        assert cluster.stop() == 0
        cluster.start()
        assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
        assert topics(settings(cluster)) >= {"private"}


def test_the_administrators_password_the_certificate_and_the_token_are_replaced(tmp_path: Path) -> None:
    """The steps of the security page: for the token and for a user, no process starts again."""
    token = tmp_path / "token"
    token.write_text(TOKENS[0])
    with running(tmp_path / "data", "--secure", "--http-token-file", str(token)) as cluster:
        folder = cluster.data / "secure"
        first = settings(cluster)
        wait_until(lambda: logs_in(first), TIMEOUT_S, "the gateway to know the password")
        wait_until(lambda: b"penstock_gateway" in metrics(cluster, TOKENS[0]), TIMEOUT_S, "the gateway's metrics")
        (tmp_path / "token.new").write_text(TOKENS[1])
        (tmp_path / "token.new").replace(token)
        assert metrics(cluster, TOKENS[0]) == b""
        wait_until(lambda: b"penstock_gateway" in metrics(cluster, TOKENS[1]), TIMEOUT_S, "the gateway's metrics")

        (tmp_path / "password").write_text("for-a-while-only")
        command = ["user", "create", "admin", "--replace", "--password-file", str(tmp_path / "password")]
        subprocess.run([sys.executable, "-m", "penstock.cli", *command, "--data", str(cluster.data)], check=True)
        wait_until(lambda: logs_in(first | {"sasl.password": "for-a-while-only"}), TIMEOUT_S, "the new password")
        assert not logs_in(first)

        certificate = (folder / "server.pem").read_bytes()
        for name in ("password", "server.pem"):
            (folder / name).unlink()
        assert cluster.stop() == 0
        cluster.start()
        assert (folder / "server.pem").read_bytes() != certificate
        second = settings(cluster)
        assert second["sasl.password"] != first["sasl.password"]
        wait_until(lambda: logs_in(second), TIMEOUT_S, "the gateway to know the password")
        assert not logs_in(first)
        assert not logs_in(first | {"sasl.password": "for-a-while-only"})

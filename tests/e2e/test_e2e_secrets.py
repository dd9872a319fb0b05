"""No file of a cluster and no command line has a password: after logins, changes of users, and failures of both."""

import base64
import contextlib
import hashlib
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zstandard
from confluent_kafka import KafkaError
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

from tests.e2e.test_e2e_logins import (
    LIFETIME_S,
    OAUTHBEARER,
    PASSWORDS,
    PROTOCOLS,
    TIMEOUT_S,
    Secured,
    confluent_settings,
    secured,
)
from tests.testkit.clusters.cluster import wait_until
from tests.testkit.servers.token_issuer import Issuer

pytestmark = pytest.mark.e2e

USER = "operator-of-the-secrets-test"
ITERATIONS = 4_096
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
FAILURE = b'"kind":"login_failed"'  # of a record of the audit topic
SALT_OF_SNAPSHOT = b"salt-that-shows-that-snapshots-are-read"


def test_no_file_and_no_command_line_has_a_password(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_LOG_LEVEL", "debug")
    monkeypatch.setenv("PENSTOCK_SNAPSHOT_ENTRIES", "5")
    first, second, wrong, login_secret = (secrets.token_urlsafe(18) for _ in range(4))
    monkeypatch.setenv("PENSTOCK_SASL_LOGIN_SECRET", login_secret)
    with secured(tmp_path / "data", audit="on") as one:
        lines = create_user(one, tmp_path / "password", first)
        for mechanism in PASSWORDS:
            for protocol in PROTOCOLS:
                right = settings_of(one._replace(protocol=protocol), mechanism, first)
                wait_until(lambda settings=right: log_in(settings) == "", TIMEOUT_S, "the gateway to know the user")
            assert "invalid credentials" in log_in(right | {"sasl.password": wrong})
        assert "invalid credentials" in log_in(right | {"sasl.username": "stranger"})
        change_password(one, second)
        wait_until(lambda: log_in(settings_of(one, PASSWORDS[0], second)) == "", TIMEOUT_S, "the gateway to know it")
        assert "invalid credentials" in log_in(settings_of(one, PASSWORDS[0], first))
        tokens = log_in_with_tokens(one)
        lines |= command_lines()
        wait_until(lambda: shows(one.cluster.data / "objects", SALT_OF_SNAPSHOT), TIMEOUT_S, "a snapshot")
        delete_user(one)
        objects = one.cluster.data / "objects"
        wait_until(lambda: any(FAILURE in data for _, data in files(objects)), TIMEOUT_S, "the audit topic")

        salted = hashlib.pbkdf2_hmac("sha256", second.encode(), SALT_OF_SNAPSHOT, ITERATIONS)
        passwords = [each.encode() for each in (first, second, wrong, login_secret)]
        hidden = [form for secret in [*passwords, salted] for form in forms(secret)]
        hidden += [token.rpartition(".")[2].encode() for token in tokens]  # the signature, without which it is no token
        assert "login_failed" in one.gateway.log(), "the logs are read"
        assert "login_succeeded" in one.gateway.log(), "also at the level debug"
        assert any(USER.encode() in line for line in lines), "the command lines are read"
        found = [(str(path), form) for path, data in files(tmp_path / "data") for form in hidden if form in data]
        assert found == []
        assert [line for line in lines for form in hidden if form in line] == []


def create_user(one: Secured, file: Path, password: str) -> set[bytes]:
    """Create the user on the command line; return all command lines of that time."""
    file.write_text(password + "\n")
    command = [sys.executable, "-m", "penstock.cli", "user", "create", USER, "--data", str(one.cluster.data)]
    lines: set[bytes] = set()
    with subprocess.Popen([*command, "--password-file", str(file)], stdout=subprocess.PIPE) as process:
        wait_until(lambda: lines.update(command_lines()) or process.poll() is not None, TIMEOUT_S, "the command to end")
    assert process.returncode == 0
    return lines


def settings_of(one: Secured, mechanism: str, password: str) -> dict[str, Any]:
    return confluent_settings(one, mechanism, password) | {"sasl.username": USER}


def log_in_with_tokens(one: Secured) -> list[str]:
    """Log in with a right and a forged token; return both."""
    tokens = [one.issuer.token("service-7"), Issuer().token("root")]
    answers = []
    for token in tokens:
        oauth = {"oauth_cb": lambda _, token=token: (token, time.time() + LIFETIME_S)}
        answers.append(log_in(confluent_settings(one, OAUTHBEARER) | oauth))
    assert answers[0] == ""
    assert "invalid_token" in answers[1]
    return tokens


def log_in(settings: dict[str, Any]) -> str:
    """Connect with a new client; return the authentication error, "" if it is served."""
    errors: list[KafkaError] = []
    admin = AdminClient(settings | {"error_cb": errors.append})
    served: list[Any] = []

    def is_over() -> bool:
        admin.poll(0.1)
        with contextlib.suppress(Exception):
            served.append(admin.list_topics(timeout=0.5))
        return bool(served) or any(error.code() == KafkaError._AUTHENTICATION for error in errors)

    wait_until(is_over, TIMEOUT_S, "an answer to the login")
    return "" if served else str([error.str() for error in errors])


def change_password(one: Secured, password: str) -> None:
    admin = AdminClient({"bootstrap.servers": one.cluster.kafka})
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, ITERATIONS)
    upsertion = UserScramCredentialUpsertion(USER, info, password.encode(), SALT_OF_SNAPSHOT)
    admin.alter_user_scram_credentials([upsertion])[USER].result(TIMEOUT_S)


def delete_user(one: Secured) -> None:
    admin = AdminClient({"bootstrap.servers": one.cluster.kafka})
    deletion = UserScramCredentialDeletion(USER, ScramMechanism.SCRAM_SHA_256)
    admin.alter_user_scram_credentials([deletion])[USER].result(TIMEOUT_S)


def forms(secret: bytes) -> list[bytes]:
    """The ways in which a file could show bytes."""
    return [secret, secret.hex().encode(), base64.b64encode(secret), repr(secret)[2:-1].encode()]


def shows(folder: Path, text: bytes) -> bool:
    """Whether a snapshot in the folder has these bytes."""
    return any(text in data for path, data in files(folder) if "snapshot" in str(path.relative_to(folder)))


def files(folder: Path) -> Iterator[tuple[Path, bytes]]:
    """All files, each with its unpacked content behind its bytes."""
    for path in folder.rglob("*"):
        with contextlib.suppress(FileNotFoundError, IsADirectoryError, OSError):  # it was replaced meanwhile
            yield path, unpacked(path.read_bytes())


def unpacked(data: bytes) -> bytes:
    parts, at = [data], data.find(ZSTD_MAGIC)
    while at >= 0:
        with contextlib.suppress(zstandard.ZstdError):
            parts.append(zstandard.ZstdDecompressor().stream_reader(data[at:]).read())
        at = data.find(ZSTD_MAGIC, at + 1)
    return b"\0".join(parts)


def command_lines() -> set[bytes]:
    """The command lines of all processes."""
    lines = set()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # the process has ended
            lines.add(path.read_bytes())
    return lines

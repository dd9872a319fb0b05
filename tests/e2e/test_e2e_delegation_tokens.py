"""Delegation tokens: any gateway accepts a token until it is revoked, and no file of the cluster has its password."""

import base64
import secrets
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.contracts.levels import TOKENS_LEVEL
from penstock.kafkawire.api import create_delegation_token, describe_delegation_token, renew_delegation_token
from penstock.kafkawire.error_codes import ErrorCode
from tests.conformance.access.tokens import User
from tests.e2e.test_e2e_secrets import files, forms, shows
from tests.testkit.clusters.cluster import running, wait_for_level, wait_until
from tests.testkit.clusters.secured_gateway import SecuredGateway, add_user, secured_gateway

pytestmark = pytest.mark.e2e

TIMEOUT_S = 120.0
LISTENER = "SASL_PLAINTEXT"
CREATE, RENEW, DESCRIBE = 38, 39, 41
HOUR_MS = 3_600_000


def test_a_token_is_good_at_all_gateways_until_it_is_revoked_and_no_file_has_its_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_LOG_LEVEL", "debug")
    monkeypatch.setenv("PENSTOCK_SNAPSHOT_ENTRIES", "5")
    password, key = secrets.token_urlsafe(18), secrets.token_urlsafe(48)
    key_file = tmp_path / "token-keys"
    key_file.write_text(f"{key}\n")
    settings = {"authorizer": "on", "audit": "on", "delegation_token_secret_key_file": str(key_file)}
    with running(tmp_path / "data", "--flush-ms", "20") as cluster:
        wait_for_level(cluster, TOKENS_LEVEL)
        add_user(cluster, "alice", password)
        with (
            secured_gateway(cluster, "first", LISTENER, **settings) as first,
            secured_gateway(cluster, "second", LISTENER, **settings) as second,
        ):
            wait_until(lambda: error_of(first, "alice", password) == 0, TIMEOUT_S, "the gateway to know the user")
            token_id, token_hmac = created(first, password)
            token = base64.b64encode(token_hmac).decode()
            for gateway in (first, second):
                wait_until(lambda one=gateway: is_good(one, token_id, token), TIMEOUT_S, "a login with the token")
                assert error_of(gateway, token_id, "wrong") == ErrorCode.SASL_AUTHENTICATION_FAILED
            objects = cluster.data / "objects"
            wait_until(lambda: shows(objects, token_id.encode()), TIMEOUT_S, "a snapshot with the token")
            revoke = ["token", "revoke", token_id, "--yes", "--data", str(cluster.data)]
            subprocess.run([sys.executable, "-m", "penstock.cli", *revoke], capture_output=True, check=True)
            for gateway in (first, second):
                wait_until(lambda one=gateway: not is_good(one, token_id, token), TIMEOUT_S, "the end of the token")
            wait_until(lambda: f"DELEGATION_TOKEN:{token_id}" in first.log(), TIMEOUT_S, "the change in the log")
            wait_until(
                lambda: any(b'"api":"RenewDelegationToken"' in data for _, data in files(objects)),
                TIMEOUT_S,
                "the audit topic",
            )
        hidden = [form for secret in (token_hmac, token.encode(), key.encode()) for form in forms(secret)]
        found = [(str(path), form) for path, data in files(tmp_path / "data") for form in hidden if form in data]
        assert found == []


def created(gateway: SecuredGateway, password: str) -> tuple[str, bytes]:
    """The id and the password of a new token of alice, which has renewed it once and sees it."""
    alice = User(gateway.addresses[LISTENER], "alice", password)
    made = alice.ask(CREATE, 3, create_delegation_token.CreateDelegationTokenRequest(None, None, [], -1))
    assert made.error_code == 0
    renewed = alice.ask(RENEW, 2, renew_delegation_token.RenewDelegationTokenRequest(made.hmac, HOUR_MS))
    assert renewed.error_code == 0
    asked = describe_delegation_token.DescribeDelegationTokenRequest(None)
    (token,) = alice.ask(DESCRIBE, 3, asked).tokens
    assert (token.token_id, token.expiry_timestamp) == (made.token_id, renewed.expiry_timestamp_ms)
    alice.close()
    return made.token_id, bytes(made.hmac)


def error_of(gateway: SecuredGateway, name: str, password: str) -> int:
    """The error of a login; a name of another user than alice is that of a token."""
    extensions = "" if name == "alice" else ",tokenauth=true"
    user = User(gateway.addresses[LISTENER], name, password, extensions=extensions)
    user.close()
    return user.error


def is_good(gateway: SecuredGateway, token_id: str, token: str) -> bool:
    """Whether a client may log in with the token. A session with it has an end."""
    user = User(gateway.addresses[LISTENER], token_id, token, extensions=",tokenauth=true")
    user.close()
    return user.error == 0 and 0 < user.lifetime_ms <= HOUR_MS

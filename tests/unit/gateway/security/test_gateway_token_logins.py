"""Logins with delegation tokens: the client becomes the owner until the token ends, and may not ask for tokens."""

import base64
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from penstock.contracts.errors import Invalid
from penstock.contracts.levels import TOKENS_LEVEL
from penstock.kafkawire.api.create_delegation_token import CreateDelegationTokenRequest
from penstock.kafkawire.api.expire_delegation_token import ExpireDelegationTokenRequest
from penstock.kafkawire.error_codes import ErrorCode
from penstock_gateway.security.delegation.token_keys import read_token_keys
from penstock_gateway.security.login.exchange import LoginFailed
from penstock_gateway.security.login.scram import parse_client_first
from tests.unit.gateway.gateway_fakes import new_client
from tests.unit.gateway.gateway_wire import ask
from tests.unit.gateway.security.gateway_logins import ScramClient
from tests.unit.gateway.security.test_gateway_logins import (
    AUTHENTICATE,
    FAILED,
    SASL,
    SCRAMS,
    authenticate,
    client_of,
    handshake,
    is_served,
    kafka,
    log_in,
)
from tests.unit.gateway.server.test_gateway_listener import Kafka, RawClient

SECRET = "a secret key with more than thirty-two characters"
TOKEN = ",tokenauth=true"


def gateway_with_tokens(**settings: Any) -> Kafka:
    gateway = kafka(**{"delegation_token_secret_key": SECRET, **settings})
    gateway.world.sequencer.seen_level = TOKENS_LEVEL
    gateway.world.sequencer.on_command = gateway.world.sequencer.apply
    return gateway


async def created(gateway: Kafka, max_lifetime_ms: int = -1) -> tuple[str, str]:
    """The id and the password of a new token of bob."""
    bob = new_client()
    bob.user = "bob"
    response = await ask(gateway.world, 38, 3, CreateDelegationTokenRequest(None, None, [], max_lifetime_ms), bob)
    assert response.error_code == 0
    return response.token_id, base64.b64encode(response.hmac).decode()


async def with_token(client: RawClient, token_id: str, password: str, mechanism: str = SCRAMS[0]) -> Any:
    return await log_in(client, token_id, password, mechanism, extensions=TOKEN)


@pytest.mark.parametrize("mechanism", SCRAMS)
async def test_a_client_with_a_token_is_its_owner_until_the_token_ends(mechanism: str) -> None:
    async with gateway_with_tokens() as gateway:
        token_id, password = await created(gateway, 60_000)
        client = await gateway.connect(SASL)
        answer = await with_token(client, token_id, password, mechanism)
        assert (answer.error_code, answer.session_lifetime_ms) == (ErrorCode.NONE, 60_000)
        assert (client_of(gateway).user, client_of(gateway).token_id) == ("bob", token_id)
        assert await is_served(client)
        gateway.world.clock.now_s += 60.0
        assert not await is_served(client)


async def test_before_the_end_the_client_logs_in_again_and_gets_the_renewed_time() -> None:
    async with gateway_with_tokens(connections_max_reauth_ms=20_000) as gateway:
        token_id, password = await created(gateway, 30_000)
        client = await gateway.connect(SASL)
        assert (await with_token(client, token_id, password)).session_lifetime_ms == 20_000
        gateway.world.clock.now_s += 15.0
        assert (await with_token(client, token_id, password)).session_lifetime_ms == 15_000
        assert await is_served(client)


async def test_an_old_client_may_use_a_token_too() -> None:
    async with gateway_with_tokens() as gateway:
        token_id, password = await created(gateway)
        client = await gateway.connect(SASL)
        assert (await handshake(client)).error_code == ErrorCode.NONE
        scram = ScramClient(SCRAMS[0], token_id, password, extensions=TOKEN)
        first = await authenticate(client, scram.first, 0)
        assert scram.is_server((await authenticate(client, scram.final(first.auth_bytes), 0)).auth_bytes)


async def test_wrong_passwords_unknown_ids_and_void_tokens_look_alike() -> None:
    async with gateway_with_tokens() as gateway:
        token_id, password = await created(gateway)
        expired = await created(gateway, 1_000)
        revoked = await created(gateway)
        bob = new_client()
        bob.user = "bob"
        request = ExpireDelegationTokenRequest(base64.b64decode(revoked[1]), -1)
        assert (await ask(gateway.world, 40, 2, request, bob)).error_code == 0
        gateway.world.clock.now_s += 2.0
        wrong = [(token_id, "not-it"), ("unknown", password), expired, revoked, ("alice", "secret"), ("x" * 9_000, "y")]
        answers = []
        with capture_logs() as logs:
            for name, secret in wrong:
                client = await gateway.connect(SASL)
                answer = await with_token(client, name, secret)
                answers.append((answer.error_code, answer.error_message))
                assert await client.until_closed() == b""
        text = "Authentication failed: invalid credentials with SASL mechanism SCRAM-SHA-256"
        assert answers == [(FAILED, text)] * len(wrong)
        reasons = [each["reason"] for each in logs if each["event"] == "login_failed"]
        assert reasons[2] == reasons[3] == "delegation token: it is expired or revoked"
        assert reasons.count("delegation token: wrong password or unknown user") == 4
        assert not any(secret in str(logs) for _, secret in wrong[:4])


async def test_a_token_is_no_user_and_its_id_no_user_name() -> None:
    async with gateway_with_tokens() as gateway:
        token_id, password = await created(gateway)
        client = await gateway.connect(SASL)
        assert (await log_in(client, token_id, password)).error_code == FAILED
        assert await client.until_closed() == b""
        client = await gateway.connect(SASL)
        answer = await log_in(client, extensions=",tokenauth=false,other=true")
        assert answer.error_code == ErrorCode.NONE
        assert not client_of(gateway).token_id


async def test_without_a_secret_key_a_login_with_a_token_fails() -> None:
    async with kafka() as gateway:
        client = await gateway.connect(SASL)
        await handshake(client)
        with capture_logs() as logs:
            scram = ScramClient(SCRAMS[0], "id", "password", extensions=TOKEN)
            assert (await authenticate(client, scram.first)).error_code == FAILED
        assert "delegation tokens are off" in str(logs)


async def test_before_tokens_are_known_the_connection_closes_without_a_verdict() -> None:
    async with gateway_with_tokens() as gateway:
        client = await gateway.connect(SASL)
        await handshake(client)
        scram = ScramClient(SCRAMS[0], "id", "password", extensions=TOKEN)
        client.send(AUTHENTICATE, 0, b"\0\0\0" + bytes([len(scram.first)]) + scram.first, 2)
        assert await client.until_closed() == b""
        assert gateway.world.metric("penstock_gateway_logins_total", mechanism=SCRAMS[0], outcome="undecided") == 1


async def test_a_session_cannot_become_that_of_another_owner() -> None:
    async with gateway_with_tokens(connections_max_reauth_ms=20_000) as gateway:
        token_id, password = await created(gateway)
        client = await gateway.connect(SASL)
        assert (await log_in(client)).error_code == ErrorCode.NONE
        gateway.world.clock.now_s += 5.0
        answer = await with_token(client, token_id, password)
        assert answer.error_message == "Cannot change principals during re-authentication"


@pytest.mark.parametrize(
    ("extensions", "is_token"),
    [
        ("", False),
        (",tokenauth=true", True),
        (",a=b,tokenauth=TRUE", True),
        (",tokenauth=true,c=d", True),
        (",tokenauth=false", False),
        (",tokenauth=truely", False),
        (",xtokenauth=true", False),
    ],
)
def test_the_extension_says_that_the_name_is_a_token(extensions: str, is_token: bool) -> None:
    assert parse_client_first(f"n,,n=id,r=nonce{extensions}".encode()).is_token == is_token


def test_the_extension_is_none_inside_a_nonce() -> None:
    with pytest.raises(LoginFailed):
        parse_client_first(b"n,,n=id,r=nonce,tokenauth=true,")
    assert not parse_client_first(b"n,,n=tokenauth=3Dtrue,r=tokenauth=true").is_token


def test_short_and_unreadable_keys_are_refused_without_a_part_of_them(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text("short-key\n")
    empty = tmp_path / "empty"
    empty.write_text("\n\n")
    for secret, file in (("short-key", ""), ("", str(path)), ("", str(empty)), ("", f"{path}s"), (SECRET, str(path))):
        with pytest.raises(Invalid) as refused:
            read_token_keys(secret, file)
        assert "short-key" not in str(refused.value)
    keys = read_token_keys(SECRET, "")
    assert SECRET not in repr(keys) + repr(vars(keys))

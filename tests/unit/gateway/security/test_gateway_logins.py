"""Logins over real sockets: the order of requests, all failures, sessions with an end, and limits before a login."""

import asyncio
import struct
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from penstock.contracts.configs.quotas import ANONYMOUS
from penstock.contracts.errors import Invalid
from penstock.kafkawire.api import decode_response, encode_request
from penstock.kafkawire.api.metadata import MetadataRequest
from penstock.kafkawire.api.sasl_authenticate import SaslAuthenticateRequest
from penstock.kafkawire.api.sasl_handshake import SaslHandshakeRequest
from penstock.kafkawire.error_codes import ErrorCode
from penstock_gateway.config import GatewayConfig
from penstock_gateway.parts import GatewayLimits
from penstock_gateway.security.login.failure_delays import DelayLimits
from penstock_gateway.security.login.json_web_keys import KeySetLimits
from penstock_gateway.security.login.login_setup import check_login_settings
from penstock_gateway.security.login.logins import LoginLimits
from penstock_gateway.security.login.scram import OTHER_NONCE
from tests.testkit.servers.token_issuer import AUDIENCE, ISSUER, Issuer
from tests.unit.gateway.security.gateway_logins import FakeUsers, ScramClient, bearer
from tests.unit.gateway.server.test_gateway_listener import Kafka, RawClient

SASL, SASL_TLS, PLAINTEXT = "SASL_PLAINTEXT_", "SASL_SSL_", "PLAINTEXT"
GUARDED = {SASL: False, SASL_TLS: True}
AT_ONCE = LoginLimits(delays=DelayLimits(first_s=0.0))
ALL_MECHANISMS = "SCRAM-SHA-256,SCRAM-SHA-512,PLAIN"
SCRAMS = ["SCRAM-SHA-256", "SCRAM-SHA-512"]
HANDSHAKE, AUTHENTICATE = 17, 36
FAILED = ErrorCode.SASL_AUTHENTICATION_FAILED
MECHANISM = SCRAMS[0]


def kafka(users: FakeUsers | None = None, limits: LoginLimits = AT_ONCE, **settings: Any) -> Kafka:
    """A gateway whose user is alice with the password secret."""
    if users is None:
        users = FakeUsers()
        users.add("alice", "secret")
    settings = {"sasl_enabled_mechanisms": ALL_MECHANISMS, **settings}
    return Kafka(
        PLAINTEXT, SASL, SASL_TLS, logins=GUARDED, users=users, world_limits=GatewayLimits(logins=limits), **settings
    )


async def handshake(client: RawClient, mechanism: str = MECHANISM, version: int = 1) -> Any:
    client.send(HANDSHAKE, version, encode_request(HANDSHAKE, version, SaslHandshakeRequest(mechanism)), 1)
    return decode_response(HANDSHAKE, version, await client.next_body())


async def authenticate(client: RawClient, token: bytes, version: int = 2) -> Any:
    client.send(AUTHENTICATE, version, encode_request(AUTHENTICATE, version, SaslAuthenticateRequest(token)), 2)
    body = await client.next_body()
    return decode_response(AUTHENTICATE, version, body[1:] if version >= 2 else body)


async def log_in(
    client: RawClient,
    user: str = "alice",
    password: str = "secret",
    mechanism: str = MECHANISM,
    *,
    extensions: str = "",
) -> Any:
    """Log in with SCRAM; return the last answer."""
    assert (await handshake(client, mechanism)).error_code == ErrorCode.NONE
    scram = ScramClient(mechanism, user, password, extensions=extensions)
    first = await authenticate(client, scram.first)
    assert first.error_code == ErrorCode.NONE
    last = await authenticate(client, scram.final(first.auth_bytes))
    assert last.error_code or scram.is_server(last.auth_bytes)
    return last


async def is_served(client: RawClient) -> bool:
    """Whether the gateway answers a request that needs a login; if not, it closes the connection."""
    client.send(3, 1, encode_request(3, 1, MetadataRequest(topics=[])), 3)
    try:
        await client.next_body()
    except (asyncio.IncompleteReadError, ConnectionResetError):
        return False
    return True


def client_of(gateway: Kafka) -> Any:
    """The gateway's view of its only client."""
    (connection,) = gateway.connections.all
    return connection.client


@pytest.mark.parametrize("mechanism", SCRAMS)
async def test_a_user_with_its_password_is_served(mechanism: str) -> None:
    async with kafka() as gateway:
        client = await gateway.connect(SASL)
        client.ask_versions(0)
        await client.next_body()
        last = await log_in(client, mechanism=mechanism)
        assert (last.error_code, last.error_message, last.session_lifetime_ms) == (ErrorCode.NONE, None, 0)
        assert client_of(gateway).user == "alice"
        assert await is_served(client)
        name = "penstock_gateway_logins_total"
        assert gateway.world.metric(name, mechanism=mechanism, outcome="succeeded") == 1


async def test_a_password_is_enough_on_a_listener_with_tls() -> None:
    async with kafka() as gateway:
        client = await gateway.connect(SASL_TLS)
        assert (await handshake(client, "PLAIN")).mechanisms == ["SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN"]
        assert (await authenticate(client, b"\0alice\0secret")).error_code == ErrorCode.NONE
        assert client_of(gateway).user == "alice"


async def test_a_password_is_not_taken_in_plain_text() -> None:
    async with kafka() as gateway:
        client = await gateway.connect(SASL)
        answer = await handshake(client, "PLAIN")
        assert (answer.error_code, answer.mechanisms) == (ErrorCode.UNSUPPORTED_SASL_MECHANISM, SCRAMS)
        assert await client.until_closed() == b""


async def test_a_password_is_taken_in_plain_text_if_a_setting_allows_it() -> None:
    async with kafka(sasl_plain_without_tls=True) as gateway:
        client = await gateway.connect(SASL)
        assert (await handshake(client, "PLAIN")).error_code == ErrorCode.NONE
        assert (await authenticate(client, b"\0alice\0secret")).error_code == ErrorCode.NONE


async def test_a_token_of_the_issuer_names_the_user(tmp_path: Path) -> None:
    issuer, keys = Issuer(), tmp_path / "keys.json"
    keys.write_bytes(issuer.key_set())
    async with kafka(
        sasl_enabled_mechanisms="OAUTHBEARER",
        sasl_oauthbearer_jwks_endpoint_url=keys.as_uri(),
        sasl_oauthbearer_expected_issuer=ISSUER,
        sasl_oauthbearer_expected_audience=AUDIENCE,
    ) as gateway:
        now_s = gateway.world.clock.now_ms() / 1000
        client = await gateway.connect(SASL)
        await handshake(client, "OAUTHBEARER")
        answer = await authenticate(client, bearer(issuer.token("svc", now_s=now_s)))
        assert (answer.error_code, answer.auth_bytes) == (ErrorCode.NONE, b"")
        assert 599_000 <= answer.session_lifetime_ms <= 600_000, "the token ends the session"
        assert client_of(gateway).user == "svc"
        gateway.world.clock.now_s += 601
        assert not await is_served(client)
        gateway.world.clock.now_s += 30  # the clock skew
        await handshake(other := await gateway.connect(SASL), "OAUTHBEARER")
        answer = await authenticate(other, bearer(issuer.token("svc", now_s=now_s)))
        assert (answer.error_code, answer.auth_bytes) == (ErrorCode.NONE, b'{"status":"invalid_token"}')
        answer = await authenticate(other, b"\x01")
        assert (answer.error_code, answer.error_message) == (FAILED, '{"status":"invalid_token"}')
        assert await other.until_closed() == b""


async def test_the_issuer_replaces_its_keys_and_no_login_fails(tmp_path: Path) -> None:
    """It adds the new key, signs with it, and removes the old one later. No gateway restarts."""
    old, new, keys = Issuer("old"), Issuer("new"), tmp_path / "keys.json"
    keys.write_bytes(old.key_set())
    async with kafka(
        sasl_enabled_mechanisms="OAUTHBEARER",
        sasl_oauthbearer_jwks_endpoint_url=keys.as_uri(),
        sasl_oauthbearer_expected_issuer=ISSUER,
        sasl_oauthbearer_expected_audience=AUDIENCE,
    ) as gateway:
        clock = gateway.world.clock

        async def is_accepted(issuer: Issuer) -> bool:
            await handshake(client := await gateway.connect(SASL), "OAUTHBEARER")
            token = issuer.token("svc", now_s=clock.now_ms() / 1000)
            answer = await authenticate(client, bearer(token))
            return bool(answer.auth_bytes == b"")

        assert await is_accepted(old)
        keys.write_bytes(old.key_set(new))
        clock.now_s += KeySetLimits().early_s_min
        assert await is_accepted(new), "an unknown key is loaded at once"
        assert await is_accepted(old)
        keys.write_bytes(new.key_set())
        assert await is_accepted(old), "a removed key is accepted until the next load"
        clock.now_s += KeySetLimits().early_s_min
        assert not await is_accepted(Issuer("made-up"))
        assert not await is_accepted(old)
        assert await is_accepted(new)


async def test_wrong_passwords_and_unknown_users_get_the_same_answer_and_the_connection_closes() -> None:
    async with kafka() as gateway:
        answers = []
        for user, password in (("alice", "guess"), ("mallory", "guess")):
            client = await gateway.connect(SASL)
            with capture_logs() as logs:
                answers.append(await log_in(client, user, password))
                assert await client.until_closed() == b""
            (line,) = [each for each in logs if each["event"] == "login_failed"]
            assert line["principal"] == f"User:{user}"
            assert line["peer"] == "127.0.0.1"
            assert line["mechanism"] == MECHANISM
            assert line["reason"] == "wrong password or unknown user"
            assert "guess" not in str(logs)
        assert answers[0] == answers[1]
        assert answers[0].error_code == FAILED
        assert answers[0].error_message == f"Authentication failed: invalid credentials with SASL mechanism {MECHANISM}"
        assert gateway.world.metric("penstock_gateway_logins_total", mechanism=MECHANISM, outcome="failed") == 2
        assert gateway.world.metric("penstock_gateway_connections_closed_total", cause="login_failed") == 2


@pytest.mark.parametrize("user", ["alice", "mallory"])
async def test_a_client_that_repeats_another_nonce_learns_why_and_nothing_about_the_user(user: str) -> None:
    """librdkafka before 2.6.1 doubles its part of the nonce. Kafka 4 rejects that, too."""
    async with kafka() as gateway:
        client = await gateway.connect(SASL)
        await handshake(client)
        scram = ScramClient(MECHANISM, user, "secret")
        final = scram.final((await authenticate(client, scram.first)).auth_bytes)
        answer = await authenticate(client, final.replace(b",r=", b",r=fyko+d2lbbFgONRv9qkxdawL"))
        assert (answer.error_code, answer.error_message) == (FAILED, OTHER_NONCE)


async def test_an_unknown_user_gets_the_same_salt_each_time() -> None:
    async with kafka() as gateway:
        salts = set()
        for _ in range(2):
            client = await gateway.connect(SASL)
            await handshake(client)
            answer = await authenticate(client, ScramClient(MECHANISM, "mallory", "guess").first)
            salts.add(answer.auth_bytes.split(b",")[1])
        assert len(salts) == 1


async def test_another_login_secret_changes_the_salts_of_unknown_users_only() -> None:
    """Gateways with the same secret send the same salt, so an unknown user looks like any other."""
    salts = []
    for secret in ("0123456789abcdef", "0123456789abcdef", "fedcba9876543210"):
        async with kafka(sasl_login_secret=secret) as gateway:
            await handshake(client := await gateway.connect(SASL))
            answer = await authenticate(client, ScramClient(MECHANISM, "mallory", "guess").first)
            salts.append(answer.auth_bytes.split(b",")[1])
            assert (await log_in(await gateway.connect(SASL))).error_code == ErrorCode.NONE
    assert salts[0] == salts[1] != salts[2]


@pytest.mark.parametrize("token", [b"", b"\0\0\0", b"n,,n=user", b"\xff" * 60_000])
async def test_a_malformed_token_fails_the_login(token: bytes) -> None:
    async with kafka() as gateway:
        client = await gateway.connect(SASL)
        await handshake(client)
        assert (await authenticate(client, token)).error_code == FAILED
        assert await client.until_closed() == b""


async def test_a_failed_login_is_answered_after_a_delay() -> None:
    async with kafka(limits=LoginLimits(delays=DelayLimits(first_s=0.1))) as gateway:
        loop = asyncio.get_running_loop()
        delays_s = []
        for _ in range(2):
            client = await gateway.connect(SASL)
            await handshake(client)
            began_s = loop.time()
            await authenticate(client, b"malformed")
            delays_s.append(loop.time() - began_s)
        assert delays_s[0] >= 0.1
        assert delays_s[1] >= 0.2


async def test_before_users_are_known_the_connection_closes_without_a_verdict() -> None:
    users = FakeUsers(is_known=False)
    async with kafka(users) as gateway:
        client = await gateway.connect(SASL)
        await handshake(client)
        with capture_logs() as logs:
            scram = ScramClient(MECHANISM, "alice", "secret")
            client.send(AUTHENTICATE, 0, encode_request(AUTHENTICATE, 0, SaslAuthenticateRequest(scram.first)), 2)
            assert await client.until_closed() == b""
        assert "the users are not known yet" in str(logs)
        assert gateway.world.metric("penstock_gateway_logins_total", mechanism=MECHANISM, outcome="undecided") == 1


async def test_an_unknown_mechanism_is_answered_with_those_there_are() -> None:
    async with kafka() as gateway:
        client = await gateway.connect(SASL)
        answer = await handshake(client, "GSSAPI")
        assert (answer.error_code, answer.mechanisms) == (ErrorCode.UNSUPPORTED_SASL_MECHANISM, SCRAMS)
        assert await client.until_closed() == b""


@pytest.mark.parametrize("api_key", [0, 3, 9, 32])
async def test_a_request_before_the_login_closes_the_connection(api_key: int) -> None:
    async with kafka() as gateway:
        client = await gateway.connect(SASL)
        with capture_logs() as logs:
            client.send(api_key, 3, b"\0" * 20, 1)
            assert await client.until_closed() == b""
        assert "before the login" in str(logs)


async def test_a_request_behind_the_last_token_of_a_failed_login_is_not_served() -> None:
    async with kafka() as gateway:
        client = await gateway.connect(SASL)
        await handshake(client)
        client.send(AUTHENTICATE, 0, encode_request(AUTHENTICATE, 0, SaslAuthenticateRequest(b"bad")), 2)
        client.send(3, 1, encode_request(3, 1, MetadataRequest(topics=[])), 3)
        assert await client.next_correlation_id() == 2
        assert await client.until_closed() == b""


async def test_requests_behind_the_last_token_of_a_login_are_served() -> None:
    async with kafka() as gateway:
        client = await gateway.connect(SASL_TLS)
        await handshake(client, "PLAIN")
        token = SaslAuthenticateRequest(b"\0alice\0secret")
        client.send(AUTHENTICATE, 0, encode_request(AUTHENTICATE, 0, token), 2)
        for number in range(3, 6):
            client.send(3, 1, encode_request(3, 1, MetadataRequest(topics=[])), number)
        assert [await client.next_correlation_id() for _ in range(4)] == [2, 3, 4, 5]


async def test_a_second_handshake_during_a_login_is_out_of_order() -> None:
    async with kafka() as gateway:
        client = await gateway.connect(SASL)
        await handshake(client)
        assert (await handshake(client)).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert await client.until_closed() == b""


async def test_a_token_without_a_handshake_is_out_of_order() -> None:
    async with kafka() as gateway:
        client = await gateway.connect(SASL)
        assert (await authenticate(client, b"\0alice\0secret")).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert await client.until_closed() == b""


async def test_on_a_listener_without_logins_they_are_out_of_order_and_nothing_else_changes() -> None:
    async with kafka() as gateway:
        client = await gateway.connect(PLAINTEXT)
        assert (await handshake(client)).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert (await authenticate(client, b"\0alice\0secret")).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert await is_served(client)
        assert client_of(gateway).user == ANONYMOUS


async def test_old_clients_log_in_with_tokens_without_a_header() -> None:
    async with kafka() as gateway:
        client = await gateway.connect(SASL)
        await handshake(client, version=0)
        scram = ScramClient(MECHANISM, "alice", "secret")
        first = await raw_token(client, scram.first)
        assert scram.is_server((await raw_token(client, scram.final(first))) if first else b"")
        assert await is_served(client)


async def test_a_raw_password_that_looks_like_a_produce_request_is_a_token() -> None:
    async with kafka() as gateway:
        client = await gateway.connect(SASL_TLS)
        await handshake(client, "PLAIN", version=0)
        client.writer.write(struct.pack(">i", 10) + b"\0\0" + b"x" * 8)
        assert await client.until_closed() == b""


async def test_a_failed_login_without_headers_closes_the_connection_without_an_answer() -> None:
    async with kafka() as gateway:
        client = await gateway.connect(SASL_TLS)
        await handshake(client, "PLAIN", version=0)
        client.writer.write(struct.pack(">i", 12) + b"\0alice\0guess")
        assert await client.until_closed() == b""
        assert gateway.world.metric("penstock_gateway_logins_total", mechanism="PLAIN", outcome="failed") == 1


async def test_a_right_raw_password_is_answered_with_an_empty_frame() -> None:
    async with kafka() as gateway:
        client = await gateway.connect(SASL_TLS)
        await handshake(client, "PLAIN", version=0)
        assert await raw_token(client, b"\0alice\0secret") == b""
        assert await is_served(client)


async def raw_token(client: RawClient, token: bytes) -> bytes:
    client.writer.write(struct.pack(">i", len(token)) + token)
    async with asyncio.timeout(60):
        (length,) = struct.unpack(">i", await client.reader.readexactly(4))
        return await client.reader.readexactly(length)


async def test_a_client_that_does_not_log_in_is_closed_after_ten_seconds() -> None:
    async with kafka() as gateway:
        client, idle = await gateway.connect(SASL), await gateway.connect(PLAINTEXT)
        await handshake(client)
        idle.ask_versions(1)
        await idle.next_body()
        gateway.world.clock.now_s += AT_ONCE.login_s_max - 0.1
        gateway.connections.sweep()
        assert (await authenticate(client, ScramClient(MECHANISM, "alice", "secret").first)).error_code == 0
        gateway.world.clock.now_s += 0.2
        gateway.connections.sweep()
        assert await client.until_closed() == b""
        assert await is_served(idle)
        assert gateway.world.metric("penstock_gateway_connections_closed_total", cause="login_timeout") == 1


async def test_a_client_that_has_logged_in_is_not_closed_by_the_deadline() -> None:
    async with kafka() as gateway:
        client = await gateway.connect(SASL)
        await log_in(client)
        gateway.world.clock.now_s += AT_ONCE.login_s_max + 1
        gateway.connections.sweep()
        assert await is_served(client)


async def test_frames_are_small_before_a_login_and_as_large_as_configured_after_it() -> None:
    async with kafka() as gateway:
        client = await gateway.connect(SASL)
        client.writer.write(struct.pack(">i", AT_ONCE.frame_bytes_max + 1))
        assert await client.until_closed() == b""
        client = await gateway.connect(SASL)
        await log_in(client)
        client.send(3, 1, encode_request(3, 1, MetadataRequest(topics=[])) + b"\0" * 200_000, 3)
        assert await client.next_correlation_id() == 3


async def test_a_session_ends_when_the_client_does_not_log_in_again() -> None:
    async with kafka(connections_max_reauth_ms=60_000) as gateway:
        client = await gateway.connect(SASL)
        assert (await log_in(client)).session_lifetime_ms == 60_000
        gateway.world.clock.now_s += 59
        assert await is_served(client)
        gateway.world.clock.now_s += 2
        with capture_logs() as logs:
            assert not await is_served(client)
        assert "the session of User:alice has expired" in str(logs)


async def test_a_client_that_logs_in_again_keeps_its_connection_also_after_the_end() -> None:
    async with kafka(connections_max_reauth_ms=60_000) as gateway:
        client = await gateway.connect(SASL)
        await log_in(client)
        for wait_s in (50, 70):
            gateway.world.clock.now_s += wait_s
            assert (await log_in(client)).session_lifetime_ms == 60_000
            assert await is_served(client)


async def test_other_requests_are_served_during_the_next_login_but_not_after_the_end() -> None:
    async with kafka(connections_max_reauth_ms=60_000) as gateway:
        client = await gateway.connect(SASL)
        await log_in(client)
        gateway.world.clock.now_s += 59
        await handshake(client)
        assert await is_served(client)
        gateway.world.clock.now_s += 2
        assert not await is_served(client)


async def test_the_user_cannot_change_on_a_connection() -> None:
    users = FakeUsers()
    users.add("alice", "secret")
    users.add("bob", "secret")
    async with kafka(users, connections_max_reauth_ms=60_000) as gateway:
        client = await gateway.connect(SASL)
        await log_in(client, "alice")
        gateway.world.clock.now_s += 50
        answer = await log_in(client, "bob")
        assert (answer.error_code, answer.error_message) == (
            FAILED,
            "Cannot change principals during re-authentication",
        )
        assert await client.until_closed() == b""


async def test_the_mechanism_cannot_change_on_a_connection() -> None:
    async with kafka(connections_max_reauth_ms=60_000) as gateway:
        client = await gateway.connect(SASL)
        await log_in(client)
        gateway.world.clock.now_s += 50
        await handshake(client, SCRAMS[1])
        assert (await authenticate(client, ScramClient(SCRAMS[1], "alice", "secret").first)).error_code == FAILED
        assert await client.until_closed() == b""


async def test_the_connections_of_a_removed_user_end_with_the_session() -> None:
    users = FakeUsers()
    users.add("alice", "secret")
    async with kafka(users, connections_max_reauth_ms=60_000) as gateway:
        client = await gateway.connect(SASL)
        await log_in(client)
        users.remove("alice")
        gateway.world.clock.now_s += 50
        assert (await log_in(client)).error_code == FAILED
        assert await client.until_closed() == b""


async def test_a_login_on_a_session_that_takes_too_long_fails() -> None:
    async with kafka(connections_max_reauth_ms=60_000) as gateway:
        client = await gateway.connect(SASL)
        await log_in(client)
        gateway.world.clock.now_s += 50
        await handshake(client)
        gateway.world.clock.now_s += 11
        answer = await authenticate(client, ScramClient(MECHANISM, "alice", "secret").first)
        assert answer.error_code == FAILED


@pytest.mark.parametrize("session_ms", [0, 60_000])
async def test_a_login_again_without_a_session_or_at_once_is_out_of_order(session_ms: int) -> None:
    async with kafka(connections_max_reauth_ms=session_ms) as gateway:
        client = await gateway.connect(SASL)
        await log_in(client)
        if session_ms:
            gateway.world.clock.now_s += 10
            await log_in(client)
        assert (await handshake(client)).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert (await handshake(client, version=0)).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert await is_served(client)


async def test_a_flood_of_failures_writes_a_few_lines() -> None:
    async with kafka() as gateway:
        with capture_logs() as logs:
            for _ in range(60):
                client = await gateway.connect(SASL)
                await handshake(client)
                await authenticate(client, b"bad")
            gateway.world.clock.now_s += 20
            gateway.connections.sweep()
        assert len([line for line in logs if line["event"] == "login_failed"]) == 20
        (rest,) = [line for line in logs if line["event"] == "logins_failed"]
        assert rest["more"] == 40


async def test_api_versions_lists_the_requests_of_a_login() -> None:
    async with kafka() as gateway:
        client = await gateway.connect(SASL)
        client.ask_versions(1)
        answer: Any = decode_response(18, 0, await client.next_body())
        ranges = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
        assert (ranges[HANDSHAKE], ranges[AUTHENTICATE]) == ((0, 1), (0, 2))


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"sasl_enabled_mechanisms": ""}, "at least one"),
        ({"sasl_enabled_mechanisms": "GSSAPI"}, "not supported"),
        ({"sasl_login_secret": "short"}, "at least 16"),
        ({"sasl_enabled_mechanisms": "OAUTHBEARER"}, "jwks_endpoint_url"),
        (
            {"sasl_enabled_mechanisms": "OAUTHBEARER", "sasl_oauthbearer_jwks_endpoint_url": "file:///k"},
            "expected_issuer",
        ),
    ],
)
def test_wrong_settings_are_rejected_at_the_start(settings: dict[str, str], reason: str) -> None:
    with pytest.raises(Invalid, match=reason):
        GatewayConfig(**settings)


@pytest.mark.parametrize("algorithms", ["none", "HS256", "RS256,HS512", ""])
def test_tokens_are_never_unsigned_or_signed_with_a_shared_secret(algorithms: str) -> None:
    with pytest.raises(Invalid, match="sasl_oauthbearer_algorithms"):
        GatewayConfig(
            sasl_enabled_mechanisms="OAUTHBEARER",
            sasl_oauthbearer_jwks_endpoint_url="file:///k",
            sasl_oauthbearer_expected_issuer=ISSUER,
            sasl_oauthbearer_expected_audience=AUDIENCE,
            sasl_oauthbearer_algorithms=algorithms,
        )


def test_a_listener_without_a_usable_mechanism_is_rejected() -> None:
    settings = GatewayConfig(sasl_enabled_mechanisms="PLAIN").logins()
    with pytest.raises(Invalid, match="no TLS"):
        check_login_settings(settings, {"SASL_PLAINTEXT": False})
    check_login_settings(settings, {"SASL_SSL": True})

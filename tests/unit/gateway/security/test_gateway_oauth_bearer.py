"""OAUTHBEARER: only tokens that the issuer has signed for this cluster, in time, with an accepted algorithm."""

import base64
import json
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given, settings, strategies as st

from penstock.contracts.errors import Invalid, Unavailable
from penstock_gateway.security.login.exchange import Identity, LoginFailed
from penstock_gateway.security.login.json_web_keys import ALGORITHMS, KeySet, KeySetLimits, parse_keys, source_of
from penstock_gateway.security.login.oauth_bearer import ERROR_ANSWER, OAuthBearerLogin, parse_message
from penstock_gateway.security.login.tokens import TokenRules
from tests.testkit.cancelling import cancelled_after, turns
from tests.testkit.fakes.clock import ManualClock
from tests.testkit.servers.token_issuer import AUDIENCE, ISSUER, LIFETIME_S, Issuer
from tests.unit.gateway.security.gateway_logins import bearer

NOW_S = 1_800_000_000
RULES = TokenRules(issuer=ISSUER, audiences=(AUDIENCE, "other"), algorithms=ALGORITHMS)
ONE, TWO = Issuer("one"), Issuer("two")


class Source:
    """A place for keys that a test changes."""

    def __init__(self, document: bytes) -> None:
        self.document: bytes | None = document
        self.loads = 0
        self.turns = 0  # of the loop that a load takes

    async def load(self) -> bytes:
        self.loads += 1
        await turns(self.turns)
        if self.document is None:
            raise OSError("away")
        return self.document


def key_set(source: Source, clock: ManualClock, algorithms: tuple[str, ...] = ALGORITHMS) -> KeySet:
    return KeySet(source.load, algorithms=algorithms, refresh_s=3600, monotonic_s=clock.monotonic_s)


async def log_in(message: bytes, rules: TokenRules = RULES, document: bytes | None = None) -> Any:
    keys = key_set(Source(document or ONE.key_set()), ManualClock(), rules.algorithms)
    return await OAuthBearerLogin(rules, keys, lambda: NOW_S * 1000).respond(message)


async def failure(token: str, **options: Any) -> LoginFailed:
    step = await log_in(bearer(token), **options)
    assert step.identity is None
    assert step.answer == ERROR_ANSWER.encode()
    assert isinstance(step.failure, LoginFailed)
    return step.failure


@pytest.mark.parametrize("algorithm", ["RS256", "RS512", "PS256", "ES256"])
async def test_the_issuers_token_is_accepted_with_every_algorithm_of_its_keys(algorithm: str) -> None:
    step = await log_in(bearer(ONE.token("alice", algorithm, now_s=NOW_S)))
    assert step.identity == Identity("alice", (NOW_S + LIFETIME_S) * 1000)
    assert step.answer == b""


async def test_another_field_may_name_the_user() -> None:
    rules = TokenRules(issuer=ISSUER, audiences=(AUDIENCE,), algorithms=ALGORITHMS, user_claim="client_id")
    step = await log_in(bearer(ONE.token(now_s=NOW_S, client_id="svc")), rules)
    assert step.identity.user == "svc"


@pytest.mark.parametrize(
    ("claims", "reason"),
    [
        ({"exp": NOW_S - 31}, "expired"),
        ({"exp": None}, "no expiry"),
        ({"exp": "soon"}, "no time"),
        ({"exp": 1e400}, "not valid|no time"),
        ({"exp": True}, "no time"),
        ({"nbf": NOW_S + 31}, "not valid yet"),
        ({"iat": NOW_S + 31}, "not valid yet"),
        ({"iss": "https://attacker.example"}, "issuer"),
        ({"iss": None}, "iss"),
        ({"iss": [ISSUER]}, "ssuer"),
        ({"aud": "another"}, "udience"),
        ({"aud": None}, "aud"),
        ({"aud": {"penstock": 1}}, "claim"),
        ({"sub": None}, "no user name"),
        ({"sub": ""}, "no user name"),
        ({"sub": "a\nb"}, "no user name"),
        ({"sub": "a" * 300}, "no user name"),
    ],
)
async def test_a_token_with_a_wrong_field_fails(claims: dict[str, Any], reason: str) -> None:
    # PyJWT refuses to encode some of these fields, so the token is signed by hand.
    full = {"sub": "alice", "iss": ISSUER, "aud": AUDIENCE, "iat": NOW_S, "exp": NOW_S + 60} | claims
    payload = json.dumps({name: value for name, value in full.items() if value is not None}).encode()
    token = jwt.api_jws.encode(payload, ONE.rsa, algorithm="RS256", headers={"kid": "one-rsa"})
    with pytest.raises(LoginFailed, match=reason):
        raise await failure(token)


@pytest.mark.parametrize("skew_s", [-29, 29])
async def test_clocks_may_differ_by_the_clock_skew(skew_s: int) -> None:
    step = await log_in(bearer(ONE.token(now_s=NOW_S + skew_s, exp=NOW_S + skew_s + 1)))
    assert step.identity is not None
    assert step.identity.expires_ms > NOW_S * 1000


async def test_one_of_several_audiences_is_enough() -> None:
    step = await log_in(bearer(ONE.token(now_s=NOW_S, aud=["x", "other"])))
    assert step.identity is not None


@pytest.mark.parametrize("algorithm", ["none", "None", "NONE", ""])
async def test_an_unsigned_token_never_passes(algorithm: str) -> None:
    header = base64.urlsafe_b64encode(json.dumps({"alg": algorithm, "kid": "one-rsa"}).encode()).rstrip(b"=")
    payload = ONE.token(now_s=NOW_S).split(".")[1]
    for signature in ("", "AAAA", ONE.token(now_s=NOW_S).split(".")[2]):
        assert "algorithm" in str(await failure(f"{header.decode()}.{payload}.{signature}"))


async def test_the_public_key_as_a_shared_secret_never_passes() -> None:
    public = ONE.rsa.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    header = base64.urlsafe_b64encode(b'{"alg":"HS256","kid":"one-rsa"}').rstrip(b"=")
    signed = header + b"." + ONE.token(now_s=NOW_S).split(".")[1].encode()
    signature = jwt.algorithms.HMACAlgorithm(jwt.algorithms.HMACAlgorithm.SHA256).sign(signed, public)
    token = signed + b"." + base64.urlsafe_b64encode(signature).rstrip(b"=")
    assert "algorithm" in str(await failure(token.decode()))


async def test_a_token_of_another_issuers_key_fails() -> None:
    forged = jwt.encode(
        {"sub": "alice", "iss": ISSUER, "aud": AUDIENCE, "exp": NOW_S + 60},
        TWO.rsa,
        algorithm="RS256",
        headers={"kid": "one-rsa"},
    )
    assert "not valid" in str(await failure(forged))
    assert "unknown" in str(await failure(TWO.token(now_s=NOW_S)))


async def test_an_algorithm_outside_the_list_fails() -> None:
    rules = TokenRules(issuer=ISSUER, audiences=(AUDIENCE,), algorithms=("ES256",))
    assert "not accepted" in str(await failure(ONE.token(now_s=NOW_S), rules=rules))


async def test_a_key_for_one_algorithm_is_used_with_no_other() -> None:
    keys = [key | {"alg": "RS256"} for key in ONE.public_keys() if key["kty"] == "RSA"]
    document = json.dumps({"keys": keys}).encode()
    assert (await log_in(bearer(ONE.token(now_s=NOW_S)), document=document)).identity is not None
    assert "unknown" in str(await failure(ONE.token(algorithm="RS512", now_s=NOW_S), document=document))


async def test_the_authorization_id_must_be_the_user() -> None:
    step = await log_in(bearer(ONE.token(now_s=NOW_S), "alice"))
    assert step.identity is not None
    step = await log_in(bearer(ONE.token(now_s=NOW_S), "root"))
    assert step.identity is None


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\x01",
        b"n,,\x01auth=Bearer abc\x01",
        b"n,,\x01auth=Basic abc\x01\x01",
        b"n,,\x01auth=Bearer a b\x01\x01",
        b"n,,\x01auth=Bearer a\x01auth=Bearer b\x01\x01",
        b"y,,\x01auth=Bearer abc\x01\x01",
        b"n,,\x01host=a\x01\x01",
        b"n,,\x01auth=Bearer \xff\x01\x01",
    ],
)
def test_a_malformed_message_fails(message: bytes) -> None:
    with pytest.raises(LoginFailed, match=r"malformed|UTF-8"):
        parse_message(message)


def test_extensions_are_ignored() -> None:
    assert parse_message(b"n,,\x01host=a b\x01auth=bearer t.o.k\x01traceId=1\x01\x01") == ("", "t.o.k")


@settings(max_examples=300)
@given(st.one_of(st.binary(max_size=120), st.text('{}[]":,01aeikdlg.\\', max_size=60).map(str.encode)))
async def test_any_token_is_a_user_or_a_failure(part: bytes) -> None:
    encoded = base64.urlsafe_b64encode(part).rstrip(b"=").decode()
    header = base64.urlsafe_b64encode(b'{"alg":"RS256","kid":"one-rsa"}').rstrip(b"=").decode()
    for token in (f"{encoded}.{encoded}.{encoded}", f"{header}.{encoded}.AAAA", encoded or "a"):
        await failure(token)


@pytest.mark.parametrize(
    "part", [b"[" * 40_000, b'{"a":' * 20_000, b'{"alg":"RS256","crit":[{}]}', b"1", b"[1]", b"1e999"]
)
async def test_hostile_json_is_a_failure(part: bytes) -> None:
    encoded = base64.urlsafe_b64encode(part).rstrip(b"=").decode()
    await failure(f"{encoded}.{encoded}.AAAA")


async def test_new_keys_are_loaded_when_a_token_has_one_but_not_for_every_token() -> None:
    clock, source = ManualClock(), Source(ONE.key_set())
    keys = key_set(source, clock)
    assert await keys.find("one-rsa", "RS256") is not None
    source.document = ONE.key_set(TWO)
    assert await keys.find("two-rsa", "RS256") is None
    assert source.loads == 1
    clock.now_s += KeySetLimits().early_s_min
    assert await keys.find("two-rsa", "RS256") is not None
    for number in range(100):
        assert await keys.find(f"made-up-{number}", "RS256") is None
    assert source.loads == 2


@pytest.mark.parametrize("count", range(8))
async def test_a_client_that_leaves_during_a_load_of_keys_delays_no_other_login(count: int) -> None:
    """The other client has the same new key, or comes a moment later. Its failure would be final for it."""
    clock, source = ManualClock(), Source(ONE.key_set())
    keys = key_set(source, clock)
    assert await keys.refresh()
    clock.now_s += KeySetLimits().early_s_min
    source.document = ONE.key_set(TWO)
    source.turns = 4
    await cancelled_after(count, keys.find("two-rsa", "RS256"))
    assert await keys.find("two-rsa", "RS256") is not None
    assert source.loads == 2


async def test_the_last_keys_stay_while_the_issuer_is_away() -> None:
    clock, source = ManualClock(), Source(ONE.key_set())
    keys = key_set(source, clock)
    assert await keys.refresh()
    for document in (None, b"<html>", b'{"keys":[]}', b"[" * 100_000):
        source.document = document
        assert not await keys.refresh()
        assert await keys.find("one-rsa", "RS256") is not None


async def test_before_any_keys_were_loaded_no_token_is_judged() -> None:
    source = Source(b"")
    source.document = None
    keys = key_set(source, ManualClock())
    with pytest.raises(Unavailable):
        await OAuthBearerLogin(RULES, keys, lambda: NOW_S * 1000).respond(bearer(ONE.token(now_s=NOW_S)))


async def test_a_token_without_a_key_id_fits_a_single_key_only() -> None:
    clock = ManualClock()
    assert await key_set(Source(ONE.key_set()), clock).find("", "RS256") is not None
    assert await key_set(Source(ONE.key_set(TWO)), clock).find("", "RS256") is None


def test_secret_and_private_keys_and_keys_for_encryption_are_not_used() -> None:
    secret = {"kty": "oct", "k": "c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0LTEyMzQ", "kid": "a", "alg": "HS256"}
    private = jwt.algorithms.RSAAlgorithm.to_jwk(ONE.rsa, as_dict=True) | {"kid": "b"}
    encryption = ONE.public_keys()[0] | {"use": "enc", "kid": "c"}
    document = json.dumps({"keys": [secret, private, encryption, *ONE.public_keys()]}).encode()
    assert {key_id for key_id, _ in parse_keys(document, ALGORITHMS, KeySetLimits())} == {"one-rsa", "one-ec"}


async def test_keys_come_from_a_file(tmp_path: Any) -> None:
    path = tmp_path / "key set.json"
    path.write_bytes(ONE.key_set())
    assert await source_of(path.as_uri())() == ONE.key_set()


@pytest.mark.parametrize(
    "url", ["", "keys.json", "file://host/a", "http://issuer.example/keys", "ftp://127.0.0.1/a", "https://", "file:"]
)
def test_keys_come_from_nowhere_else(url: str) -> None:
    with pytest.raises(Invalid):
        source_of(url)

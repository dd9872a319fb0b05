"""SCRAM: the vectors of RFC 5802 and RFC 7677, and messages that are malformed or from another login."""

import base64
import contextlib
import hashlib
import hmac

import pytest
from hypothesis import given, strategies as st

from penstock.contracts.commands.security import ScramMechanism, ScramVerifier
from penstock.contracts.scram_keys import HASHES, verifier_of_password, verifier_of_salted
from penstock_gateway.security.login.exchange import LoginFailed
from penstock_gateway.security.login.scram import (
    ScramServer,
    decoded_name,
    is_password,
    is_proof,
    parse_client_first,
)

# RFC 7677, section 3: SCRAM-SHA-256, user "user", password "pencil".
FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
SERVER_NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
SERVER_FIRST = "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
FINAL = b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
EVERY_MECHANISM = pytest.mark.parametrize("mechanism", list(ScramMechanism))


def rfc_server() -> ScramServer:
    verifier = verifier_of_password(ScramMechanism.SHA_256, b"pencil", SALT, 4096)
    return ScramServer(parse_client_first(FIRST), verifier, SERVER_NONCE)


def client_final(
    first: bytes, server_first: str, password: bytes, verifier: ScramVerifier, binding: str, before_nonce: str = ""
) -> bytes:
    """The final message of a client with this password, written from the RFC and not from the server's code."""
    name = HASHES[verifier.mechanism]
    nonce = server_first.split(",")[0].removeprefix("r=")
    unproven = f"c={base64.b64encode(binding.encode()).decode()},r={before_nonce}{nonce}"
    salted = hashlib.pbkdf2_hmac(name, password, verifier.salt, verifier.iterations)
    client_key = hmac.new(salted, b"Client Key", name).digest()
    stored_key = hashlib.new(name, client_key).digest()
    signed = first[len(binding) :] + f",{server_first},{unproven}".encode()
    signature = hmac.new(stored_key, signed, name).digest()
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    return unproven.encode() + b",p=" + base64.b64encode(proof)


def test_the_vector_of_rfc_7677() -> None:
    server = rfc_server()
    assert server.server_first == SERVER_FIRST
    assert server.finish(FINAL) == SERVER_FINAL


def test_a_client_that_repeats_its_part_of_the_nonce_is_rejected_as_in_kafka() -> None:
    """CVE-2024-56128: Kafka before 3.7.2 accepted it; librdkafka before 2.6.1 sends it."""
    server = rfc_server()
    own = parse_client_first(FIRST).nonce
    final = client_final(FIRST, server.server_first, b"pencil", server.verifier, "n,,", before_nonce=own)
    with pytest.raises(LoginFailed, match="nonce"):
        server.finish(final)


def test_the_proof_of_the_vector_of_rfc_5802_fits_its_formula() -> None:
    """RFC 5802 has a vector with SHA-1 only, which no verifier has; its formula is checked with it."""
    salted = hashlib.pbkdf2_hmac("sha1", b"pencil", base64.b64decode("QSXCR+Q6sek8bf92"), 4096)
    signed = (
        b"n=user,r=fyko+d2lbbFgONRv9qkxdawL,r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,s=QSXCR+Q6sek8bf92,i=4096,"
        b"c=biws,r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j"
    )
    client_key = hmac.digest(salted, b"Client Key", "sha1")
    signature = hmac.digest(hashlib.sha1(client_key, usedforsecurity=False).digest(), signed, "sha1")
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    assert base64.b64encode(proof) == b"v0X8v3Bz2T0CJGbJQyF0X+HI4Ts="


@EVERY_MECHANISM
@pytest.mark.parametrize("binding", ["n,,", "y,,", "n,a=us=2Cer,"])
def test_a_client_with_the_password_is_accepted_and_gets_the_servers_signature(
    mechanism: ScramMechanism, binding: str
) -> None:
    verifier = verifier_of_password(mechanism, "pässwörd".encode(), b"salt", 4096)
    first = binding.encode() + b"n=us=2Cer,r=abc,tokenauth=true"
    server = ScramServer(parse_client_first(first), verifier, "def")
    answer = server.finish(client_final(first, server.server_first, "pässwörd".encode(), verifier, binding))
    assert answer.startswith(b"v=")


def test_the_extension_tokenauth_of_java_clients_is_ignored() -> None:
    assert parse_client_first(b"n,,n=user,r=abc,tokenauth=true").user == "user"


@EVERY_MECHANISM
def test_another_password_is_rejected(mechanism: ScramMechanism) -> None:
    verifier = verifier_of_password(mechanism, b"pencil", b"salt", 4096)
    server = ScramServer(parse_client_first(FIRST), verifier, "def")
    with pytest.raises(LoginFailed, match="wrong password"):
        server.finish(client_final(FIRST, server.server_first, b"pencil2", verifier, "n,,"))


def test_a_stolen_verifier_is_no_password() -> None:
    """The stored key alone makes no proof: the server would have to hash it once more."""
    verifier = verifier_of_password(ScramMechanism.SHA_256, b"pencil", SALT, 4096)
    signed = b"anything"
    signature = hmac.digest(verifier.stored_key, signed, "sha256")
    forged = bytes(a ^ b for a, b in zip(verifier.stored_key, signature, strict=True))
    assert not is_proof(verifier, signed, forged)


def test_a_final_message_of_another_login_is_rejected() -> None:
    verifier = verifier_of_password(ScramMechanism.SHA_256, b"pencil", SALT, 4096)
    replayed = ScramServer(parse_client_first(FIRST), verifier, "another")
    with pytest.raises(LoginFailed, match="nonce"):
        replayed.finish(FINAL)


@pytest.mark.parametrize("binding", [b"eSws", b"", b"biwsYQ=="])
def test_another_channel_binding_than_in_the_first_message_is_rejected(binding: bytes) -> None:
    with pytest.raises(LoginFailed, match="channel binding"):
        rfc_server().finish(FINAL.replace(b"biws", binding))


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (b"p=tls-unique,,n=user,r=abc", "channel binding"),
        (b"n,,m=x,n=user,r=abc", "mandatory extension"),
        (b"n,a=root,n=user,r=abc", "another user"),
        (b"n,,n=,r=abc", "malformed"),
        (b"n,,n=user,r=", "malformed"),
        (b"n,,n=user", "malformed"),
        (b"n,,r=abc,n=user", "malformed"),
        (b"n,,n=us=2cer,r=abc", "user name"),
        (b"n,,n=us=er,r=abc", "user name"),
        (b"n,,n=user\0,r=abc", "malformed"),
        (b"n,,n=\xff,r=abc", "UTF-8"),
        (b"n,,n=user,r=" + b"a" * 2_000, "too long"),
        (b"", "malformed"),
    ],
)
def test_a_malformed_first_message_fails(message: bytes, reason: str) -> None:
    with pytest.raises(LoginFailed, match=reason):
        parse_client_first(message)


@pytest.mark.parametrize(("name", "plain"), [("a=2Cb", "a,b"), ("a=3Db", "a=b"), ("=3D2C", "=2C"), ("é", "é")])
def test_escapes_in_user_names_are_decoded_once(name: str, plain: str) -> None:
    assert decoded_name(name) == plain


@given(st.binary(max_size=200))
def test_any_first_message_is_parsed_or_fails(message: bytes) -> None:
    with contextlib.suppress(LoginFailed):
        assert parse_client_first(message).user


@given(st.text(alphabet="nyp,=armv\0é2CD3", max_size=40))
def test_first_messages_of_the_right_characters_are_parsed_or_fail(message: str) -> None:
    with contextlib.suppress(LoginFailed):
        assert parse_client_first(message.encode()).user


@given(st.one_of(st.binary(max_size=300), st.integers(0, len(FINAL) - 1).map(lambda at: FINAL[:at])))
def test_any_other_final_message_fails(message: bytes) -> None:
    with pytest.raises(LoginFailed):
        rfc_server().finish(message)


@given(st.integers(0, len(FINAL) - 1), st.integers(1, 255))
def test_a_final_message_with_one_other_byte_fails_or_has_the_same_proof(at: int, change: int) -> None:
    changed = bytearray(FINAL)
    changed[at] ^= change
    try:
        assert rfc_server().finish(bytes(changed)) == SERVER_FINAL
    except LoginFailed:
        return
    assert base64.b64decode(bytes(changed)[-44:]) == base64.b64decode(FINAL[-44:]), "another proof was accepted"


@EVERY_MECHANISM
def test_a_password_is_checked_against_the_verifier(mechanism: ScramMechanism) -> None:
    verifier = verifier_of_password(mechanism, b"secret", b"salt", 4096)
    salted = hashlib.pbkdf2_hmac(HASHES[mechanism], b"secret", b"salt", 4096)
    assert verifier == verifier_of_salted(mechanism, salted, b"salt", 4096)
    assert is_password(verifier, b"secret")
    assert not is_password(verifier, b"Secret")

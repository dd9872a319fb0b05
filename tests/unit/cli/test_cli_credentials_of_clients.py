"""`penstock credentials --kafka-hosts --http-token`: a certificate for gateways, an administrator, and a token."""

import datetime
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.x509.verification import PolicyBuilder, Store

from penstock.cli import main
from penstock.cli.credentials import ROLES, Wanted, make_credentials
from penstock.cli.identities.certificates import CERTIFICATE_DAYS, RENEWAL_DAYS
from penstock.cli.kafka.properties import read_properties
from penstock.contracts.errors import Invalid
from penstock.runtime.clock import SystemEntropy
from penstock.runtime.process.env_file import parse_env
from tests.testkit.fakes.clock import ManualClock

DAY_MS = 86_400_000
NOW_MS = 1_800_000_000_000
CLIENT = {f"client/{name}" for name in ("ca.pem", "password", "client.properties", "librdkafka.conf")}
LISTENER = {f"{user}/{name}" for user in ("gateway", "agent") for name in ("kafka.pem", "kafka-key.pem")}
AUTHORITY = {"kafka-ca/kafka.pem", "kafka-ca/kafka-key.pem"}
CONSOLE_CA, CONSOLE_LISTENER = "console/kafka-ca.pem", "console/client.properties"
KEYS = {"gateway/token-key", "agent/token-key"}
TOKENS = {"http/http-token", *(f"{role}/http-token" for role in ROLES)}
GATEWAY, AGENT = "gateway/credentials.env", "agent/credentials.env"  # with the login secret, made of the password


def make(folder: Path, now_ms: int = NOW_MS, **options: Any) -> set[str]:
    given = {"kafka_hosts": ("gateway", "10.1.2.3"), "with_http_token": True, **options}
    return set(make_credentials(folder, Wanted(**given), SystemEntropy(), ManualClock(0, now_ms)))


def secret(folder: Path) -> str:
    return parse_env((folder / GATEWAY).read_text(), GATEWAY)["PENSTOCK_SASL_LOGIN_SECRET"]


def test_gateways_get_a_certificate_and_operators_the_files_of_clients(tmp_path: Path) -> None:
    written = make(tmp_path)
    assert written >= CLIENT | LISTENER | AUTHORITY | TOKENS | KEYS
    now = datetime.datetime.fromtimestamp(NOW_MS / 1000, datetime.UTC)
    authority = x509.load_pem_x509_certificate((tmp_path / "client" / "ca.pem").read_bytes())
    policy = PolicyBuilder().store(Store([authority])).time(now)
    for user in ("gateway", "agent"):
        issued = x509.load_pem_x509_certificate((tmp_path / user / "kafka.pem").read_bytes())
        policy.build_server_verifier(x509.DNSName("gateway")).verify(issued, [])
    password = (tmp_path / "client" / "password").read_text().strip()
    assert len(password) == 64
    for name in ("client.properties", "librdkafka.conf"):
        assert password in (tmp_path / "client" / name).read_text()
    for name in (GATEWAY, AGENT):
        assert password not in (tmp_path / name).read_text()
        assert f"PENSTOCK_SASL_LOGIN_SECRET={secret(tmp_path)}\n" in (tmp_path / name).read_text()
    assert len(secret(tmp_path)) >= 16
    for names in (TOKENS, KEYS):
        assert len({(tmp_path / name).read_text() for name in names}) == 1
    assert {stat.S_IMODE((tmp_path / name).stat().st_mode) for name in written} == {0o400}


def test_a_console_gets_the_listener_with_its_authority_and_no_login(tmp_path: Path) -> None:
    assert {CONSOLE_CA, CONSOLE_LISTENER} <= make(tmp_path)
    assert (tmp_path / CONSOLE_CA).read_bytes() == (tmp_path / "client" / "ca.pem").read_bytes()
    found = read_properties(tmp_path / CONSOLE_LISTENER)
    assert (found.security_protocol, found.sasl_mechanism) == ("SASL_SSL", "SCRAM-SHA-512")
    assert Path(found.ca_file).read_bytes() == (tmp_path / CONSOLE_CA).read_bytes()
    assert (found.username, found.password, found.password_file) == ("", "", "")


def test_the_key_of_the_authority_and_the_password_are_in_their_own_folder_only(tmp_path: Path) -> None:
    make(tmp_path)
    key = (tmp_path / "kafka-ca" / "kafka-key.pem").read_bytes()
    password = (tmp_path / "client" / "password").read_bytes().strip()
    for hidden, folder in ((key, "kafka-ca"), (password, "client")):
        found = {path.parent.name for path in tmp_path.rglob("*") if path.is_file() and hidden in path.read_bytes()}
        assert found == {folder}


def test_without_the_flags_there_are_no_such_files(tmp_path: Path) -> None:
    assert not make(tmp_path, kafka_hosts=(), with_http_token=False) & (CLIENT | LISTENER | AUTHORITY | TOKENS | KEYS)
    assert "LOGIN_SECRET" not in (tmp_path / GATEWAY).read_text()


def test_a_second_run_keeps_all_of_them_until_the_certificate_nearly_ends(tmp_path: Path) -> None:
    make(tmp_path)
    left = CERTIFICATE_DAYS - RENEWAL_DAYS
    assert make(tmp_path, NOW_MS + (left - 1) * DAY_MS) == set()
    assert make(tmp_path, NOW_MS + (left + 1) * DAY_MS) == LISTENER


def test_another_host_needs_another_certificate_only(tmp_path: Path) -> None:
    make(tmp_path)
    assert make(tmp_path, kafka_hosts=("kafka.example",)) == LISTENER


@pytest.mark.parametrize(
    ("rotated", "written"),
    [
        ("kafka", LISTENER),
        ("kafka-ca", AUTHORITY | LISTENER | {"client/ca.pem", CONSOLE_CA}),
        ("client", (CLIENT - {"client/ca.pem"}) | {GATEWAY, AGENT}),
        ("http", TOKENS),
        ("token-key", KEYS),
    ],
)
def test_a_rotation_replaces_one_secret_and_what_follows_from_it(
    tmp_path: Path, rotated: str, written: set[str]
) -> None:
    make(tmp_path)
    assert make(tmp_path, rotate=(rotated,)) == written
    assert make(tmp_path) == set()


def keys(folder: Path, role: str = "gateway") -> list[str]:
    return (folder / role / "token-key").read_text().split()


def test_a_new_key_of_delegation_tokens_stands_before_the_last_one(tmp_path: Path) -> None:
    make(tmp_path)
    (first,) = keys(tmp_path)
    make(tmp_path, rotate=("token-key",))
    second, kept = keys(tmp_path)
    assert kept == first
    make(tmp_path, rotate=("token-key",))
    third, kept = keys(tmp_path)
    assert kept == second
    assert len({first, second, third}) == 3
    (tmp_path / "gateway" / "token-key").unlink()
    assert make(tmp_path) == {"gateway/token-key"}
    assert keys(tmp_path) == keys(tmp_path, "agent") == [third, second]


def test_a_run_after_the_loss_of_the_gateways_settings_derives_the_same_login_secret(tmp_path: Path) -> None:
    make(tmp_path)
    before = secret(tmp_path)
    (tmp_path / GATEWAY).unlink()
    assert make(tmp_path) == {GATEWAY}
    assert secret(tmp_path) == before


@pytest.mark.parametrize("host", ["a b", "-x", "a/b", "kafka.example:9092"])
def test_a_host_that_is_no_name_is_rejected(tmp_path: Path, host: str) -> None:
    with pytest.raises(Invalid, match="a host is a name or an address"):
        make(tmp_path, kafka_hosts=(host,))


def test_the_command_prints_no_secret(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--kafka-hosts", "gateway", "--http-token", "--owner", str(os.getuid())]
    assert main(["credentials", str(tmp_path), *flags]) == 0
    printed = capsys.readouterr().out
    assert "client/password" in printed
    for name in ("client/password", "http/http-token"):
        assert (tmp_path / name).read_text().strip() not in printed

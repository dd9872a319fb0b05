"""`penstock up` on addresses that other machines reach: refused, unless the user accepts it."""

from pathlib import Path

import pytest

from penstock.cli.ports import Address
from penstock.cli.up.exposure import check_addresses, is_loopback
from penstock.contracts.errors import Invalid
from tests.unit.cli.test_cli_options import options

HERE, EVERYWHERE = Address("127.0.0.1", 9092), Address("0.0.0.0", 9092)


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.8.9.10", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.5", False),
        ("fd00::5", False),
    ],
)
def test_only_addresses_of_this_machine_are_loopback(host: str, expected: bool) -> None:
    assert is_loopback(host) == expected


def test_a_name_without_an_address_is_named_and_not_taken_for_another_machine() -> None:
    with pytest.raises(Invalid, match=r"^no-such-host\.invalid: no such host \("):
        options("--kafka", "no-such-host.invalid:9092")


@pytest.mark.parametrize("flag", ["--kafka", "--http"])
@pytest.mark.parametrize("host", ["0.0.0.0", "[::]", "10.0.0.5"])
def test_another_address_is_refused_with_what_to_do(flag: str, host: str) -> None:
    with pytest.raises(Invalid, match=f"{flag} .*can be reached from other machines.*--insecure"):
        options(flag, f"{host}:9999")
    assert options(flag, f"{host}:9999", "--insecure").warnings[0].startswith(f"{flag} ")


def test_addresses_of_this_machine_need_nothing_and_warn_of_nothing() -> None:
    assert check_addresses(HERE, HERE, has_token=False, is_insecure=False) == ""
    assert check_addresses(HERE, HERE, has_token=False, is_insecure=True) == ""


def test_both_addresses_are_named() -> None:
    with pytest.raises(Invalid, match=r"--kafka 0\.0\.0\.0:9092 and --http 0\.0\.0\.0:9092"):
        check_addresses(EVERYWHERE, EVERYWHERE, has_token=False, is_insecure=False)


def test_with_a_token_the_console_may_be_reached_and_kafka_may_not(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("0123456789abcdef")
    found = options("--http", "0.0.0.0:8080", "--http-token-file", str(path))
    assert (found.http_token_file, found.warnings) == (str(path), ())
    assert options(environ={"PENSTOCK_HTTP_TOKEN_FILE": str(path)}).http_token_file == str(path)
    with pytest.raises(Invalid, match="--kafka 0"):
        options("--kafka", "0.0.0.0:9092", "--http-token-file", str(path))


def test_what_clients_are_sent_to_is_not_what_is_listened_on() -> None:
    """An advertised address opens no port."""
    assert options("--advertise", "kafka.example").warnings == ()


def test_with_logins_kafka_may_be_reached_and_the_console_only_with_a_token(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("0123456789abcdef")
    assert options("--secure", "--kafka", "0.0.0.0:9092", "--advertise", "kafka.example").warnings == ()
    with pytest.raises(Invalid, match=r"^--http 0"):
        options("--secure", "--http", "0.0.0.0:8080")
    found = options("--secure", "--http", "0.0.0.0:8080", "--http-token-file", str(path))
    assert (found.is_secure, found.warnings) == (True, ())


def test_it_cannot_be_secure_and_insecure_at_once() -> None:
    with pytest.raises(SystemExit):
        options("--secure", "--insecure")

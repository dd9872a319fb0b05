"""Where a command finds its cluster: flags, a file of client settings, the environment, and profiles."""

import argparse
import stat
from pathlib import Path

import pytest

from penstock.cli import main, parse_arguments
from penstock.cli.identities.client_files import java_properties, librdkafka_settings
from penstock.cli.kafka.profiles import KafkaSettings, profiles_file, read_profiles
from penstock.cli.kafka.properties import read_properties
from penstock.cli.kafka.settings import checked, client_configs, read_settings
from penstock.contracts.errors import Invalid


def arguments(*flags: str) -> argparse.Namespace:
    return parse_arguments(["topic", "list", *flags])


def profile(folder: Path, *words: str) -> int:
    return main(["profile", *words])


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in ("PENSTOCK_BOOTSTRAP", "PENSTOCK_PROFILE", "PENSTOCK_PASSWORD"):
        monkeypatch.delenv(name, raising=False)


def test_without_any_setting_the_address_is_that_of_penstock_up() -> None:
    assert read_settings(arguments(), {}) == KafkaSettings(bootstrap="127.0.0.1:9092", security_protocol="PLAINTEXT")


def test_flags_come_before_the_environment_and_the_current_profile(tmp_path: Path) -> None:
    assert profile(tmp_path, "create", "prod", "--bootstrap", "prod:9092", "--username", "alice") == 0
    path = profiles_file()
    found = {
        "profile": read_settings(arguments(), {}, path).bootstrap,
        "environment": read_settings(arguments(), {"PENSTOCK_BOOTSTRAP": "env:1"}, path).bootstrap,
        "flag": read_settings(arguments("--bootstrap", "flag:1"), {"PENSTOCK_BOOTSTRAP": "env:1"}, path).bootstrap,
    }
    assert found == {"profile": "prod:9092", "environment": "env:1", "flag": "flag:1"}
    # The login of the current profile is not sent to an address that is named otherwise.
    assert read_settings(arguments("--bootstrap", "flag:1"), {}, path).username == ""


def test_the_password_of_the_environment_is_for_logins_without_one(tmp_path: Path) -> None:
    config = tmp_path / "client.conf"
    config.write_text("sasl.username=alice\nsasl.password=own\n")
    flags = ("--bootstrap", "a:1", "--command-config", str(config))
    assert profile(tmp_path, "create", "with", *flags) == 0
    assert profile(tmp_path, "create", "without", "--bootstrap", "a:1", "--username", "bob") == 0
    environ, path = {"PENSTOCK_PASSWORD": "given"}, profiles_file()
    assert read_settings(arguments(), environ, path).password == "given"  # `without` is the current one
    assert read_settings(arguments("--profile", "with"), environ, path).password == "own"
    assert profile(tmp_path, "use", "with") == 0
    assert read_settings(arguments(), environ, path).password == "own"


def test_a_named_profile_is_used_with_its_login(tmp_path: Path) -> None:
    secret = tmp_path / "password"
    secret.write_text("secret\nsecond line\n")
    flags = ("--bootstrap", "prod:9092", "--username", "alice", "--password-file", str(secret))
    assert (
        profile(tmp_path, "create", "prod", *flags) == profile(tmp_path, "create", "other", "--bootstrap", "o:1") == 0
    )
    found = read_settings(arguments("--profile", "prod"), {"PENSTOCK_BOOTSTRAP": "env:1"}, profiles_file())
    assert client_configs(found) == {
        "bootstrap_servers": ["prod:9092"],
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": "alice",
        "sasl_plain_password": "secret",
    }


def test_profiles_are_listed_shown_used_and_deleted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "client.conf"
    config.write_text("sasl.username=alice\nsasl.password=secret\n")
    create = ("--bootstrap", "a:1", "--command-config", str(config))
    assert profile(tmp_path, "create", "one", *create) == profile(tmp_path, "create", "two", *create) == 0
    assert stat.S_IMODE(profiles_file().stat().st_mode) == 0o600
    assert profile(tmp_path, "use", "one") == 0 and read_profiles(profiles_file()).current == "one"
    capsys.readouterr()
    assert profile(tmp_path, "show", "one") == profile(tmp_path, "list") == 0
    assert "secret" not in (text := capsys.readouterr().out) and "alice" in text
    assert profile(tmp_path, "delete", "one") == 0
    assert list(read_profiles(profiles_file()).profiles) == ["two"] and read_profiles(profiles_file()).current == ""


@pytest.mark.parametrize(
    ("words", "error_text"),
    [
        (("use", "prod"), "no profile 'prod'; known profiles: there are none"),
        (("create", "prod"), "name the Kafka listener with --bootstrap HOST:PORT"),
        (("create", "prod", "--bootstrap", "prod"), "an address is HOST:PORT with a port from 1 to 65535: 'prod'"),
        (("create", "p", "--bootstrap", "p:1", "--security-protocol", "SASL_SSL"), "SASL_SSL needs a user"),
        (("create", "p", "--bootstrap", "p:99999"), "an address is HOST:PORT with a port from 1 to 65535: 'p:99999'"),
        (
            ("create", "p", "--bootstrap", "p:1", "--command-config", "/nowhere"),
            "cannot read the client settings in /nowhere: No such file or directory",
        ),
    ],
)
def test_a_wrong_profile_is_one_sentence(
    words: tuple[str, ...], error_text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert profile(tmp_path, *words) == 1
    assert capsys.readouterr().err.startswith(f"penstock: {error_text}")


def test_an_existing_profile_is_replaced_only_on_demand(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert profile(tmp_path, "create", "p", "--bootstrap", "p:1") == 0
    assert profile(tmp_path, "create", "p", "--bootstrap", "p:2") == 1
    assert "exists already; --replace replaces it" in capsys.readouterr().err
    assert profile(tmp_path, "create", "p", "--bootstrap", "p:2", "--replace") == 0
    assert read_profiles(profiles_file()).profiles["p"].bootstrap == "p:2"


def test_a_damaged_file_of_profiles_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = profiles_file()
    path.parent.mkdir(parents=True)
    path.write_text("profiles: [1]\n")
    assert profile(tmp_path, "list") == 1
    assert f"{path} is no file of profiles" in capsys.readouterr().err


def test_the_files_of_penstock_up_are_understood(tmp_path: Path) -> None:
    ca = tmp_path / "ca.pem"
    ca.touch()
    password = 'pass"word\\1'
    for name, text in {
        "client.properties": java_properties(Path("ca.pem"), "password1"),
        "librdkafka.conf": librdkafka_settings("k:1", ca, password),
    }.items():
        (tmp_path / name).write_text(text)
    java, librdkafka = (read_properties(tmp_path / name) for name in ("client.properties", "librdkafka.conf"))
    shared = {"security_protocol": "SASL_SSL", "sasl_mechanism": "SCRAM-SHA-512", "username": "admin"}
    assert java == KafkaSettings(**shared, password="password1", ca_file=str(ca))
    assert librdkafka == KafkaSettings(**shared, bootstrap="k:1", password=password, ca_file=str(ca))


def test_quotes_in_a_password_of_a_jaas_configuration_are_read(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text('# a comment\nsasl.jaas.config=some.Module required username="al\\"ice" password="a\\\\b c";\n')
    found = read_properties(path)
    assert (found.username, found.password) == ('al"ice', "a\\b c")


def test_stores_of_java_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text("ssl.truststore.type=JKS\nssl.truststore.location=t.jks\n")
    with pytest.raises(Invalid, match=r"ssl\.truststore\.type=JKS is for Java only"):
        read_properties(path)


@pytest.mark.parametrize(
    ("settings", "protocol"),
    [
        (KafkaSettings(bootstrap="a:1"), "PLAINTEXT"),
        (KafkaSettings(bootstrap="a:1", ca_file="ca"), "SSL"),
        (KafkaSettings(bootstrap="a:1", username="u"), "SASL_PLAINTEXT"),
        (KafkaSettings(bootstrap="a:1", username="u", ca_file="ca"), "SASL_SSL"),
        (KafkaSettings(bootstrap="a:1", username="u", ca_file="ca", security_protocol="SSL"), "SSL"),
    ],
)
def test_the_protocol_follows_from_login_and_certificates(settings: KafkaSettings, protocol: str) -> None:
    assert checked(settings).security_protocol == protocol


def test_a_missing_certificate_is_reported() -> None:
    with pytest.raises(Invalid, match=r"there is no file /nowhere/ca\.pem"):
        client_configs(KafkaSettings(bootstrap="a:1", security_protocol="SSL", ca_file="/nowhere/ca.pem"))

"""Records with schemas in the forms of `consume`, in filters, and the settings of a registry."""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from penstock.cli import main, parse_arguments
from penstock.cli.kafka.profiles import KafkaSettings, read_profiles
from penstock.cli.kafka.settings import read_settings
from penstock.cli.records.decoded import decoded, decoder_of
from penstock.cli.records.filters import parse_filter
from penstock.cli.records.produce import from_json
from penstock.cli.records.shown import as_bytes, as_object
from penstock.contracts.errors import Invalid
from tests.testkit.servers.schema_registry import SchemaRegistry, framed, serving
from tests.unit.cli.test_cli_records import Record

ORDER = {
    "type": "record",
    "name": "shop.Order",
    "fields": [{"name": "price", "type": "long"}, {"name": "note", "type": "string"}],
}


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    with serving() as started:
        yield started


def order(registry: SchemaRegistry) -> bytes:
    """A framed order of the price 100."""
    return framed(registry.register("orders-value", ORDER), b"\xc8\x01\x06a\xc3\xa4")


def read(registry: SchemaRegistry, **fields: Any) -> Any:
    settings = KafkaSettings(schema_registry=registry.url)
    return decoded(Record(headers=[], **fields), decoder_of(settings, 3.0))


def test_a_decoded_record_is_json_in_all_forms(registry: SchemaRegistry) -> None:
    key = framed(registry.register("orders-key", '"string"'), b"\x04k1")
    record = read(registry, key=key, value=order(registry))
    value = {"price": 100, "note": "aä"}
    assert as_object(record) == {
        "topic": "orders",
        "partition": 1,
        "offset": 7,
        "time": "2023-11-14T22:13:20.000Z",
        "key": "k1",
        "key_schema": {"id": 100_001, "type": "AVRO", "name": "string"},
        "value": value,
        "value_schema": {"id": 100_002, "type": "AVRO", "name": "shop.Order"},
        "headers": [],
    }
    line = as_bytes(record, "json")
    assert json.loads(line) == yaml.safe_load(as_bytes(record, "yaml")) == as_object(record)
    assert as_bytes(record, "raw").decode() == '{"price": 100, "note": "aä"}\n'
    assert as_bytes(record, "text").decode() == 'orders/1@7 2023-11-14T22:13:20.000Z k1 {"price": 100, "note": "aä"}\n'
    written = from_json(line, 1)
    assert (written.key, written.value) == (b"k1", '{"price": 100, "note": "aä"}'.encode())


@pytest.mark.parametrize(
    ("expression", "fits"),
    [("value.price == `100`", True), ("value.price > `100`", False), ("contains(value.note, 'ä')", True)],
)
def test_a_filter_sees_the_decoded_fields(registry: SchemaRegistry, expression: str, fits: bool) -> None:
    assert parse_filter(expression)(read(registry, value=order(registry))) is fits


def test_a_record_without_a_frame_is_shown_as_without_a_registry(registry: SchemaRegistry) -> None:
    for value in (None, b"", b"text", b'{"price": 1}', b"\xff", bytes(8)):
        record = Record(value=value, headers=[])
        for form in ("text", "json", "yaml", "raw"):
            assert as_bytes(read(registry, value=value), form) == as_bytes(record, form)
    assert registry.requests == []


def test_the_deepest_value_that_is_decoded_has_all_forms(registry: SchemaRegistry) -> None:
    schema_id = registry.register("deep-value", {}, "JSON")
    record = read(registry, value=framed(schema_id, b"[" * 101 + b"]" * 101))
    assert as_object(record)["value_schema"]["id"] == schema_id
    for form, brackets in (("text", b"[[["), ("json", b"[[["), ("yaml", b"- - -"), ("raw", b"[[[")):
        assert brackets in as_bytes(record, form)


def test_a_record_without_a_schema_keeps_its_bytes_and_has_the_reason(registry: SchemaRegistry) -> None:
    record = read(registry, value=framed(7, b"\xff"))
    error = "schema 7: the registry has no schema of this id"
    assert {name: value for name, value in as_object(record).items() if name.startswith("value")} == {
        "value_hex": "0000000007ff",
        "value_error": error,
    }
    assert as_bytes(record, "text").endswith(f" 0x0000000007ff ({error})\n".encode())
    assert as_bytes(record, "raw") == framed(7, b"\xff\n")
    assert from_json(as_bytes(record, "json"), 1).value == framed(7, b"\xff")


def flags(*words: str) -> argparse.Namespace:
    return parse_arguments(["topic", "consume", "orders", *words])


def test_the_registry_comes_from_a_flag_a_profile_or_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    words = ("--schema-registry", "https://a:b@r:1/x", "--schema-registry-password-file", "pass")
    assert main(["profile", "create", "one", "--bootstrap", "h:1", *words]) == 0
    path = tmp_path / "penstock" / "profiles.yaml"
    assert read_profiles(path).profiles["one"].schema_registry_password_file == str(tmp_path / "pass")
    capsys.readouterr()
    assert main(["profile", "show", "one", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["schema_registry"] == "https://a@r:1/x"

    environ = {"PENSTOCK_SCHEMA_REGISTRY": "http://environment"}
    assert read_settings(flags(), {}, path).schema_registry == "https://a:b@r:1/x"
    assert read_settings(flags(), environ, path).schema_registry == "https://a:b@r:1/x"
    other = read_settings(flags("--bootstrap", "other:1"), environ, path)
    assert (other.schema_registry, other.schema_registry_password_file) == ("http://environment", "")
    found = read_settings(flags("--schema-registry", "http://flag"), environ, path)
    assert (found.schema_registry, found.schema_registry_password_file) == ("http://flag", "")


def test_a_wrong_address_of_a_registry_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="the address of the schema registry is http://HOST:PORT"):
        read_settings(flags("--schema-registry", "registry:8081"), {}, tmp_path / "none")

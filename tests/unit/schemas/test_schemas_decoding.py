"""A decoder asks the registry once for each schema, and a key or value without a schema gets a reason."""

import socket
import ssl
import sys
from base64 import b64encode
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto

from penstock.contracts.errors import Invalid
from penstock.schemas.decoding import Decoded, Decoder, Undecoded
from penstock.schemas.frames import Frame, parse_frame
from penstock.schemas.limits import SchemaLimits
from penstock.schemas.registry import parse_address, without_password
from tests.testkit.fakes.clock import ManualClock
from tests.testkit.servers.certificates import Authority
from tests.testkit.servers.ports import free_port
from tests.testkit.servers.schema_registry import SchemaRegistry, framed, serving

USER = {"type": "record", "name": "shop.User", "fields": [{"name": "id", "type": "long"}]}
ORDER = {"type": "record", "name": "shop.Order", "fields": [{"name": "user", "type": "shop.User"}]}


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    with serving() as started:
        yield started


def decoder_of(url: str, clock: ManualClock | None = None, **limits: float) -> Decoder:
    found = msgspec.convert(limits, SchemaLimits)
    return Decoder(parse_address(url), clock or ManualClock(), found)


def reason(decoder: Decoder, data: bytes) -> str:
    found = decoder.decode(data)
    assert isinstance(found, Undecoded)
    return found.reason


@pytest.mark.parametrize(
    ("data", "frame"),
    [
        (None, None),
        (b"", None),
        (b"\0\0\0\1", None),
        (b'{"a": 1}', None),
        (b"\1\0\0\0\1x", None),
        ((42).to_bytes(8, "big"), None),  # a number, as serializers of numbers write it
        (b"\0\xff\xff\xff\xffx", None),
        (b"\0\0\0\0\1", Frame(1, b"")),
        (b"\0\0\1\0\2xy", Frame(65_538, b"xy")),
    ],
)
def test_a_frame_is_a_zero_byte_and_an_id(data: bytes | None, frame: Frame | None) -> None:
    assert parse_frame(data) == frame


def test_a_schema_is_asked_for_once(registry: SchemaRegistry) -> None:
    schema_id = registry.register("users-value", USER)
    decoder = decoder_of(registry.url)
    for number in range(3):
        found = decoder.decode(framed(schema_id, bytes([2 * number])))
        assert found == Decoded(value={"id": number}, schema_id=schema_id, type="AVRO", name="shop.User")
    assert decoder.decode(b"plain") is None
    assert registry.requests == [f"/schemas/ids/{schema_id}"]


def test_threads_that_need_the_same_schema_ask_once(registry: SchemaRegistry) -> None:
    schema_id = registry.register("users-value", USER)
    decoder = decoder_of(registry.url)
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(decoder.decode, [framed(schema_id, b"\2")] * 50))
    assert {type(each) for each in found} == {Decoded}
    assert len(registry.requests) == 1


def test_references_are_followed_once_each(registry: SchemaRegistry) -> None:
    registry.register("a/user", USER)
    registry.register("order", ORDER, references=[("shop.User", "a/user")])
    both = {
        "type": "record",
        "name": "Both",
        "fields": [{"name": "o", "type": "shop.Order"}, {"name": "u", "type": "shop.User"}],
    }
    schema_id = registry.register("both-value", both, references=[("shop.Order", "order"), ("shop.User", "a/user")])
    found = decoder_of(registry.url).decode(framed(schema_id, b"\2\4"))
    assert isinstance(found, Decoded) and found.value == {"o": {"user": {"id": 1}}, "u": {"id": 2}}
    assert registry.requests[1:] == ["/subjects/order/versions/1", "/subjects/a%2Fuser/versions/1"]
    assert "more than 1 references" in reason(decoder_of(registry.url, references_max=1), framed(schema_id, b""))


def test_a_json_schema_has_json_after_the_frame(registry: SchemaRegistry) -> None:
    schema_id = registry.register("j-value", {"title": "Order", "type": "object"}, "JSON")
    decoder = decoder_of(registry.url)
    found = decoder.decode(framed(schema_id, b'{"price": 1e999, "half": "\\ud800"}'))
    assert found == Decoded(value={"price": "Infinity", "half": "?"}, schema_id=schema_id, type="JSON", name="Order")
    for payload in (b"", b"{", b"\xff", b"[" * 100_000, b"9" * 5_000):
        assert "the payload is no JSON" in reason(decoder, framed(schema_id, payload))
    assert "nested more than 100 times" in reason(decoder, framed(schema_id, b"[" * 150 + b"]" * 150))


@pytest.mark.parametrize("by_version_only", [False, True])
def test_protobuf_comes_as_descriptors(registry: SchemaRegistry, by_version_only: bool) -> None:
    registry.serializes_by_version_only = by_version_only
    base = FileDescriptorProto(name="x", package="base", syntax="proto3")
    base.message_type.add(name="Money").field.add(name="cents", number=1, type=FieldDescriptorProto.TYPE_INT64)
    root = FileDescriptorProto(name="x", syntax="proto3", dependency=["money.proto"])
    root.message_type.add(name="Order").field.add(
        name="price", number=1, type=FieldDescriptorProto.TYPE_MESSAGE, type_name=".base.Money"
    )
    registry.register("money", b64encode(base.SerializeToString()).decode(), "PROTOBUF")
    text = b64encode(root.SerializeToString()).decode()
    schema_id = registry.register("order-value", text, "PROTOBUF", references=[("money.proto", "money")])
    found = decoder_of(registry.url).decode(framed(schema_id, b"\0\x0a\x02\x08\x0c"))
    assert found == Decoded(value={"price": {"cents": 12}}, schema_id=schema_id, type="PROTOBUF", name="Order")


def test_an_unknown_id_is_asked_for_again_after_a_while(registry: SchemaRegistry) -> None:
    clock = ManualClock()
    decoder = decoder_of(registry.url, clock, failure_s=30.0)
    data = framed(100_001, b"\2")
    for _ in range(3):
        found = decoder.decode(data)
        assert isinstance(found, Undecoded) and found.is_unknown
        assert found.reason == "the registry has no schema of this id"
    assert len(registry.requests) == 1
    assert registry.register("users-value", USER) == 100_001
    clock.now_s += 30
    assert isinstance(decoder.decode(data), Decoded)


def test_a_registry_that_does_not_answer_is_left_alone_for_a_while(registry: SchemaRegistry) -> None:
    schema_id = registry.register("users-value", USER)
    clock, port = ManualClock(), free_port()
    decoder = decoder_of(f"http://127.0.0.1:{port}", clock, outage_s=10.0)
    first = reason(decoder, framed(1, b""))
    assert first == f"http://127.0.0.1:{port} does not answer: Connection refused"
    assert reason(decoder, framed(2, b"")) == first

    registry.login = "alice:secret"
    decoder = decoder_of(registry.url, clock, outage_s=10.0)
    assert reason(decoder, framed(schema_id, b"\2")) == f"{registry.url} refuses the login: HTTP 401"
    registry.login = ""
    assert "refuses the login" in reason(decoder, framed(schema_id, b"\2"))
    assert len(registry.requests) == 1
    clock.now_s += 10
    assert isinstance(decoder.decode(framed(schema_id, b"\2")), Decoded)


def test_a_name_of_a_host_that_cannot_be_is_the_reason() -> None:
    assert "http://registry..example:80 does not answer" in reason(
        decoder_of("http://registry..example"), framed(1, b"")
    )


def test_a_registry_that_accepts_and_keeps_silent_is_left_after_the_time_out() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        assert reason(decoder_of(url, timeout_s=0.1), framed(1, b"")) == f"{url} does not answer: timed out"


def test_a_login_comes_from_the_address_or_a_file(registry: SchemaRegistry, tmp_path: Path) -> None:
    registry.login = "al ice:se:cret@"
    data = framed(registry.register("users-value", USER), b"\2")
    place = registry.url.removeprefix("http://")
    assert isinstance(decoder_of(f"http://al%20ice:se%3Acret%40@{place}/").decode(data), Decoded)
    (tmp_path / "password").write_text("se:cret@\n")
    address = parse_address(f"http://al%20ice@{place}", password_file=str(tmp_path / "password"))
    assert isinstance(Decoder(address).decode(data), Decoded)
    assert "cret" not in f"{address} {address!r}"


def test_the_certificate_of_a_registry_is_checked(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pair = authority.issue("registry")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.certificate, pair.key)
    with serving(context) as registry:
        data = framed(registry.register("users-value", USER), b"\2")
        assert "certificate verify failed" in reason(Decoder(parse_address(registry.url)), data)
        address = parse_address(registry.url, ca_file=str(authority.certificate))
        assert isinstance(Decoder(address).decode(data), Decoded)


def test_only_the_address_of_the_registry_is_asked(registry: SchemaRegistry) -> None:
    with serving() as other:
        registry.location = f"{other.url}/schemas/ids/1"
        registry.answers["/schemas/ids/1"] = (302, {})
        assert reason(decoder_of(registry.url), framed(1, b"")) == f"{registry.url} answers HTTP 302"
        assert other.requests == []


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ((404, {"error_code": 404, "message": "HTTP 404 Not Found"}), "answers HTTP 404: HTTP 404 Not Found"),
        ((404, b"<html>"), "answers HTTP 404"),
        ((404, b'{"error_code": 1e999}'), "answers HTTP 404"),
        ((500, {"error_code": 50001, "message": "Error in the backend"}), "answers HTTP 500: Error in the backend"),
        ((200, b"<html>"), "is not that of a schema registry"),
        ((200, {"id": 1}), "is not that of a schema registry"),
        ((200, b" " * 1_000_001), "has more than 1000000 bytes"),
        ((200, {"schema": "{}", "schemaType": "XML"}), "schemas of the type 'XML' are not known here"),
        ((200, {"schema": "nothing"}), "its Avro schema cannot be read"),
    ],
)
def test_an_answer_of_no_use_is_the_reason(registry: SchemaRegistry, answer: tuple[int, object], expected: str) -> None:
    registry.answers["/schemas/ids/1"] = answer
    decoder = decoder_of(registry.url)
    assert expected in reason(decoder, framed(1, b""))
    assert expected in reason(decoder, framed(1, b""))
    assert len(registry.requests) == 1
    assert isinstance(decoder.decode(framed(registry.register("u", USER), b"\2")), Decoded)


def test_a_decoder_keeps_the_schemas_that_were_used_last(registry: SchemaRegistry) -> None:
    first, second, third = (framed(registry.register(f"s{number}", USER), b"\2") for number in range(3))
    decoder = decoder_of(registry.url, schemas_max=2, failures_max=1)
    for data in (first, second, first, third, first, third):
        decoder.decode(data)
    assert len(registry.requests) == 3
    decoder.decode(second)
    assert len(registry.requests) == 4
    for number in (8, 9, 9, 8):
        decoder.decode(framed(number, b""))
    assert len(registry.requests) == 7


def test_a_payload_that_does_not_fit_is_the_reason_of_its_record_alone(registry: SchemaRegistry) -> None:
    schema_id = registry.register("users-value", USER)
    decoder = decoder_of(registry.url, payload_bytes_max=100)
    assert "the payload does not fit its Avro schema" in reason(decoder, framed(schema_id, b""))
    assert "101 bytes are too many" in reason(decoder, framed(schema_id, b"\2" * 101))
    assert isinstance(decoder.decode(framed(schema_id, b"\2")), Decoded)


def test_a_missing_library_is_named_with_the_extra(registry: SchemaRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    schema_id = registry.register("users-value", USER)
    monkeypatch.delitem(sys.modules, "penstock.schemas.avro", raising=False)
    monkeypatch.setitem(sys.modules, "fastavro", None)
    found = reason(decoder_of(registry.url), framed(schema_id, b"\2"))
    assert found == "the package fastavro is missing here: pip install 'penstock[schemas]'"


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("registry:8081", "http://HOST:PORT"),
        ("ftp://registry", "http://HOST:PORT"),
        ("http://", "http://HOST:PORT"),
        ("http://host:x", "is no URL"),
        ("http://host?a=b", "http://HOST:PORT"),
        ("http://:secret@host", "a password, but no user"),
    ],
)
def test_anything_else_is_no_address(url: str, message: str) -> None:
    with pytest.raises(Invalid, match=message) as raised:
        parse_address(url)
    assert "secret" not in str(raised.value)


def test_an_address_has_the_port_of_its_scheme_and_a_path() -> None:
    assert str(parse_address("https://a:b@Registry.example/apis/ccompat/v7/")) == (
        "https://registry.example:443/apis/ccompat/v7"
    )
    assert str(parse_address("http://[::1]:81")) == "http://[::1]:81"
    assert without_password("https://a:b@host:1/x") == "https://a@host:1/x"
    assert without_password("https://host:1/x") == "https://host:1/x"


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    missing = str(tmp_path / "missing")
    with pytest.raises(Invalid, match=f"cannot read the password of the schema registry in {missing}: No such file"):
        parse_address("http://a@host", password_file=missing)
    (tmp_path / "bytes").write_bytes(b"\xff\xfe secret")
    with pytest.raises(Invalid, match=r"it is not text in UTF-8$"):
        parse_address("http://a@host", password_file=str(tmp_path / "bytes"))
    with pytest.raises(Invalid, match=f"cannot read the certificates in {missing}"):
        Decoder(parse_address("https://host", ca_file=missing))

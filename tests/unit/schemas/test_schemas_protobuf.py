"""Protobuf payloads are read by the descriptors of the registry, with the path to their message."""

from base64 import b64encode

import pytest
from google.protobuf import timestamp_pb2
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from hypothesis import given, strategies as st

from penstock.contracts.errors import Invalid
from penstock.schemas.frames import split_message_path
from penstock.schemas.protobuf import ProtobufReader

INT64, STRING, MESSAGE = (
    FieldDescriptorProto.TYPE_INT64,
    FieldDescriptorProto.TYPE_STRING,
    FieldDescriptorProto.TYPE_MESSAGE,
)
FIRST = b"\0"  # the path to the first message


def base64_of(file: FileDescriptorProto) -> str:
    return b64encode(file.SerializeToString()).decode()


def file_of(*imports: str, name: str = "default", package: str = "shop") -> FileDescriptorProto:
    return FileDescriptorProto(name=name, package=package, syntax="proto3", dependency=imports)


def add(
    message: DescriptorProto, name: str, number: int, kind: "FieldDescriptorProto.Type.ValueType", of: str = ""
) -> None:
    message.field.add(
        name=name, number=number, type=kind, type_name=of or None, label=FieldDescriptorProto.LABEL_OPTIONAL
    )  # fmt: skip


def orders() -> FileDescriptorProto:
    """Two messages; the second has a map, and two types inside."""
    file = file_of()
    add(file.message_type.add(name="Order"), "order_id", 1, INT64)
    user = file.message_type.add(name="User")
    entry = user.nested_type.add(name="TagsEntry")
    entry.options.map_entry = True
    add(entry, "key", 1, STRING)
    add(entry, "value", 2, STRING)
    add(user.nested_type.add(name="Address"), "city", 1, STRING)
    add(user.nested_type.add(name="Login"), "name", 1, STRING)
    return file


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        (b"\0\x08\x96\x01", ("shop.Order", {"order_id": 150})),
        (b"\x02\0\x08\x96\x01", ("shop.Order", {"order_id": 150})),  # the path [0] in full
        (b"\x02\x02", ("shop.User", {})),
        (b"\x04\x02\0\x0a\x02Rom", None),
        (b"\x04\x02\0\x0a\x04Rome", ("shop.User.Address", {"city": "Rome"})),
        (b"\x04\x02\x02\x0a\x03bob", ("shop.User.Login", {"name": "bob"})),
        (b"\x02\x04", None),
        (b"\x04\x02\x04\x0a\x03bob", ("shop.User.Login", {"name": "bob"})),  # maps are counted, too
        (b"\x04\x02\x06", None),
        (b"\0\xff", None),
        (b"", None),
        (b"\x80", None),
        (b"\x01", None),
        (b"\xfe\xff\xff\xff\x0f", None),
    ],
)
def test_a_payload_names_its_message(payload: bytes, expected: tuple[str, object] | None) -> None:
    found = ProtobufReader(base64_of(orders()), [])
    if expected is None:
        with pytest.raises(Invalid):
            found.read(payload)
    else:
        assert found.read(payload) == expected


def test_imports_are_resolved_by_their_names_or_are_well_known() -> None:
    base = file_of(name="ignored", package="base")
    add(base.message_type.add(name="Money"), "cents", 1, INT64)
    root = file_of("base/money.proto", "google/protobuf/timestamp.proto", "confluent/meta.proto")
    order = root.message_type.add(name="Order")
    add(order, "price", 1, MESSAGE, ".base.Money")
    add(order, "at", 2, MESSAGE, ".google.protobuf.Timestamp")
    at = timestamp_pb2.Timestamp(seconds=1_700_000_000).SerializeToString()
    payload = FIRST + b"\x0a\x02\x08\x0c" + b"\x12" + bytes([len(at)]) + at
    found = ProtobufReader(base64_of(root), [("base/money.proto", base64_of(base))]).read(payload)
    assert found == ("shop.Order", {"price": {"cents": 12}, "at": "2023-11-14T22:13:20Z"})
    with pytest.raises(Invalid, match="cannot be read"):
        ProtobufReader(base64_of(root), [])


def test_a_registry_that_answers_with_text_is_named() -> None:
    with pytest.raises(Invalid, match="does not serialize Protobuf schemas"):
        ProtobufReader('syntax = "proto3"; message Order {}', [])


def test_a_message_inside_messages_without_end_is_invalid() -> None:
    file = file_of()
    add(file.message_type.add(name="Chain"), "next", 1, MESSAGE, ".shop.Chain")
    payload = b""
    for _ in range(300):
        size = len(payload)
        payload = b"\x0a" + (bytes([size]) if size < 128 else bytes([size & 127 | 128, size >> 7])) + payload
    with pytest.raises(Invalid, match="does not fit"):
        ProtobufReader(base64_of(file), []).read(FIRST + payload)


@given(st.binary(max_size=60))
def test_any_payload_has_a_path_or_is_invalid(payload: bytes) -> None:
    try:
        path, rest = split_message_path(payload)
    except Invalid:
        return
    assert path and min(path) >= 0 and payload.endswith(rest)


@given(st.binary(max_size=60))
def test_any_message_is_read_or_invalid(payload: bytes) -> None:
    try:
        name, _ = ProtobufReader(base64_of(orders()), []).read(payload)
    except Invalid:
        return
    assert name.startswith("shop.")

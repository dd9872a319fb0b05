"""The contract of every encoding (lower limit, upper limit, one byte short) and of the parts of messages."""

from typing import Annotated, Any

import msgspec
import pytest
from hypothesis import given, strategies as st

from penstock.kafkawire import primitives, schema
from penstock.kafkawire.decoder import make_decoder
from penstock.kafkawire.encoder import make_encoder
from penstock.kafkawire.errors import DecodeError, EncodeError, TooManyElements


class BoolField(msgspec.Struct, frozen=True):
    value: schema.Bool = False


class Int8Field(msgspec.Struct, frozen=True):
    value: schema.Int8 = 0


class Int16Field(msgspec.Struct, frozen=True):
    value: schema.Int16 = 0


class Int32Field(msgspec.Struct, frozen=True):
    value: schema.Int32 = 0


class Int64Field(msgspec.Struct, frozen=True):
    value: schema.Int64 = 0


class Uint16Field(msgspec.Struct, frozen=True):
    value: schema.Uint16 = 0


class Float64Field(msgspec.Struct, frozen=True):
    value: schema.Float64 = 0.0


class UuidField(msgspec.Struct, frozen=True):
    value: schema.Uuid = schema.NO_UUID


class StringField(msgspec.Struct, frozen=True):
    value: schema.String = ""


class NullableStringField(msgspec.Struct, frozen=True):
    value: schema.String | None = None


class BytesField(msgspec.Struct, frozen=True):
    value: schema.Bytes = b""


class NullableBytesField(msgspec.Struct, frozen=True):
    value: schema.Bytes | None = None


class RecordsField(msgspec.Struct, frozen=True):
    value: schema.Records = None


class NumbersField(msgspec.Struct, frozen=True):
    value: list[schema.Int32] = []


class NullableNumbersField(msgspec.Struct, frozen=True):
    value: list[schema.Int32] | None = []


class UuidsField(msgspec.Struct, frozen=True):
    value: list[schema.Uuid] = []


class TextsField(msgspec.Struct, frozen=True):
    value: list[schema.String] = []


class NullableTextsField(msgspec.Struct, frozen=True):
    value: list[schema.String] | None = []


class StructField(msgspec.Struct, frozen=True):
    value: Int16Field = Int16Field()
    behind: schema.Int8 = 0


class StructsField(msgspec.Struct, frozen=True):
    value: list[Int8Field] = []


class NullableStructField(msgspec.Struct, frozen=True):
    value: Int16Field | None = None
    behind: schema.Int8 = 0


class TaggedFields(msgspec.Struct, frozen=True):
    plain: schema.Int8 = 0
    number: Annotated[schema.Int32, schema.tagged(0)] = -1
    texts: Annotated[list[schema.String], schema.tagged(3)] = []
    nested: Annotated[StringField, schema.tagged(200)] = StringField()


class Versioned(msgspec.Struct, frozen=True):
    early: Annotated[schema.Int8, schema.versions(0, 1)] = 7
    late: Annotated[schema.Int8, schema.since(2)] = 8
    name: Annotated[schema.String | None, schema.nullable(2)] = ""


ELEMENTS_MAX = 1000


def encode(message: Any, flexible: bool = False, version: int = 0) -> bytes:
    return b"".join(make_encoder(type(message), version, flexible)(message))


def decode(kind: Any, data: bytes, flexible: bool = False, version: int = 0) -> Any:
    return make_decoder(kind, version, flexible, ELEMENTS_MAX)(memoryview(data), 0)


PLAIN = [
    (BoolField(False), "00"),
    (BoolField(True), "01"),
    (Int8Field(-128), "80"),
    (Int8Field(127), "7f"),
    (Int16Field(-(2**15)), "8000"),
    (Int16Field(2**15 - 1), "7fff"),
    (Int32Field(-(2**31)), "80000000"),
    (Int32Field(2**31 - 1), "7fffffff"),
    (Int64Field(-(2**63)), "8000000000000000"),
    (Int64Field(2**63 - 1), "7fffffffffffffff"),
    (Uint16Field(0), "0000"),
    (Uint16Field(2**16 - 1), "ffff"),
    (Float64Field(-1.5), "bff8000000000000"),
    (UuidField(bytes(16)), "00" * 16),
    (UuidField(b"\xff" * 16), "ff" * 16),
    (StringField(""), "0000"),
    (StringField("ä"), "0002c3a4"),
    (StringField("x" * 32767), "7fff" + "78" * 32767),
    (NullableStringField(None), "ffff"),
    (NullableStringField(""), "0000"),
    (BytesField(b""), "00000000"),
    (BytesField(b"ab"), "000000026162"),
    (NullableBytesField(None), "ffffffff"),
    (RecordsField(None), "ffffffff"),
    (RecordsField(b""), "00000000"),
    (RecordsField(b"ab"), "000000026162"),
    (NumbersField([]), "00000000"),
    (NumbersField([1, -1]), "0000000200000001ffffffff"),
    (NumbersField([5] * 8), "00000008" + "00000005" * 8),
    (NumbersField([5] * 9), "00000009" + "00000005" * 9),
    (NullableNumbersField(None), "ffffffff"),
    (UuidsField([b"\x01" * 16]), "00000001" + "01" * 16),
    (TextsField(["a", ""]), "0000000200016100 00"),
    (NullableTextsField(None), "ffffffff"),
    (StructField(Int16Field(5), 6), "000506"),
    (NullableStructField(None, 6), "ff06"),
    (NullableStructField(Int16Field(5), 6), "01000506"),
]
COMPACT = [
    (Int16Field(5), "0005 00"),
    (StringField(""), "01 00"),
    (StringField("a"), "0261 00"),
    (StringField("x" * 126), "7f" + "78" * 126 + "00"),
    (StringField("x" * 127), "8001" + "78" * 127 + "00"),
    (StringField("x" * 16382), "ff7f" + "78" * 16382 + "00"),
    (StringField("x" * 16383), "808001" + "78" * 16383 + "00"),
    (NullableStringField(None), "00 00"),
    (BytesField(b"ab"), "036162 00"),
    (NullableBytesField(None), "00 00"),
    (RecordsField(None), "00 00"),
    (RecordsField(b""), "01 00"),
    (RecordsField(b"x" * 126), "7f" + "78" * 126 + "00"),
    (RecordsField(b"x" * 127), "8001" + "78" * 127 + "00"),
    (RecordsField(b"x" * 16382), "ff7f" + "78" * 16382 + "00"),
    (RecordsField(b"x" * 16383), "808001" + "78" * 16383 + "00"),
    (NumbersField([]), "01 00"),
    (NumbersField([1]), "0200000001 00"),
    (NumbersField([5] * 126), "7f" + "00000005" * 126 + "00"),
    (NumbersField([5] * 127), "8001" + "00000005" * 127 + "00"),
    (NullableNumbersField(None), "00 00"),
    (TextsField([""] * 127), "8001" + "01" * 127 + "00"),
    (NullableTextsField(None), "00 00"),
    (StructField(Int16Field(5), 6), "000500 06 00"),
    (NullableStructField(None, 6), "ff 06 00"),
    (NullableStructField(Int16Field(5), 6), "01 000500 06 00"),
    (TaggedFields(1), "01 00"),
    (TaggedFields(1, 2), "01 01 00 04 00000002"),
    (TaggedFields(1, 2, ["a"]), "01 02 00 04 00000002 03 03 020261"),
    (TaggedFields(1, nested=StringField("a")), "01 01 c801 03 026100"),
]
CONTRACT = [(message, data, False) for message, data in PLAIN] + [(message, data, True) for message, data in COMPACT]


@pytest.mark.parametrize(("message", "data", "flexible"), CONTRACT)
def test_a_value_has_these_bytes_and_no_others(message: Any, data: str, flexible: bool) -> None:
    assert encode(message, flexible) == bytes.fromhex(data)
    assert decode(type(message), bytes.fromhex(data), flexible) == message


@pytest.mark.parametrize(("message", "data", "flexible"), CONTRACT)
def test_one_byte_short_is_rejected(message: Any, data: str, flexible: bool) -> None:
    with pytest.raises(DecodeError):
        decode(type(message), bytes.fromhex(data)[:-1], flexible)


@pytest.mark.parametrize(
    "message",
    [
        Int8Field(128),
        Int8Field(-129),
        Int16Field(2**15),
        Int32Field(-(2**31) - 1),
        Int64Field(2**63),
        Uint16Field(-1),
        StringField("x" * 32768),
        StringField("\ud800"),
        StringField(None),  # type: ignore[arg-type]
        BytesField(None),  # type: ignore[arg-type]
        NumbersField(None),  # type: ignore[arg-type]
        NumbersField([2**31]),
        TextsField(None),  # type: ignore[arg-type]
        StructField(None),  # type: ignore[arg-type]
    ],
)
def test_a_value_without_an_encoding_is_an_encode_error(message: Any) -> None:
    with pytest.raises(EncodeError):
        encode(message)


@pytest.mark.parametrize(
    ("kind", "plain", "compact"),
    [
        (StringField, "ffff", "0000"),
        (BytesField, "ffffffff", "0000"),
        (NumbersField, "ffffffff", "0000"),
        (TextsField, "ffffffff", "0000"),
    ],
)
def test_null_is_rejected_where_kafka_does_not_allow_it(kind: Any, plain: str, compact: str) -> None:
    for data, flexible in ((plain, False), (compact, True)):
        with pytest.raises(DecodeError, match="null"):
            decode(kind, bytes.fromhex(data), flexible)


@pytest.mark.parametrize("data", ["0001ff", "0002c328", "0003eda080"])
def test_text_that_is_not_utf8_is_rejected(data: str) -> None:
    with pytest.raises(DecodeError):
        decode(StringField, bytes.fromhex(data))


@pytest.mark.parametrize(
    ("kind", "data", "flexible"),
    [
        (NumbersField, "7fffffff" + "00" * 20, False),
        (TextsField, "00000003" + "00" * 5, False),
        (NumbersField, "ffffffff0f" + "00" * 20, True),
        (TextsField, "ffffffff7f" + "00" * 20, True),
        (UuidsField, "03" + "00" * 31, True),
    ],
)
def test_a_count_beyond_the_remaining_bytes_is_rejected_before_any_element(
    kind: Any, data: str, flexible: bool
) -> None:
    with pytest.raises(DecodeError, match="elements in"):
        decode(kind, bytes.fromhex(data), flexible)


def test_the_number_of_elements_in_a_message_is_bounded() -> None:
    def texts(count: int) -> bytes:
        return primitives.uvarint(count + 1) + b"\x01" * count + b"\0"

    assert len(decode(TextsField, texts(ELEMENTS_MAX), flexible=True).value) == ELEMENTS_MAX
    with pytest.raises(TooManyElements):
        decode(TextsField, texts(ELEMENTS_MAX + 1), flexible=True)


def test_the_number_of_tagged_fields_in_a_message_is_bounded() -> None:
    def sections(*counts: int) -> bytes:
        tags = [b"\x07" + primitives.uvarint(count) + b"\x63\x00" * count for count in counts]
        return primitives.uvarint(len(counts) + 1) + b"".join(tags) + b"\0"

    most = primitives.TAGGED_FIELDS_MAX
    assert len(decode(StructsField, sections(most - 9, 9), flexible=True).value) == 2
    with pytest.raises(DecodeError, match="tagged fields"):
        decode(StructsField, sections(most - 9, 10), flexible=True)
    known = b"\x00" + primitives.uvarint(most + 1) + b"\x63\x00" * (most + 1)
    with pytest.raises(DecodeError, match="tagged fields"):
        decode(TaggedFields, known, flexible=True)


def test_a_string_has_at_most_32767_bytes_also_in_flexible_versions() -> None:
    assert len(decode(StringField, primitives.uvarint(32_768) + b"a" * 32_767 + b"\0", flexible=True).value) == 32_767
    with pytest.raises(DecodeError, match="32768 bytes"):
        decode(StringField, primitives.uvarint(32_769) + b"a" * 32_768 + b"\0", flexible=True)


def test_a_length_far_beyond_the_end_is_rejected() -> None:
    for kind in (BytesField, RecordsField):
        with pytest.raises(DecodeError):
            decode(kind, bytes.fromhex("7fffffff61"))
        with pytest.raises(DecodeError):
            decode(kind, bytes.fromhex("ffffffff0f61"), flexible=True)


def test_a_field_is_written_and_read_only_in_its_versions() -> None:
    message = Versioned(1, 2, "a")
    assert encode(message, version=1) == bytes.fromhex("01 0001 61")
    assert encode(message, version=2) == bytes.fromhex("02 0001 61")
    assert decode(Versioned, bytes.fromhex("01 0001 61"), version=1) == Versioned(1, 8, "a")
    assert decode(Versioned, bytes.fromhex("02 ffff"), version=2) == Versioned(7, 2, None)
    with pytest.raises(DecodeError):
        decode(Versioned, bytes.fromhex("02 ffff"), version=1)


def test_unknown_tags_between_known_ones_are_skipped() -> None:
    data = "01 03 00 04 00000002 01 03 616263 03 03 020261"
    assert decode(TaggedFields, bytes.fromhex(data), flexible=True) == TaggedFields(1, 2, ["a"])


def test_a_known_tag_may_be_longer_than_its_field_but_not_shorter() -> None:
    longer = bytes.fromhex("01 01 00 06 00000002 6162")
    assert decode(TaggedFields, longer, flexible=True) == TaggedFields(1, 2)
    with pytest.raises(DecodeError):
        decode(TaggedFields, bytes.fromhex("01 01 00 03 00000002"), flexible=True)


def test_a_section_with_fewer_tags_than_announced_is_rejected() -> None:
    for data in ("01 05 63 00", "01 ffffffff0f 63 00", "01 01 63 ffffffff0f"):
        with pytest.raises(DecodeError):
            decode(TaggedFields, bytes.fromhex(data), flexible=True)
        with pytest.raises(DecodeError):
            decode(Int8Field, bytes.fromhex(data), flexible=True)


def test_record_bytes_are_views_when_decoded_and_the_same_objects_when_encoded() -> None:
    data = bytearray(bytes.fromhex("000000026162"))
    view = decode(RecordsField, data).value
    data[4:6] = b"xy"
    assert view == b"xy"
    fragments: list[primitives.Buffer] = [b"one", memoryview(b"two"), bytearray(b"three")]
    head, *records = make_encoder(RecordsField, 0, False)(RecordsField(fragments))
    assert head == (11).to_bytes(4, "big")
    assert all(ours is theirs for ours, theirs in zip(records, fragments, strict=True))


def test_several_empty_buffers_of_records_are_empty_records() -> None:
    assert encode(RecordsField([])) == bytes(4)
    assert encode(RecordsField([b"", b""])) == bytes(4)


@given(st.integers(0, 2**32 - 1))
def test_an_unsigned_number_is_read_as_it_was_written(value: int) -> None:
    data = primitives.uvarint(value)
    assert primitives.read_uvarint(data, 0) == (value, len(data))
    with pytest.raises(IndexError):
        primitives.read_uvarint(data[:-1], 0)


@given(st.integers(-(2**63), 2**63 - 1))
def test_a_signed_number_is_read_as_it_was_written(value: int) -> None:
    data = primitives.varlong(value)
    assert len(data) <= primitives.VARLONG_BYTES_MAX
    assert primitives.read_varlong(data, 0) == (value, len(data))


@pytest.mark.parametrize(
    ("value", "data"),
    [(0, "00"), (-1, "01"), (1, "02"), (63, "7e"), (-64, "7f"), (64, "8001"), (-(2**63), "ff" * 9 + "01")],
)
def test_signed_numbers_are_zigzag(value: int, data: str) -> None:
    assert primitives.varlong(value) == bytes.fromhex(data)


def test_a_number_of_too_many_bytes_is_rejected() -> None:
    with pytest.raises(DecodeError):
        primitives.read_uvarint(b"\x80" * 5 + b"\x01", 0)
    with pytest.raises(DecodeError):
        primitives.read_varlong(b"\x80" * 10 + b"\x01", 0)


def test_a_field_without_a_default_or_an_encoding_is_an_error_of_the_schema() -> None:
    class NoDefault(msgspec.Struct):
        value: schema.Int8

    class NoEncoding(msgspec.Struct):
        value: int = 0

    class NoBytes(msgspec.Struct):
        value: list[NoFields] = []

    for kind in (NoDefault, NoEncoding, NoBytes):
        with pytest.raises(AssertionError):
            make_decoder(kind, 0, False, ELEMENTS_MAX)


class NoFields(msgspec.Struct):
    pass

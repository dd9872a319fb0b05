"""Every message in every served version: golden bytes, round trips, truncation, noise, and agreement with kio."""

import contextlib
import dataclasses
import datetime
import importlib
import pathlib
import random
import re
import uuid
from functools import cache
from io import BytesIO
from typing import Any

import kio
import msgspec
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from kio.serial import entity_reader, entity_writer

from penstock.kafkawire.api.streams_group_heartbeat import StreamsGroupHeartbeatResponse
from penstock.kafkawire.errors import DecodeError
from tests.unit.kafkawire.kafkawire_samples import CASES, SAMPLES, Case, messages, sample

GOLDEN = pathlib.Path(__file__).with_name("golden_messages.txt")
UNKNOWN_TAG = bytes.fromhex("01 63 02 abcd")  # one tagged field: number 99, two bytes

every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.label)
every_flexible_case = pytest.mark.parametrize("case", [c for c in CASES if c.flexible], ids=lambda case: case.label)
every_sample = pytest.mark.parametrize("name", SAMPLES)


@cache
def golden() -> dict[str, bytes]:
    lines = (line.split(" ") for line in GOLDEN.read_text().splitlines() if not line.startswith("#"))
    return {f"{message} {version} {name}": bytes.fromhex("".join(rest)) for message, version, name, *rest in lines}


@every_sample
@every_case
def test_the_bytes_are_those_of_the_java_client(case: Case, name: str) -> None:
    data, message = golden()[f"{case.label} {name}"], sample(case, name)
    assert case.encode(message) == data
    assert case.decode(data) == message


@every_case
def test_a_message_reads_back_as_it_was(case: Case) -> None:
    @settings(max_examples=12, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(messages(case))
    def check(message: Any) -> None:
        assert case.decode(case.encode(message)) == message

    check()


@every_case
def test_a_message_cut_short_at_any_byte_is_rejected(case: Case) -> None:
    for name in SAMPLES:
        data = golden()[f"{case.label} {name}"]
        for length in range(len(data)):
            with pytest.raises(DecodeError):
                case.decode(data[:length])


@every_case
def test_noise_is_decoded_or_rejected(case: Case) -> None:
    chance = random.Random(case.label)
    data = golden()[f"{case.label} full"]
    for _ in range(150):
        noisy = bytearray(data)
        for _ in range(chance.randint(1, 4) if noisy else 0):
            noisy[chance.randrange(len(noisy))] = chance.choice((0, 1, 127, 128, 255, chance.randrange(256)))
        decode_or_reject(case, bytes(noisy))
        decode_or_reject(case, chance.randbytes(chance.randint(0, 60)))


def decode_or_reject(case: Case, data: bytes) -> None:
    """If the bytes can be decoded, the message can be encoded and decoded again."""
    with contextlib.suppress(DecodeError):
        message = case.decode(data)
        assert case.decode(case.encode(message)) == message


@every_case
def test_bytes_after_the_last_field_are_ignored(case: Case) -> None:
    # librdkafka sends three such bytes in every Metadata request for all topics, from version 9 on
    assert case.decode(golden()[f"{case.label} full"] + b"abc") == sample(case, "full")


@every_flexible_case
def test_unknown_tagged_fields_are_ignored(case: Case) -> None:
    data = golden()[f"{case.label} bare"]
    assert data[-1] == 0, "the bare sample does not end with an empty section of tagged fields"
    assert case.decode(data[:-1] + UNKNOWN_TAG) == sample(case, "bare")


@every_case
def test_a_message_of_defaults_reads_back(case: Case) -> None:
    assert case.decode(case.encode(case.message())) == case.message()


@pytest.mark.parametrize("kind", [memoryview, bytearray, bytes])
def test_any_kind_of_buffer_is_decoded(kind: Any) -> None:
    case = next(case for case in CASES if case.label == "ProduceRequest 9")
    assert case.decode(kind(golden()["ProduceRequest 9 full"])) == sample(case, "full")


def kio_module(case: Case) -> str:
    folder = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", case.api.name).lower()
    return f"kio.schema.{folder}.v{case.version}.{'request' if case.is_request else 'response'}"


def is_in_kio(case: Case) -> bool:
    """Whether kio has this version. It looks for the file: an import of all 500 takes seconds of each collection."""
    _, *parts = kio_module(case).split(".")
    return pathlib.Path(kio.__path__[0], *parts).with_suffix(".py").is_file()


def kio_type(case: Case) -> Any:
    return getattr(importlib.import_module(kio_module(case)), case.message.__name__)


# Kafka 4.4 has given the old name to another field, of version 1.
RENAMED = {(StreamsGroupHeartbeatResponse, "acceptable_recovery_lag"): "acceptable_recovery_lag_legacy"}
KIO_CASES = [case for case in CASES if is_in_kio(case)]


def test_kio_knows_all_versions_but_the_oldest_of_produce_and_the_newest_of_kafka() -> None:
    newest = (
        "ApiVersions 5",
        "TxnOffsetCommit 6",
        "DeleteGroups 3",
        "StreamsGroupHeartbeat 1",
        "StreamsGroupDescribe 1",
    )
    unknown = [each.split() for each in (*newest, *(f"Produce {version}" for version in range(3)))]
    expected = {f"{name}{kind} {version}" for name, version in unknown for kind in ("Request", "Response")}
    assert {case.label for case in CASES if case not in KIO_CASES} == expected


@every_sample
@pytest.mark.parametrize("case", KIO_CASES, ids=lambda case: case.label)
def test_kio_reads_the_same_values_and_writes_the_same_bytes(case: Case, name: str) -> None:
    message, entity = sample(case, name), kio_type(case)
    data = case.encode(message)
    theirs, _ = entity_reader(entity)(data, 0)
    assert_same(message, theirs)
    written = BytesIO()
    entity_writer(entity)(written, theirs)
    assert case.decode(written.getvalue()) == message


def assert_same(ours: Any, theirs: Any) -> None:
    if isinstance(ours, msgspec.Struct):
        for field in dataclasses.fields(theirs):
            name = field.name if hasattr(ours, field.name) else f"{field.name}_ms"  # a timedelta needs no unit
            name = RENAMED.get((type(ours), name), name)
            assert_same(getattr(ours, name), getattr(theirs, field.name))
    elif isinstance(ours, list):
        assert len(ours) == len(theirs)
        for our, their in zip(ours, theirs, strict=True):
            assert_same(our, their)
    else:
        assert ours == plain(theirs, ours)


def plain(value: Any, ours: Any) -> Any:
    if isinstance(value, datetime.timedelta):
        return value // datetime.timedelta(milliseconds=1)
    if isinstance(value, datetime.datetime):
        return (value - datetime.datetime.fromtimestamp(0, datetime.UTC)) // datetime.timedelta(milliseconds=1)
    if isinstance(value, uuid.UUID):
        return value.bytes
    if value is None and isinstance(ours, bytes):
        return bytes(16)
    return value


@given(st.binary(max_size=40), st.sampled_from(CASES))
@settings(max_examples=300, deadline=None)
def test_random_bytes_raise_nothing_but_decode_errors(data: bytes, case: Case) -> None:
    decode_or_reject(case, data)

"""`penstock topic produce`."""

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from penstock.cli.kafka.completers import with_topics
from penstock.cli.kafka.offsets import chosen_partitions, parse_partition
from penstock.cli.kafka.session import Session, add_verb, error_text
from penstock.cli.output import Done
from penstock.contracts.errors import Invalid, Unavailable

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


class NewRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A record to write; None as value is a tombstone."""

    value: bytes | None = None
    key: bytes | None = None
    headers: list[tuple[str, bytes]] = []
    partition: int | None = None


def add_to(verbs: "argparse._SubParsersAction[Any]") -> None:
    """Add the verb."""
    verb = add_verb(
        verbs,
        "produce",
        produce,
        help="write records to a topic",
        description="Write records to a topic: each line of the input is the value of one. Without --file and --value "
        "the input is read from stdin.",
    )
    with_topics(verb.add_argument("topic", metavar="TOPIC[/PARTITION]", help="the topic, or one of its partitions"))
    verb.add_argument("--value", metavar="TEXT", action="append", help="write this value; can be repeated")
    verb.add_argument("--file", metavar="FILE", default="", help="read the lines of this file")
    verb.add_argument("--json", action="store_true", help="lines are JSON objects, as `consume -o json` prints them")
    verb.add_argument("--keep-partition", action="store_true", help="with --json, also in the same partitions")
    verb.add_argument("-k", "--key", metavar="TEXT", default=None, help="key of all records")
    verb.add_argument("--key-separator", metavar="TEXT", default="", help="lines are a key, this text, and a value")
    verb.add_argument(
        "-H", "--header", metavar="NAME=VALUE", action="append", default=[], help="header of all; can be repeated"
    )
    verb.add_argument("--tombstone", action="store_true", help="write one record without a value; needs --key")
    verb.add_argument("--compression", choices=CODECS, default="none", help="codec of the batches (%(default)s)")


def produce(arguments: argparse.Namespace, session: Session) -> Done:
    """Write the records, and wait until all are acknowledged; stop at the first error."""
    topic, partition = parse_partition(arguments.topic)
    chosen_partitions(session, [arguments.topic])  # they exist
    sent = _Sent()
    producer = session.new_producer(
        acks="all", compression_type=None if arguments.compression == "none" else arguments.compression
    )
    for record in records_of(arguments):
        if sent.errors:
            break
        own_partition = record.partition if arguments.keep_partition else None
        chosen = partition if partition is not None else own_partition
        future = producer.send(topic, record.value, record.key, list(record.headers), chosen)
        future.add_both(sent.take)
    producer.flush()
    if sent.errors:
        raise Unavailable(f"{sent.count} records are written, then: {_reason(topic, sent.errors[0])}")
    where = f", the last one at {topic}/{sent.last[0]}@{sent.last[1]}" if sent.last else ""
    plural = "" if sent.count == 1 else "s"
    return Done(f"{sent.count:,} record{plural} written{where}", {"topic": topic, "records": sent.count})


def _reason(topic: str, error: BaseException) -> str:
    """An error of a record in words. The client only names the API that denied it."""
    text = error_text(error)
    return f"the login may not write to topic {topic!r}" if "AuthorizationFailed" in repr(error) else text


class _Sent:
    """Counts the acknowledged records."""

    def __init__(self) -> None:
        self.count = 0
        self.last: tuple[int, int] | None = None
        self.errors: list[BaseException] = []

    def take(self, outcome: Any) -> None:
        """The place of a record, or the error."""
        if isinstance(outcome, BaseException):
            self.errors.append(outcome)
        else:
            self.count += 1
            self.last = (outcome.partition, outcome.offset)


def records_of(arguments: argparse.Namespace) -> Iterator[NewRecord]:
    """The records that the flags and the input name; `Invalid` with the line of a mistake."""
    key = None if arguments.key is None else arguments.key.encode()
    headers = [_header(text) for text in arguments.header]
    if arguments.tombstone:
        if key is None:
            raise Invalid("a tombstone deletes the record of a key: give --key")
        yield NewRecord(key=key, headers=headers)
        return
    if arguments.value is not None:
        yield from (NewRecord(value=text.encode(), key=key, headers=headers) for text in arguments.value)
        return
    for number, line in enumerate(_lines(arguments.file), 1):
        if arguments.json:
            record = from_json(line, number)
        elif arguments.key_separator:
            own_key, separator, value = line.partition(arguments.key_separator.encode())
            if not separator:
                raise Invalid(f"line {number} has no {arguments.key_separator!r} after its key")
            record = NewRecord(value=value, key=own_key)
        else:
            record = NewRecord(value=line)
        yield msgspec.structs.replace(
            record, key=record.key if record.key is not None else key, headers=[*headers, *record.headers]
        )


def from_json(line: bytes, number: int) -> NewRecord:
    """The record in a line of `consume -o json`. A value that is no text is written as JSON."""
    try:
        found = json.loads(line)
        if not isinstance(found, dict) or not found.keys() & {"value", "value_hex", "key", "key_hex"}:
            raise ValueError("no object with key or value")
        headers = [(str(each["name"]), _bytes_of(each, "value") or b"") for each in found.get("headers") or []]
        return NewRecord(
            value=_bytes_of(found, "value"),
            key=_bytes_of(found, "key"),
            headers=headers,
            partition=found.get("partition"),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise Invalid(f"line {number} is no record in JSON: {error}") from error


def _bytes_of(found: dict[str, Any], name: str) -> bytes | None:
    if f"{name}_hex" in found:
        return bytes.fromhex(found[f"{name}_hex"])
    value = found.get(name)
    if value is None or isinstance(value, str):
        return None if value is None else value.encode()
    return json.dumps(value, ensure_ascii=False).encode()


def _header(text: str) -> tuple[str, bytes]:
    name, separator, value = text.partition("=")
    if not (name and separator):
        raise Invalid(f"a header is NAME=VALUE: {text!r}")
    return name, value.encode()


def _lines(path: str) -> Iterator[bytes]:
    try:
        source: BinaryIO = Path(path).expanduser().open("rb") if path else sys.stdin.buffer
    except OSError as error:
        raise Invalid(f"cannot read {path}: {error.strerror}") from error
    with source:
        for line in source:
            yield line.removesuffix(b"\n").removesuffix(b"\r")

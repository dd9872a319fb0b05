"""Records for people: a page of them from a position on, a live tail, and one record written."""

import asyncio
import contextlib
import json
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import msgspec

from penstock.cli.kafka.offsets import (
    EARLIEST,
    LATEST,
    Partition,
    chosen_partitions,
    offsets_at,
    parse_position,
    resolved,
)
from penstock.cli.kafka.session import Session
from penstock.cli.records.decoded import decoded
from penstock.cli.records.filters import Filter, parse_filter
from penstock.cli.records.shown import as_object
from penstock.contracts.errors import Invalid
from penstock.runtime.clock import Clock, SystemClock
from penstock.schemas.decoding import Decoder
from penstock_console.kafka.sessions import KafkaSessions, Login

Consumer = Any  # of kafka-python
_POLL_MS = 250
_SCHEMA_NAME_MAX = 200


class RecordLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How much one page reads and shows."""

    records_max: int = 200
    # Records that a filter looks at before the page ends.
    scanned_max: int = 20_000
    read_s_max: float = 5.0
    shown_characters_max: int = 4_000  # of a key, a value or a header
    shown_headers_max: int = 50  # of a record, which may have millions
    header_name_characters_max: int = 200
    value_bytes_max: int = 900_000  # of a record to write
    tail_seconds_max: float = 600.0
    tail_records_per_poll_max: int = 100


DEFAULT_LIMITS = RecordLimits()


class Header(msgspec.Struct, frozen=True):
    """A header of a record."""

    name: str
    value: str | None


class RecordSchema(msgspec.Struct, frozen=True):
    """The schema of a decoded key or value; the type is `AVRO`, `JSON` or `PROTOBUF`."""

    id: int
    type: str
    name: str


class Record(msgspec.Struct, frozen=True):
    """A record; bytes that are no UTF-8 are hexadecimal, and the formats are `text`, `json`, `hex` or `null`.

    A key or value that has the frame of a schema and cannot be decoded has an error.
    """

    partition: int
    offset: int
    time_ms: int
    key: str | None
    key_format: str
    value: str | None
    value_format: str
    value_bytes: int
    is_cut: bool  # the value is longer than shown
    headers: list[Header]
    key_schema: RecordSchema | None = None
    value_schema: RecordSchema | None = None
    key_error: str = ""
    value_error: str = ""
    headers_left: int = 0  # headers that are not shown


class RecordQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which records to read: `TOPIC` or `TOPIC/PARTITION`, a position as on the command line, a JMESPath filter."""

    topic: str
    partition: int | None = None
    start: str = "-50"
    filter: str = ""
    limit: int = 50


class RecordPage(msgspec.Struct, frozen=True):
    """Records in the order of their times, and how far the reading came."""

    records: list[Record]
    scanned: int
    is_complete: bool  # it reached the present end of each partition
    next_offsets: dict[int, int]  # by partition, where the next page starts


def read_page(
    session: Session,
    query: RecordQuery,
    limits: RecordLimits = DEFAULT_LIMITS,
    *,
    decoder: Decoder | None = None,
    clock: Clock | None = None,
) -> RecordPage:
    """One page of records; `Invalid` for a position, filter or partition that does not exist."""
    choose = _Choice(query.filter, decoder, limits)
    count_max = min(max(query.limit, 1), limits.records_max)
    starts, ends = _range(session, query, count_max)
    waiting = {each: start for each, start in starts.items() if start < ends[each]}
    found, scanned, positions = _collect(session, waiting, ends, choose, count_max, limits, clock or SystemClock())
    positions = {**starts, **positions}
    return RecordPage(
        sorted(found, key=lambda each: (each.time_ms, each.partition, each.offset)),
        scanned,
        all(positions[each] >= ends[each] for each in waiting),
        {partition: offset for (_, partition), offset in sorted(positions.items())},
    )


class _Choice:
    """Decodes records, and shows those that fit a filter."""

    def __init__(self, filter: str, decoder: Decoder | None, limits: RecordLimits) -> None:
        self._fits: Filter | None = parse_filter(filter) if filter else None
        self._decoder = decoder
        self._limits = limits

    def __call__(self, record: Any) -> Record | None:
        """The record as a page shows it, None if it does not fit. So no large value is kept."""
        found = decoded(record, self._decoder)
        return shown(found, self._limits) if self._fits is None or self._fits(found) else None


def _range(session: Session, query: RecordQuery, count_max: int) -> tuple[dict[Partition, int], dict[Partition, int]]:
    """The first offset and the end of each partition. A start of -N means the last N records of all partitions."""
    name = query.topic if query.partition is None else f"{query.topic}/{query.partition}"
    partitions = chosen_partitions(session, [name])
    ends = offsets_at(session, partitions, LATEST, is_committed=True)
    position = parse_position(query.start)
    if position.shift is not None and position.shift < 0:
        earliest = offsets_at(session, partitions, EARLIEST)
        share = -(position.shift // max(len(partitions), 1))
        return {each: max(ends[each] - share, earliest[each]) for each in partitions}, ends
    return resolved(session, position, dict.fromkeys(partitions)), ends


def _collect(
    session: Session,
    starts: Mapping[Partition, int],
    ends: Mapping[Partition, int],
    choose: _Choice,
    count_max: int,
    limits: RecordLimits,
    clock: Clock,
) -> tuple[list[Record], int, dict[Partition, int]]:
    found: list[Record] = []
    positions = dict(starts)
    scanned = 0
    if not starts:
        return found, scanned, positions
    deadline_s = clock.monotonic_s() + limits.read_s_max
    consumer = _consumer(session, starts)
    left = set(starts)
    is_cut = False  # records of the client are left
    while left and not is_cut and len(found) < count_max and scanned < limits.scanned_max:
        if clock.monotonic_s() >= deadline_s:
            break
        polled = consumer.poll(timeout_ms=_POLL_MS, max_records=count_max)
        # Records may wait for their schemas, so the time can also end between them.
        polled_deadline_s = clock.monotonic_s() + limits.read_s_max
        for partition, records in polled.items():
            place = (partition.topic, partition.partition)
            for record in records:
                if record.offset >= ends[place]:
                    break
                is_cut = is_cut or len(found) == count_max or clock.monotonic_s() >= polled_deadline_s
                if is_cut:
                    break
                scanned += 1
                positions[place] = record.offset + 1
                if (chosen := choose(record)) is not None:
                    found.append(chosen)
        for place in list(left):
            if not is_cut:
                # Offsets of markers have no record, so the position of the client counts.
                positions[place] = max(positions[place], _position(consumer, place))
            if positions[place] >= ends[place]:
                left.discard(place)
    return found, scanned, positions


def _consumer(session: Session, starts: Mapping[Partition, int]) -> Consumer:
    from kafka import TopicPartition

    consumer = session.new_consumer(
        enable_auto_commit=False, isolation_level="read_committed", auto_offset_reset="earliest"
    )
    consumer.assign([TopicPartition(*each) for each in starts])
    for each, offset in starts.items():
        consumer.seek(TopicPartition(*each), offset)
    return consumer


def _position(consumer: Consumer, place: Partition) -> int:
    from kafka import TopicPartition

    return int(consumer.position(TopicPartition(*place)))


async def tail(
    sessions: KafkaSessions,
    login: Login,
    query: RecordQuery,
    clock: Clock,
    *,
    limits: RecordLimits = DEFAULT_LIMITS,
    decoder: Decoder | None = None,
) -> AsyncIterator[list[Record]]:
    """New records as they come, perhaps none for a while; it ends after `tail_seconds_max`."""
    choose = _Choice(query.filter, decoder, limits)
    name = query.topic if query.partition is None else f"{query.topic}/{query.partition}"
    end_s = clock.monotonic_s() + limits.tail_seconds_max
    async with sessions.own_session(login) as session:

        def begin() -> Consumer:
            return _consumer(session, offsets_at(session, chosen_partitions(session, [name]), LATEST))

        consumer = await sessions.in_thread(begin)

        waiting: deque[Any] = deque()

        def poll() -> list[Record]:
            if not waiting:
                found = consumer.poll(timeout_ms=_POLL_MS * 4, max_records=limits.tail_records_per_poll_max)
                waiting.extend(each for records in found.values() for each in records)
            # Records that wait for their schemas must not keep the thread for long.
            deadline_s = clock.monotonic_s() + limits.read_s_max
            chosen = []
            while waiting and clock.monotonic_s() < deadline_s:
                chosen.append(choose(waiting.popleft()))
            return [each for each in chosen if each is not None]

        while clock.monotonic_s() < end_s:
            yield await asyncio.shield(asyncio.ensure_future(sessions.in_thread(poll)))


def shown(record: Any, limits: RecordLimits = DEFAULT_LIMITS) -> Record:
    """A record of the client as a page shows it."""
    headers_left = max(len(record.headers) - limits.shown_headers_max, 0)
    values = as_object(record, headers_max=limits.shown_headers_max)
    key, key_format, _ = _shown_field(values, "key", limits)
    value, value_format, is_cut = _shown_field(values, "value", limits)
    headers = [
        Header(each["name"][: limits.header_name_characters_max], _shown_field(each, "value", limits)[0])
        for each in values["headers"]
    ]
    size_bytes = 0 if record.value is None else len(record.value)
    place = (record.partition, record.offset, record.timestamp)
    return Record(
        *place,
        key,
        key_format,
        value,
        value_format,
        size_bytes,
        is_cut,
        headers,
        key_schema=_schema(values, "key"),
        value_schema=_schema(values, "value"),
        key_error=values.get("key_error", ""),
        value_error=values.get("value_error", ""),
        headers_left=headers_left,
    )


def _schema(values: Mapping[str, Any], name: str) -> RecordSchema | None:
    found = values.get(f"{name}_schema")
    return None if found is None else RecordSchema(found["id"], found["type"], found["name"][:_SCHEMA_NAME_MAX])


def _shown_field(values: Mapping[str, Any], name: str, limits: RecordLimits) -> tuple[str | None, str, bool]:
    """The text of a key or value, its format, and whether it was cut."""
    form = "hex" if f"{name}_hex" in values else "text"
    text = values.get(f"{name}_hex", values.get(name))
    if text is None:
        return None, "null", False
    if not isinstance(text, str):  # a value that a schema decodes
        text, form = _in_lines(text, limits.shown_characters_max), "json"
    elif form == "text" and text.lstrip().startswith(("{", "[")):
        with contextlib.suppress(ValueError, RecursionError):
            text, form = _in_lines(json.loads(text), limits.shown_characters_max), "json"
    return text[: limits.shown_characters_max], form, len(text) > limits.shown_characters_max


def _in_lines(value: Any, characters_max: int) -> str:
    """JSON in lines, up to a little more than so many characters: deep values would grow a thousandfold.

    `ValueError` for a value that has no form in UTF-8.
    """
    parts: list[str] = []
    left = characters_max
    for part in json.JSONEncoder(ensure_ascii=False, indent=2).iterencode(value):
        parts.append(part)
        left -= len(part)
        if left < 0:
            break
    found = "".join(parts)
    found.encode()
    return found


class NewRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A record to write; an empty key is none, and `is_tombstone` gives it no value."""

    topic: str
    partition: int | None = None
    key: str = ""
    value: str = ""
    is_tombstone: bool = False
    headers: Sequence[str] = ()  # each NAME=VALUE


class Written(msgspec.Struct, frozen=True):
    """The place of a written record."""

    topic: str
    partition: int
    offset: int


def write(session: Session, record: NewRecord, limits: RecordLimits = DEFAULT_LIMITS) -> Written:
    """Write one record and wait for its acknowledgement; `Invalid` if it is too large, or a header is malformed."""
    chosen_partitions(session, [record.topic if record.partition is None else f"{record.topic}/{record.partition}"])
    value = record.value.encode()
    if len(value) > limits.value_bytes_max:
        raise Invalid(f"a value of {len(value)} bytes is too long for the console: at most {limits.value_bytes_max}")
    headers = []
    for text in record.headers:
        name, separator, content = text.partition("=")
        if not (name and separator):
            raise Invalid(f"a header is NAME=VALUE: {text!r}")
        headers.append((name, content.encode()))
    sent = session.new_producer(acks="all").send(
        record.topic,
        key=record.key.encode() or None,
        value=None if record.is_tombstone else value,
        partition=record.partition,
        headers=headers,
    )
    found = sent.get(timeout=session.timeout_s)
    return Written(record.topic, found.partition, found.offset)

"""`penstock topic consume` and `tail`."""

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from penstock.cli.kafka.completers import with_topics
from penstock.cli.kafka.offsets import (
    EARLIEST,
    LATEST,
    POSITION_HELP,
    Partition,
    Position,
    chosen_partitions,
    offsets_at,
    parse_position,
    resolved,
)
from penstock.cli.kafka.session import Session, add_verb
from penstock.cli.kafka.settings import add_registry_flags
from penstock.cli.output import duration_text, size_text
from penstock.cli.records.decoded import decoded, decoder_of, finding_of
from penstock.cli.records.filters import Filter, parse_filter
from penstock.cli.records.shown import RECORD_FORMS, as_bytes, error_text
from penstock.contracts.errors import Unavailable
from penstock.runtime.clock import SystemClock
from penstock.schemas.decoding import Undecoded

_POLL_MS = 500


class Counts(msgspec.Struct):
    """The records that a run has read and printed."""

    records: int = 0
    size_bytes: int = 0
    printed: int = 0
    undecoded: int = 0
    first_error: str = ""  # of them, with its place


def add_to(verbs: "argparse._SubParsersAction[Any]") -> None:
    """Add the verbs."""
    consumed = add_verb(
        verbs,
        "consume",
        consume,
        help="print the records of topics",
        forms=RECORD_FORMS,
        description=f"Print the records of topics up to their present ends. A position is {POSITION_HELP}; -N is "
        "before the end.",
    )
    consumed.add_argument("--to", metavar="POSITION", default=LATEST, help="end before this position (%(default)s)")
    consumed.add_argument("-f", "--follow", action="store_true", help="wait for new records at the end")
    tailed = add_verb(
        verbs,
        "tail",
        consume,
        help="print new records of topics as they come",
        forms=RECORD_FORMS,
        description="Print the new records of topics until Ctrl-C. The same as `consume --from latest --follow`.",
    )
    tailed.set_defaults(follow=True, to=LATEST)
    for verb, start in ((consumed, EARLIEST), (tailed, LATEST)):
        with_topics(
            verb.add_argument("topics", nargs="+", metavar="TOPIC[/PARTITION]", help="topics, or single partitions")
        )
        verb.add_argument("--from", dest="start", metavar="POSITION", default=start, help="begin here (%(default)s)")
        verb.add_argument("-n", "--count", type=int, default=0, metavar="N", help="end after N printed records")
        verb.add_argument(
            "--filter",
            metavar="JMESPATH",
            default="",
            help="only records that fit: key, value, headers, partition, offset, time_ms; "
            'for example "value.price > `100`"',
        )
        verb.add_argument("--uncommitted", action="store_true", help="also records of open and aborted transactions")
        verb.add_argument("--stats", action="store_true", help="at the end print counts and rates to stderr")
        add_registry_flags(verb)


def consume(arguments: argparse.Namespace, session: Session) -> None:
    """Print the records; at the end, or after Ctrl-C, also the counts if asked.

    `Unavailable` at the end if a record could not be decoded by its schema, which does not stop the reading.
    """
    chosen = parse_filter(arguments.filter) if arguments.filter else None
    decoder = decoder_of(session.settings, session.timeout_s)
    starts, ends = bounds(session, arguments)
    clock, counts = SystemClock(), Counts()
    started_s = clock.monotonic_s()
    try:
        for record in read_records(session, starts, ends, is_committed=not arguments.uncommitted):
            counts.records += 1
            counts.size_bytes += len(record.value or b"") + len(record.key or b"")
            found = decoded(record, decoder)
            _count_errors(found, counts)
            _print(found, arguments.output, chosen, counts)
            if arguments.count and counts.printed >= arguments.count:
                break
    finally:
        if arguments.stats:
            print(stats_text(counts, clock.monotonic_s() - started_s), file=sys.stderr)
    if counts.undecoded:
        sys.stdout.flush()
        share = f"{counts.undecoded:,} of {counts.records:,} records"
        raise Unavailable(f"{share} could not be decoded; the first is {counts.first_error}")


def _count_errors(record: Any, counts: Counts) -> None:
    """Count the record if it could not be decoded. Without a schema in the registry, its bytes may be no frame."""
    for name in ("key", "value"):
        found = finding_of(record, name)
        if isinstance(found, Undecoded) and not found.is_unknown:
            place = f"{record.topic}/{record.partition}@{record.offset}"
            counts.first_error = counts.first_error or f"{place}: {error_text(found)}"
            counts.undecoded += 1
            return


def _print(record: Any, form: str, chosen: Filter | None, counts: Counts) -> None:
    if chosen is None or chosen(record):
        sys.stdout.buffer.write(as_bytes(record, form))
        if sys.stdout.isatty():
            sys.stdout.buffer.flush()
        counts.printed += 1


def bounds(session: Session, arguments: argparse.Namespace) -> tuple[dict[Partition, int], dict[Partition, int] | None]:
    """The first offset of each partition, and the end of each, None to follow them."""
    partitions = chosen_partitions(session, arguments.topics)
    starts = _located(session, parse_position(arguments.start), partitions)
    if arguments.follow:
        return starts, None
    ends = _located(session, parse_position(arguments.to), partitions)
    # A reader of committed records cannot pass the first open transaction.
    readable = offsets_at(session, partitions, LATEST, is_committed=not arguments.uncommitted)
    return starts, {each: min(offset, readable[each]) for each, offset in ends.items()}


def _located(session: Session, position: Position, partitions: list[Partition]) -> dict[Partition, int]:
    """The offsets of a position, where +N counts from the first record and -N from the end."""
    if position.shift is None:
        return resolved(session, position, dict.fromkeys(partitions))
    word = LATEST if position.shift < 0 else EARLIEST
    return resolved(session, position, dict(offsets_at(session, partitions, word)))


def read_records(
    session: Session,
    starts: Mapping[Partition, int],
    ends: Mapping[Partition, int] | None,
    *,
    is_committed: bool,
    is_over: Callable[[], bool] = lambda: False,
) -> Iterator[Any]:
    """The records from each start to each end, in the order of their arrival, until `is_over`."""
    from kafka import TopicPartition

    left = {each for each in starts if ends is None or starts[each] < ends[each]}
    if not left:
        return
    consumer = session.new_consumer(
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level="read_committed" if is_committed else "read_uncommitted",
    )
    consumer.assign([TopicPartition(*each) for each in sorted(left)])
    for each in left:
        consumer.seek(TopicPartition(*each), starts[each])
    while left and not is_over():
        for records in consumer.poll(timeout_ms=_POLL_MS).values():
            yield from (each for each in records if ends is None or each.offset < ends[each.topic, each.partition])
        if ends is not None:
            # The position also moves over markers of transactions and gaps, where no record comes.
            ended = {each for each in left if consumer.position(TopicPartition(*each)) >= ends[each]}
            consumer.pause(*(TopicPartition(*each) for each in ended))
            left -= ended


def stats_text(counts: Counts, seconds: float) -> str:
    """How much was read, how fast."""
    rate = counts.records / seconds if seconds > 0 else 0.0
    size = size_text(int(counts.size_bytes / seconds)) if seconds > 0 else "0 B"
    printed = "" if counts.printed == counts.records else f", {counts.printed:,} printed"
    return (
        f"{counts.records:,} records, {size_text(counts.size_bytes)}{printed} in {duration_text(round(seconds, 1))}: "
        f"{rate:,.0f} records/s, {size}/s"
    )

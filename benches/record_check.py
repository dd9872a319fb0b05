"""The gateway's check of produced records: decompression and the walk over all records, for each codec."""

import json
from collections.abc import Iterator
from random import Random

import msgspec

from benches.micro import NOW_MS, best_s
from benches.report import Result
from penstock.kafkawire.cleaning import plain_records
from penstock.kafkawire.produced_records import checked_slices
from penstock.kafkawire.records import BatchHeader, Record, build_batch, read_batch_header

PLAIN_BYTES = 128 * 1024  # so that a round is short, and some rounds are not disturbed
SLICE_RECORDS = 1_000


class Codec(msgspec.Struct, frozen=True):
    """A codec, and the budgets of its check."""

    name: str
    number: int
    record_us: float  # per record of 100 bytes
    mib_per_s: float  # of records of 1,000 bytes, before compression


CODECS = (
    Codec("none", 0, 1.5, 600),
    Codec("gzip", 1, 3.0, 60),
    Codec("snappy", 2, 2.0, 250),
    Codec("lz4", 3, 2.0, 150),
    Codec("zstd", 4, 2.0, 200),
)


def record_check() -> Iterator[Result]:
    """Check batches of 128 KiB; the values are JSON, which compresses to about a third."""
    for size_bytes in (100, 1_000):
        made = list(_records(size_bytes))
        for codec in CODECS:
            batch = build_batch(made, codec=codec.number)
            header = read_batch_header(batch)

            def check(batch: bytes = batch, header: BatchHeader = header) -> None:
                for _ in checked_slices(plain_records(batch, header), header.record_count, SLICE_RECORDS):
                    pass

            seconds = best_s(check)
            what = f"{codec.name}, {size_bytes}-byte records"
            record_us, mib_per_s = seconds / len(made) * 1e6, PLAIN_BYTES / 2**20 / seconds
            is_small = size_bytes == 100
            us_max, mib_min = (codec.record_us, None) if is_small else (None, codec.mib_per_s)
            yield Result("records", f"{what}, per record", record_us, "us", us_max)
            yield Result("records", f"{what}, plain bytes", mib_per_s, "MiB/s", mib_min, more_is_better=True)


def _records(size_bytes: int) -> Iterator[Record]:
    random = Random(1)
    for index in range(PLAIN_BYTES // size_bytes):
        parts = [{"order": random.randrange(10**9), "state": random.choice(("new", "paid"))} for _ in range(40)]
        yield Record(index, NOW_MS + index, b"%08d" % index, json.dumps(parts).encode()[: size_bytes - 20])

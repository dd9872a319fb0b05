"""The flags of `penstock up`, and one clear sentence for each invalid value."""

import argparse
from pathlib import Path

import msgspec

from penstock.cli.ports import Address, parse_address
from penstock.contracts.errors import Invalid

INSTANCES_MAX = 64  # of one service on one machine; a typing error must not start thousands
FLUSH_MS_MIN = 5
FLUSH_MS_MAX = 60_000


class UpOptions(msgspec.Struct, frozen=True, kw_only=True):
    """All settings of `penstock up`."""

    data: Path
    kafka: Address
    http: Address
    store: str
    flush_ms: int
    gateways: int
    flushers: int
    sequencers: int
    cachers: int
    compactors: int = 1
    janitors: int = 1


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `penstock up`."""
    parser.add_argument("--data", metavar="DIR", default="./penstock-data", help="folder for all data (%(default)s)")
    parser.add_argument(
        "--kafka", metavar="HOST:PORT", default="127.0.0.1:9092", help="address for Kafka clients (%(default)s)"
    )
    parser.add_argument(
        "--http",
        metavar="HOST:PORT",
        default="127.0.0.1:8080",
        help="address of console, health and metrics (%(default)s)",
    )
    parser.add_argument(
        "--store",
        metavar="URL",
        default="",
        help="object store: file:///DIR or s3://BUCKET/PREFIX?endpoint=URL (a folder inside --data)",
    )
    parser.add_argument(
        "--flush-ms",
        metavar="N",
        type=int,
        default=250,
        help="flush interval: longest time that a segment collects batches (%(default)s)",
    )
    for service in ("gateways", "flushers", "sequencers", "cachers", "compactors", "janitors"):
        parser.add_argument(
            f"--{service}", metavar="N", type=int, default=1, help=f"number of {service} to run (%(default)s)"
        )


def read_options(arguments: argparse.Namespace) -> UpOptions:
    """The options in parsed flags; `Invalid` for a value out of range."""
    data = Path(arguments.data).expanduser().absolute()
    if not FLUSH_MS_MIN <= arguments.flush_ms <= FLUSH_MS_MAX:
        raise Invalid(f"--flush-ms must be from {FLUSH_MS_MIN} to {FLUSH_MS_MAX}: {arguments.flush_ms}")
    return UpOptions(
        data=data,
        kafka=parse_address("--kafka", arguments.kafka),
        http=parse_address("--http", arguments.http),
        store=arguments.store or f"file://{data / 'objects'}",
        flush_ms=arguments.flush_ms,
        gateways=_count("--gateways", arguments.gateways),
        flushers=_count("--flushers", arguments.flushers),
        sequencers=_count("--sequencers", arguments.sequencers),
        cachers=_count("--cachers", arguments.cachers),
        compactors=_count("--compactors", arguments.compactors, least=0),
        janitors=_count("--janitors", arguments.janitors, least=0),
    )


def _count(flag: str, value: int, least: int = 1) -> int:
    if not least <= value <= INSTANCES_MAX:
        raise Invalid(f"{flag} must be from {least} to {INSTANCES_MAX}: {value}")
    return value

"""What `penstock up` was asked for: its flags, and one clear sentence for each that cannot be had."""

import argparse
import fcntl
import os
import socket
from pathlib import Path
from typing import IO

import msgspec

from penstock.contracts.errors import Invalid

INSTANCES_MAX = 64  # of one service on one machine; a typing error should not start thousands
LOCK_NAME = "lock"  # in the data folder; held by the `penstock up` or `rebuild` that has it
FLUSH_MS_MIN = 5
FLUSH_MS_MAX = 60_000


class Address(msgspec.Struct, frozen=True):
    """A host and a TCP port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class UpOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that `penstock up` can be told."""

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
    """The flags of `penstock up`."""
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
        raise Invalid(f"--flush-ms must be from {FLUSH_MS_MIN} to {FLUSH_MS_MAX}, not {arguments.flush_ms}")
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
        raise Invalid(f"{flag} must be from {least} to {INSTANCES_MAX}, not {value}")
    return value


def parse_address(flag: str, text: str) -> Address:
    """HOST:PORT; `Invalid` naming the flag for anything else."""
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isascii() or not port.isdigit() or not 1 <= int(port) <= 65_535:
        raise Invalid(f"{flag} must be HOST:PORT with a port from 1 to 65535, not {text!r}")
    return Address(host, int(port))


def check_port_is_free(flag: str, address: Address) -> None:
    """`Invalid` if nothing can listen there now."""
    try:
        found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except socket.gaierror as error:
        raise Invalid(f"{flag} {address}: no such host ({error.strerror})") from error
    family, kind, protocol, _, name = found[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(name)
        except OSError as error:
            reason = "another program is using it" if error.errno == 98 else os.strerror(error.errno or 0)
            raise Invalid(f"cannot listen on {address}: {reason}; choose another address with {flag}") from error


def take_folder(data: Path) -> IO[str]:
    """Make the data folder and lock it until the returned file is closed; `Invalid` if that cannot be."""
    try:
        data.mkdir(parents=True, exist_ok=True)
        for name in ("logs", "nats"):
            (data / name).mkdir(exist_ok=True)
        lock = (data / LOCK_NAME).open("a+")
    except OSError as error:
        raise Invalid(f"cannot write to the data folder {data}: {error.strerror}") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        lock.close()
        raise Invalid(f"another penstock is running on the data folder {data}") from error
    return lock

"""The flags of `penstock up`, and one clear sentence for each invalid value."""

import argparse
import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from penstock.cli.data_folder import recorded_store
from penstock.cli.ports import Address, parse_address
from penstock.cli.up.advertised import FindSource, advertised_address, warning
from penstock.cli.up.exposure import check_addresses
from penstock.contracts.errors import Invalid
from penstock.contracts.ids import check_token
from penstock.objectstore import absolute_address
from penstock.runtime.process.http_token import read_token
from penstock.runtime.process.own_address import source_towards
from penstock.spark.config import CLUSTER_DEFAULT

SEPARATE = ("gateways", "flushers", "cachers")  # the services that agents have too
# An agent uses one core. Beside it are the nats-server, a sequencer, helpers and often clients.
CORES_PER_AGENT = 2
AGENTS_DEFAULT_MAX = 4
PORT_MAX = 65_535
INSTANCES_MAX = 64  # of one service on one machine; a typing error must not start thousands
FLUSH_MS_MIN = 5
FLUSH_MS_MAX = 60_000
TOKEN_VARIABLE = "PENSTOCK_HTTP_TOKEN_FILE"  # noqa: S105  the name of a variable
CLUSTER_VARIABLE = "PENSTOCK_CLUSTER"


class MoreCluster(msgspec.Struct, frozen=True):
    """A further virtual cluster, with the address of its clients."""

    name: str
    kafka: Address
    advertised: Address | None  # none: clients use `kafka`


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
    agents: int = 0  # processes that are gateway, flusher and cacher in one; 0: each of these has its own process
    is_small: bool = False  # the only agent is in this process, and is also the sequencer, the janitor, the compactor
    compactors: int = 1
    janitors: int = 1
    cluster: str = CLUSTER_DEFAULT
    more_clusters: tuple[MoreCluster, ...] = ()
    advertised: Address | None = None  # none: clients use `kafka`
    warnings: tuple[str, ...] = ()  # about the addresses, for the terminal
    is_secure: bool = False  # clients log in, over TLS
    has_console_changes: bool = False  # the console does not only show
    http_token_file: str = ""  # with the token of the console and of `/metrics`; "": they are open


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `penstock up`."""
    parser.add_argument("--data", metavar="DIR", default="./penstock-data", help="folder for all data (%(default)s)")
    parser.add_argument(
        "--kafka",
        metavar="HOST:PORT",
        default="127.0.0.1:9092",
        help="address for Kafka clients; port 0: any (%(default)s)",
    )
    parser.add_argument(
        "--advertise",
        metavar="HOST[:PORT]",
        default="",
        help="address that clients are sent to (that of --kafka; for 0.0.0.0 this machine's on its default route)",
    )
    parser.add_argument(
        "--http",
        metavar="HOST:PORT",
        default="127.0.0.1:8080",
        help="address of console, health and metrics; port 0: any (%(default)s)",
    )
    _add_protection_flags(parser)
    parser.add_argument(
        "--console-changes",
        action="store_true",
        help="let the console change topics and groups and write records; without it, it only shows",
    )
    parser.add_argument(
        "--store",
        metavar="URL",
        default="",
        help="object store: file:///DIR, s3://BUCKET/PREFIX?endpoint=URL, gs://, az:// (as last time, else in --data)",
    )
    parser.add_argument(
        "--cluster",
        metavar="NAME,...",
        default="",
        help=f"names of virtual clusters, with the port of --kafka and the next ones ({CLUSTER_DEFAULT}) "
        f"[{CLUSTER_VARIABLE}]",
    )
    parser.add_argument(
        "--flush-ms",
        metavar="N",
        type=int,
        default=250,
        help="flush interval: longest time that a segment collects batches (%(default)s)",
    )
    _add_shape_flags(parser)
    parser.add_argument(
        "--sequencers",
        metavar="N",
        type=int,
        help="number of sequencers to run; 0: the only agent is also the sequencer (0 with one agent, else 1)",
    )
    for service in ("compactors", "janitors"):
        parser.add_argument(
            f"--{service}", metavar="N", type=int, default=1, help=f"number of {service} to run (%(default)s)"
        )


def _add_protection_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags about clients that are not on this machine."""
    protection = parser.add_mutually_exclusive_group()
    protection.add_argument(
        "--secure",
        action="store_true",
        help="clients log in over TLS (SASL_SSL); makes certificates and an administrator in --data",
    )
    protection.add_argument(
        "--insecure",
        action="store_true",
        help="let other machines use --kafka and --http, without logins and without TLS",
    )
    parser.add_argument(
        "--http-token-file",
        metavar="FILE",
        default="",
        help=f"file with the token that the console and metrics need [{TOKEN_VARIABLE}]",
    )


def _add_shape_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags that choose between agents and separate services."""
    shape = parser.add_mutually_exclusive_group()
    shape.add_argument(
        "--agents",
        metavar="N",
        type=int,
        help="number of agents: processes that are a gateway, a flusher and a cacher (one for each two cores, up to "
        f"{AGENTS_DEFAULT_MAX})",
    )
    shape.add_argument(
        "--small",
        action="store_true",
        help="run everything in one process beside the nats-server, for tests and laptops; only small merges",
    )
    shape.add_argument(
        "--separate", action="store_true", help="run gateways, flushers and cachers in processes of their own"
    )
    for service in SEPARATE:
        parser.add_argument(
            f"--{service}", metavar="N", type=int, help=f"number of {service} to run (1); implies --separate"
        )


def read_options(
    arguments: argparse.Namespace,
    environ: Mapping[str, str] = os.environ,
    find_source: FindSource = source_towards,
    *,
    cores: int | None = None,
) -> UpOptions:
    """The options in parsed flags and the environment; `Invalid` for a value out of range.

    `cores` is the number of processor cores to plan for, by default those that this process may use.
    """
    data = Path(arguments.data).expanduser().absolute()
    kafka = parse_address("--kafka", arguments.kafka, port_min=0)
    advertised = advertised_address(kafka, arguments.advertise, find_source)
    if not FLUSH_MS_MIN <= arguments.flush_ms <= FLUSH_MS_MAX:
        raise Invalid(f"--flush-ms must be from {FLUSH_MS_MIN} to {FLUSH_MS_MAX}: {arguments.flush_ms}")
    http = parse_address("--http", arguments.http, port_min=0)
    token_file = arguments.http_token_file or environ.get(TOKEN_VARIABLE, "")
    if token_file:
        read_token(token_file)
    open_to_others = check_addresses(
        kafka, http, has_token=bool(token_file), is_secure=arguments.secure, is_insecure=arguments.insecure
    )
    cluster, *more = _clusters(arguments.cluster or environ.get(CLUSTER_VARIABLE) or CLUSTER_DEFAULT)
    if more and arguments.secure:
        raise Invalid(f"--secure makes users of one cluster: leave out {more[0]}")
    agents = _agents(arguments, usable_cores() if cores is None else cores)
    helpers_max = 1 if arguments.small else INSTANCES_MAX
    about_advertised = warning(kafka, arguments.advertise, advertised)
    return UpOptions(
        data=data,
        kafka=kafka,
        http=http,
        store=_store(arguments.store) if arguments.store else recorded_store(data),
        flush_ms=arguments.flush_ms,
        agents=agents,
        gateways=agents or _count("--gateways", _or_one(arguments.gateways)),
        flushers=agents or _count("--flushers", _or_one(arguments.flushers)),
        sequencers=_sequencers(arguments, agents),
        is_small=arguments.small,
        cachers=agents or _count("--cachers", _or_one(arguments.cachers)),
        compactors=_count("--compactors", arguments.compactors, least=0, most=helpers_max),
        janitors=_count("--janitors", arguments.janitors, least=0, most=helpers_max),
        cluster=cluster,
        more_clusters=tuple(
            MoreCluster(name, _after(kafka, number), _after(advertised, number) if advertised is not None else None)
            for number, name in enumerate(more, 1)
        ),
        advertised=advertised,
        warnings=tuple(filter(None, (open_to_others, about_advertised))),
        is_secure=arguments.secure,
        has_console_changes=arguments.console_changes,
        http_token_file=str(Path(token_file).expanduser().absolute()) if token_file else "",
    )


def _clusters(text: str) -> list[str]:
    """The names in a list separated by commas, each once."""
    return list(dict.fromkeys(check_token("each name in --cluster", name.strip()) for name in text.split(",")))


def _after(address: Address, number: int) -> Address:
    """The address with a later port; port 0 stays, because it is any."""
    if address.port + number > PORT_MAX:
        raise Invalid(f"there are not enough ports after {address} for all clusters")
    return Address(address.host, address.port + number) if address.port else address


def _store(url: str) -> str:
    """The store's address for processes in any folder; `Invalid` for a store that does not keep what is written."""
    if url.startswith("memory:"):
        raise Invalid(
            "--store memory:// is only for tests: each process has its own memory, and the next start has no records; "
            "use file:///DIR or s3://BUCKET/PREFIX"
        )
    if not url.startswith(("file://", "s3://", "gs://", "az://")):
        raise Invalid(f"--store must be file:///DIR, s3://BUCKET/PREFIX, gs://... or az://...: {url!r}")
    return absolute_address(url)


def usable_cores() -> int:
    """The number of processor cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):  # not on macOS
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _agents(arguments: argparse.Namespace, cores: int) -> int:
    """The number of agents; 0 with separate services."""
    separate = [f"--{service}" for service in SEPARATE if getattr(arguments, service) is not None]
    if arguments.agents is not None:
        if separate:
            raise Invalid(f"with --agents, each agent is a gateway, a flusher and a cacher: leave out {separate[0]}")
        return _count("--agents", arguments.agents)
    if arguments.small:
        if separate:
            raise Invalid(f"with --small, everything is in one process: leave out {separate[0]}")
        return 1
    if arguments.separate or separate:
        return 0
    return min(max(cores // CORES_PER_AGENT, 1), AGENTS_DEFAULT_MAX)


def _sequencers(arguments: argparse.Namespace, agents: int) -> int:
    """The number of processes that are only a sequencer; 0 if the only agent is one, too."""
    if arguments.sequencers is None:
        return 0 if agents == 1 else 1
    if arguments.small and arguments.sequencers:
        raise Invalid("with --small, everything is in one process: leave out --sequencers")
    if arguments.sequencers == 0 and agents != 1:
        raise Invalid("--sequencers 0 needs exactly one agent, which is then the sequencer: add --agents 1")
    return _count("--sequencers", arguments.sequencers, least=0)


def _or_one(value: int | None) -> int:
    return 1 if value is None else value


def _count(flag: str, value: int, least: int = 1, most: int = INSTANCES_MAX) -> int:
    if not least <= value <= most:
        raise Invalid(f"{flag} must be from {least} to {most}: {value}")
    return value

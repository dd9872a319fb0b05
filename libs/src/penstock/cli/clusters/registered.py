"""`penstock cluster create`, `list`, `describe`, `alter`, `delete` and `undelete`: the registry of virtual clusters."""

import argparse
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.cli.kafka.durations import DURATION_HELP, duration_ms
from penstock.cli.kafka.session import confirm
from penstock.cli.output import Done, Listing, Report, Result, add_output_flag, time_text
from penstock.cli.running import add_cluster_flags, connected_bus, read_cluster, run
from penstock.contracts.errors import Conflict, Invalid, Unavailable

if TYPE_CHECKING:  # imported when a verb runs
    from penstock.clusters import ClusterRecord, ClusterRegistry, Registered

UNDELETE_WINDOW = "7d"
WAIT_S = 30.0
QUOTAS = {
    "partitions": "partitions of all topics together",
    "stored-bytes": "bytes of live records",
    "produced-bytes-per-s": "bytes a second of all producers together",
    "consumed-bytes-per-s": "bytes a second of all consumers together",
    "connections": "connections at each gateway",
}
RunVerb = Callable[[argparse.Namespace], Awaitable[Result]]


def add_to(verbs: "argparse._SubParsersAction[Any]") -> None:
    """Add the verbs."""
    create = _add(verbs, "create", _create, "register clusters, and wait until a sequencer serves them")
    create.add_argument(
        "names", nargs="+", metavar="NAME", help="1 to 64 letters, digits, '_' or '-'; also several with commas"
    )
    existing = create.add_mutually_exclusive_group()
    existing.add_argument("--if-absent", action="store_true", help="a cluster that exists is no error")
    existing.add_argument(
        "--replace", action="store_true", help="a cluster that exists gets exactly the names and quotas given here"
    )
    create.add_argument(
        "--adopt",
        action="store_true",
        help="register a cluster that has data, but no record: one made by its name only",
    )
    create.add_argument(
        "--wait-s",
        type=float,
        default=WAIT_S,
        metavar="N",
        help="seconds to wait for a sequencer, 0: none (%(default)g)",
    )
    _add(verbs, "list", _list, "list the clusters, also deleted ones")
    describe = _add(verbs, "describe", _describe, "show a cluster's state, names, quotas and use")
    alter = _add(verbs, "alter", _alter, "change the names and quotas of a cluster")
    for verb in (create, alter):
        verb.add_argument(
            "--server-name",
            action="append",
            metavar="NAME",
            help="TLS server name by which gateways choose the cluster",
        )
        verb.add_argument(
            "--tenant", action="append", metavar="NAME", help="tenant of logins by which gateways choose the cluster"
        )
        for name, text in QUOTAS.items():
            verb.add_argument(f"--quota-{name}", type=int, metavar="N", help=f"most {text}; 0: no limit")
    delete = _add(verbs, "delete", _delete, "delete a cluster; it can come back until its undelete window is over")
    delete.add_argument(
        "--undelete-window", metavar="TIME", default=UNDELETE_WINDOW, help=f"{DURATION_HELP} (%(default)s)"
    )
    delete.add_argument("--dry-run", action="store_true", help="only show what would be deleted")
    delete.add_argument("-y", "--yes", action="store_true", help="do not ask")
    undelete = _add(verbs, "undelete", _undelete, "bring a deleted cluster back, with all its data")
    for verb in (describe, alter, delete, undelete):
        verb.add_argument("name", metavar="NAME", help="name of the cluster").completer = _names  # type: ignore[attr-defined]


def _add(
    verbs: "argparse._SubParsersAction[Any]", name: str, run_verb: RunVerb, help_text: str
) -> argparse.ArgumentParser:
    verb: argparse.ArgumentParser = verbs.add_parser(
        name, help=help_text, description=f"{help_text[0].upper()}{help_text[1:]}."
    )
    add_cluster_flags(verb, with_cluster=False)
    add_output_flag(verb)
    verb.set_defaults(run=run, run_verb=run_verb)
    return verb


@contextlib.asynccontextmanager
async def opened_registry(arguments: argparse.Namespace) -> AsyncIterator["ClusterRegistry"]:
    """The registry in the store that the flags name."""
    from penstock.clusters import ClusterRegistry
    from penstock.objectstore import open_store
    from penstock.runtime.process.landing import LANDING, without_landing

    url = read_cluster(arguments).store_url
    store = await open_store(without_landing(url) if LANDING in url else url)
    try:
        yield ClusterRegistry(store)
    finally:
        await store.close()


async def _create(arguments: argparse.Namespace) -> Result:
    created = []
    names = [name for given in arguments.names for name in given.split(",")]
    async with opened_registry(arguments) as registry:
        for name in names:
            record = _changed(_new_record(name), arguments)
            await _check_names(registry, record)
            if await _create_one(registry, record, arguments):
                created.append(name)
    waiting = await _unserved(names, arguments) if arguments.wait_s else []
    if waiting:
        raise Unavailable(
            f"{', '.join(waiting)}: registered, but no sequencer serves it. Start sequencers and janitors with "
            f"PENSTOCK_CLUSTERS=*, or for the names of the clusters"
        )
    return Done(
        f"created {', '.join(created) or 'nothing'}; clients use gateways with PENSTOCK_CLUSTERS=*, or with "
        f"PENSTOCK_CLUSTER={', '.join(names)}",
        {"created": created, "clusters": names},
    )


async def _create_one(registry: "ClusterRegistry", record: "ClusterRecord", arguments: argparse.Namespace) -> bool:
    """Whether the record is new; `Conflict` if its name is not free."""
    from penstock.clusters import ClusterState

    found = await registry.find(record.name)
    state = found.record.state if found is not None else ClusterState.GONE
    if state == ClusterState.ACTIVE:
        if arguments.if_absent:
            return False
        if arguments.replace and found is not None:
            given = {name: getattr(record, name) for name in ("server_names", "tenants", "quotas")}
            changed = msgspec.structs.replace(found.record, **given)
            if changed != found.record:
                await registry.replace(found, changed)
            return False
        raise Conflict(f"the cluster {record.name} exists; with --if-absent that is no error")
    if state == ClusterState.DELETED:
        raise Conflict(
            f"the cluster {record.name} is deleted and can come back: `penstock cluster undelete {record.name}`. Its "
            f"name is free when it is cleaned up, after {time_text(found.record.undelete_until_ms) if found else ''}"
        )
    if state == ClusterState.EMPTYING:
        raise Conflict(f"the cluster {record.name} is being cleaned up; its name is free when that is complete")
    if await registry.has_data(record.name) and not arguments.adopt:
        raise Conflict(
            f"there is data of a cluster {record.name} that is not registered; register it with --adopt, or use "
            f"another name"
        )
    await registry.create(record)
    return True


def _new_record(name: str) -> "ClusterRecord":
    from penstock.clusters import ClusterRecord
    from penstock.runtime.clock import SystemClock, SystemEntropy

    return ClusterRecord(name=name, created_id=SystemEntropy().take(8).hex(), created_ms=SystemClock().now_ms())


def _changed(record: "ClusterRecord", arguments: argparse.Namespace) -> "ClusterRecord":
    """The record with the names and quotas that the flags give. An empty name removes all names."""
    quotas = {name.replace("-", "_"): getattr(arguments, f"quota_{name.replace('-', '_')}") for name in QUOTAS}
    given = {name: value for name, value in quotas.items() if value is not None}
    if any(value < 0 for value in given.values()):
        raise Invalid("a quota is a whole number from 0 on; 0 is no limit")
    names: dict[str, Any] = {}
    if arguments.server_name is not None:
        names["server_names"] = tuple(name.lower() for name in arguments.server_name if name)
    if arguments.tenant is not None:
        names["tenants"] = tuple(filter(None, arguments.tenant))
    return msgspec.structs.replace(record, quotas=msgspec.structs.replace(record.quotas, **given), **names)


async def _check_names(registry: "ClusterRegistry", record: "ClusterRecord") -> None:
    """`Invalid` if another cluster has one of the names. Of two creators at once, gateways prefer the older cluster."""
    for other in await registry.read_all():
        if other.record.name == record.name:
            continue
        for name in (
            *set(record.server_names) & set(other.record.server_names),
            *set(record.tenants) & set(other.record.tenants),
        ):
            raise Invalid(f"the cluster {other.record.name} has the name {name!r} already")


async def _unserved(names: Sequence[str], arguments: argparse.Namespace) -> list[str]:
    """The clusters that no sequencer serves within the time that the flags give."""
    from penstock.contracts.queries.janitor import JournalQuery, JournalView
    from penstock.runtime.bus.sequencer_client import SequencerClient
    from penstock.runtime.clock import SystemClock

    clock, waiting = SystemClock(), []
    end_s = clock.monotonic_s() + arguments.wait_s
    async with connected_bus(read_cluster(arguments), "penstock-cluster") as bus:
        for name in names:
            client = SequencerClient(bus, name, clock)
            deadline_s = max(0.1, end_s - clock.monotonic_s())
            try:
                await client.query("journal", JournalQuery(0), JournalView, deadline_s=deadline_s)
            except Unavailable:
                waiting.append(name)
    return waiting


async def _list(arguments: argparse.Namespace) -> Result:
    async with opened_registry(arguments) as registry:
        found = [each.record for each in await registry.read_all()]
    return Listing([_row(record) for record in found], "no cluster is registered")


def _row(record: "ClusterRecord") -> dict[str, Any]:
    return {
        "name": record.name,
        "state": record.state.value,
        "created_at": time_text(record.created_ms),
        "undelete_until": time_text(record.undelete_until_ms) if record.deleted_ms else "",
        "server_names": list(record.server_names),
        "tenants": list(record.tenants),
    }


async def _describe(arguments: argparse.Namespace) -> Result:
    async with opened_registry(arguments) as registry:
        record = (await _named(registry, arguments.name)).record
    quotas = {f"quota_{name}": value for name, value in msgspec.structs.asdict(record.quotas).items()}
    return Report(_row(record) | quotas | (await _use(arguments, record) if record.is_active else {}))


async def _use(arguments: argparse.Namespace, record: "ClusterRecord") -> dict[str, Any]:
    """The use beside the quotas; None for each if NATS or the processes of the cluster do not answer."""
    from penstock.cli.clusters.use import USES, find_use

    try:
        async with connected_bus(read_cluster(arguments), "penstock-cluster") as bus:
            return await find_use(bus, record.name)
    except Unavailable:
        return dict.fromkeys(USES)


async def _alter(arguments: argparse.Namespace) -> Result:
    async with opened_registry(arguments) as registry:
        found = await _named(registry, arguments.name)
        if not found.record.is_active:
            raise Invalid(f"the cluster {arguments.name} is deleted, and a deleted cluster cannot change")
        record = _changed(found.record, arguments)
        await _check_names(registry, record)
        await registry.replace(found, record)
    return Done(f"changed {arguments.name}", _row(record))


async def _delete(arguments: argparse.Namespace) -> Result:
    from penstock.clusters.record import deleted
    from penstock.runtime.clock import SystemClock

    window_ms = duration_ms(arguments.undelete_window)
    if window_ms is None:
        raise Invalid(f"--undelete-window is a time {DURATION_HELP}: {arguments.undelete_window!r}")
    async with opened_registry(arguments) as registry:
        found = await _named(registry, arguments.name)
        if not found.record.is_active:
            raise Invalid(f"the cluster {arguments.name} is deleted already")
        if not arguments.dry_run:
            confirm(
                f"Delete the cluster {arguments.name}? No process serves it from then on, and after "
                f"{arguments.undelete_window} its topics, records and users are lost.",
                is_confirmed=arguments.yes,
            )
        record = deleted(found.record, SystemClock().now_ms(), window_ms)
        if not arguments.dry_run:
            await registry.replace(found, record)
    until = time_text(record.undelete_until_ms)
    words = "would be deleted" if arguments.dry_run else "deleted"
    return Done(f"{words}: {arguments.name}; it can come back until {until}", _row(record))


async def _undelete(arguments: argparse.Namespace) -> Result:
    from penstock.clusters.record import ClusterState, undeleted

    async with opened_registry(arguments) as registry:
        found = await _named(registry, arguments.name)
        if found.record.state != ClusterState.DELETED:
            words = "is not deleted" if found.record.is_active else "is being cleaned up, and cannot come back"
            raise Invalid(f"the cluster {arguments.name} {words}")
        record = undeleted(found.record)
        await registry.replace(found, record)
    return Done(f"the cluster {arguments.name} is back", _row(record))


async def _named(registry: "ClusterRegistry", name: str) -> "Registered":
    from penstock.clusters import ClusterState

    found = await registry.find(name)
    if found is None or found.record.state == ClusterState.GONE:
        raise Invalid(f"no cluster {name} is registered; `penstock cluster list` shows the registered ones")
    return found


def _names(prefix: str, parsed_args: argparse.Namespace, **_: object) -> Sequence[str]:
    """The names of clusters, for the completion of a shell; none if the store does not answer."""
    import asyncio

    from penstock.contracts.errors import PenstockError

    async def read() -> list[str]:
        async with asyncio.timeout(2.0), opened_registry(parsed_args) as registry:
            return [each.record.name for each in await registry.read_all()]

    try:
        return [name for name in asyncio.run(read()) if name.startswith(prefix)]
    except (PenstockError, TimeoutError):
        return []

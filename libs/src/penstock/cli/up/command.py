"""The command `penstock up`: its flags, its checks before the start, and its exit code."""

import argparse
import contextlib
import os
import sys
from collections.abc import Awaitable, Callable

import msgspec
import prometheus_client

from penstock.cli.children import Start, start_process
from penstock.cli.command_line import NewParser
from penstock.cli.data_folder import record_store, take_folder
from penstock.cli.ports import Address, check_port_is_free, reserved_port
from penstock.cli.up.limits import DEFAULT_LIMITS, UpLimits
from penstock.cli.up.options import MoreCluster, UpOptions, add_flags, read_options
from penstock.cli.up.progress import Progress, until_available
from penstock.cli.up.secure import make_secure_files
from penstock.cli.up.supervisor import Supervisor, print_line
from penstock.contracts.errors import PenstockError
from penstock.objectstore import ObjectStore, open_store
from penstock.runtime.clock import SystemClock, SystemEntropy
from penstock.runtime.process.landing import without_landing
from penstock.runtime.process.life import PARENT_VARIABLE, follow_parent, run_loop
from penstock.runtime.process.logs import configure_logs
from penstock.runtime.process.memory import FREE_LARGE_BLOCKS, tune_malloc


def add_parser(new_parser: NewParser) -> None:
    """Register `penstock up` with the command line."""
    parser = new_parser(description="Run NATS and every service on this machine until Ctrl-C. All data is in --data.")
    add_flags(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run until stopped; 0 after a clean stop, 1 with one sentence if it is not possible."""
    try:
        options = read_options(arguments)
        os.umask(0o077)  # its files, and those of all its processes, are for this user only
        configure_logs("up", "up", "error", "auto")  # the supervisor itself reports events of its children
        return run_loop(_run(options)) if follow_parent(os.environ.get(PARENT_VARIABLE, "")) else 1
    except PenstockError as error:
        print(f"penstock: {error}", file=sys.stderr)
        return 1


async def _run(options: UpOptions) -> int:
    with contextlib.ExitStack() as stack:
        # The folder first: the error of a second `penstock up` must name the folder, and not a port in use.
        stack.enter_context(take_folder(options.data))
        options = with_ports(options, stack)
        await check_store(without_landing(options.store))
        record_store(options.data, options.store)
        secure = None
        if options.is_secure:
            clock, entropy = SystemClock(), SystemEntropy()
            secure = make_secure_files(options.data, options.kafka, options.advertised, clock, entropy)
        nats_port, monitor_port, console_port = (stack.enter_context(reserved_port()) for _ in range(3))
        start = _start_of_services(options, stack)
        supervisor = Supervisor(options, nats_port, monitor_port, console_port, secure=secure, start=start)
        try:
            return await supervisor.run()
        finally:
            supervisor.kill_all()


def with_ports(options: UpOptions, stack: contextlib.ExitStack) -> UpOptions:
    """The options with a reserved port for each port 0; `Invalid` if another port is in use."""

    def found(flag: str, address: Address) -> Address:
        if address.port:
            check_port_is_free(flag, address)
            return address
        return msgspec.structs.replace(address, port=stack.enter_context(reserved_port(host=address.host)))

    def seen(advertised: Address | None, kafka: Address) -> Address | None:
        """The advertised address, with the port of `kafka` if it has none."""
        if advertised is None or advertised.port:
            return advertised
        return msgspec.structs.replace(advertised, port=kafka.port)

    kafka, http = found("--kafka", options.kafka), found("--http", options.http)
    more = []
    for each in options.more_clusters:
        own = found("--kafka", each.kafka)
        more.append(MoreCluster(each.name, own, seen(each.advertised, own)))
    advertised = seen(options.advertised, kafka)
    return msgspec.structs.replace(options, kafka=kafka, http=http, advertised=advertised, more_clusters=tuple(more))


def _start_of_services(options: UpOptions, stack: contextlib.ExitStack) -> Start:
    if not options.is_small:
        return start_process
    from penstock.cli.up.hosted import Hosting  # imports all services

    tune_malloc(FREE_LARGE_BLOCKS)  # memory matters more than the CPU time of large messages
    hosting = Hosting()
    stack.callback(hosting.close)
    return hosting.start


async def check_store(
    url: str,
    report: Callable[[str], None] = print_line,
    *,
    limits: UpLimits = DEFAULT_LIMITS,
    open_it: Callable[..., Awaitable[ObjectStore]] = open_store,
) -> None:
    """Return when the store answers. `Invalid` at once if it cannot be used, `Unavailable` if it does not answer."""

    async def attempt() -> None:
        store = await open_it(url, registry=prometheus_client.CollectorRegistry())
        await store.close()

    checking = until_available(attempt, report, wait_s=limits.store_deadline_s, retry_s=limits.store_retry_s)
    await Progress(report, limits=limits.progress).during("checking the object store", checking)

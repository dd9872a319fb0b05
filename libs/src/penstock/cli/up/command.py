"""The command `penstock up`: its flags, its checks before the start, and its exit code."""

import argparse
import asyncio
import os
import sys
from collections.abc import Awaitable, Callable

import prometheus_client

from penstock.cli.command_line import NewParser
from penstock.cli.data_folder import record_store, take_folder
from penstock.cli.ports import check_port_is_free, reserved_port
from penstock.cli.up.limits import DEFAULT_LIMITS, UpLimits
from penstock.cli.up.options import UpOptions, add_flags, read_options
from penstock.cli.up.progress import Progress, until_available
from penstock.cli.up.secure import make_secure_files
from penstock.cli.up.supervisor import Supervisor, print_line
from penstock.contracts.errors import PenstockError
from penstock.objectstore import ObjectStore, open_store
from penstock.runtime.clock import SystemClock, SystemEntropy
from penstock.runtime.process.landing import without_landing
from penstock.runtime.process.logs import configure_logs


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
        return asyncio.run(_run(options))
    except PenstockError as error:
        print(f"penstock: {error}", file=sys.stderr)
        return 1


async def _run(options: UpOptions) -> int:
    # The folder first: the error of a second `penstock up` must name the folder, and not a port in use.
    with take_folder(options.data):
        check_port_is_free("--kafka", options.kafka)
        check_port_is_free("--http", options.http)
        await check_store(without_landing(options.store))
        record_store(options.data, options.store)
        secure = None
        if options.is_secure:
            clock, entropy = SystemClock(), SystemEntropy()
            secure = make_secure_files(options.data, options.kafka, options.advertised, clock, entropy)
        with reserved_port() as nats_port, reserved_port() as monitor_port, reserved_port() as console_port:
            supervisor = Supervisor(options, nats_port, monitor_port, console_port, secure=secure)
            try:
                return await supervisor.run()
            finally:
                supervisor.kill_all()


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

"""`penstock rebuild`: rebuilds a lost journal from the object store alone; a program of the sequencer does the work."""

import argparse
import contextlib
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from penstock.cli.children import die_with_parent
from penstock.cli.command_line import NewParser
from penstock.cli.data_folder import own_store, recorded_store, take_folder
from penstock.cli.journal.program import check_is_installed, has_sequencer, program as sequencer_program, run_program
from penstock.cli.last_words import last_words
from penstock.cli.ports import reserved_port
from penstock.cli.running import INTERRUPTED_EXIT_CODE
from penstock.contracts.errors import Invalid, PenstockError, Unavailable
from penstock.runtime.nats.server import find_nats_server, write_config

STOP_TIMEOUT_S = 15.0


def add_parser(new_parser: NewParser) -> None:
    """Register `penstock rebuild` with the command line."""
    parser = new_parser(
        description="Make a new journal from the object store alone, when the old one is lost. An existing journal is "
        "never replaced. Stop all services first, and read the report of --dry-run.",
    )
    parser.add_argument(
        "--data",
        metavar="DIR",
        default="./penstock-data",
        help="the folder of `penstock up`; its nats-server runs during the rebuild (%(default)s)",
    )
    parser.add_argument(
        "--nats-url",
        metavar="URL",
        default="",
        help="running NATS servers, in place of --data; other settings come from PENSTOCK_... variables",
    )
    parser.add_argument("--store", metavar="URL", default="", help="object store (that of --data)")
    parser.add_argument("--cluster", metavar="NAME", default="", help="the virtual cluster (default)")
    parser.add_argument("--journal-replicas", metavar="N", default="", help="copies of the new journal (1)")
    parser.add_argument("--dry-run", action="store_true", help="report the result, but change nothing")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.set_defaults(run=run)


def run(
    arguments: argparse.Namespace,
    *,
    program: Sequence[str] | None = None,
    is_installed: Callable[[], bool] = has_sequencer,
) -> int:
    """Rebuild the journal; 0 if that succeeded or a dry run found it possible, 1 with one sentence if not."""
    try:
        check_is_installed(is_installed=is_installed())
        program = program or sequencer_program("rebuild")
        if arguments.nats_url:
            return _rebuild(program, arguments, arguments.nats_url, arguments.store)
        data = Path(arguments.data).expanduser().absolute()
        if not data.is_dir():
            raise Invalid(f"there is no folder {data}; name the folder of `penstock up` with --data")
        with take_folder(data), _nats_server(data) as url:
            store = arguments.store or recorded_store(data)
            if store.partition("?")[0] != own_store(data):  # its options may have keys for encryption
                return _rebuild(program, arguments, url, store)
            # This process has the lock of the folder. So no other process writes to its store, and no wait is needed.
            return _rebuild(program, arguments, url, store, **{"archive-age-min-s": "0"})
    except PenstockError as error:
        print(f"penstock: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED_EXIT_CODE


def _rebuild(program: Sequence[str], arguments: argparse.Namespace, nats_url: str, store_url: str, **more: str) -> int:
    options = {
        "nats-url": nats_url,
        "store-url": store_url,
        "cluster": arguments.cluster,
        "journal-replicas": arguments.journal_replicas,
        "dry-run": str(arguments.dry_run).lower(),
        "json": str(arguments.json).lower(),
        **more,
    }
    return run_program(program, options)


@contextlib.contextmanager
def _nats_server(data: Path) -> Iterator[str]:
    """The address of a nats-server on the folder's journal, which runs for the length of a block."""
    folder, log_path = data / "nats", data / "logs" / "nats-server.log"
    with reserved_port() as port:
        config = folder / "nats-server.conf"
        write_config(config, store_dir=folder / "jetstream", host="127.0.0.1", port=port)
        argv = [str(find_nats_server()), "--config", str(config)]
        # In a new session, so that Ctrl-C ends the rebuild first, and the server after it.
        with (
            log_path.open("ab") as log,
            subprocess.Popen(
                argv, stdout=log, stderr=log, preexec_fn=die_with_parent, start_new_session=True
            ) as server,
        ):
            try:
                yield f"nats://127.0.0.1:{port}"
                if server.poll() is not None:
                    raise Unavailable(f"the nats-server ended: {last_words(log_path)}")
            finally:
                server.terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    server.wait(STOP_TIMEOUT_S)
                server.kill()

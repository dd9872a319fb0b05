"""The addresses of a running cluster, for commands that query its services and read its store."""

import argparse
import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.cli.output import show
from penstock.contracts.errors import Invalid, PenstockError
from penstock.contracts.ids import check_token

if TYPE_CHECKING:  # imported when a command runs, so that the help of commands costs little
    from penstock.runtime.bus.bus import Bus
    from penstock.runtime.nats.client import NatsConnection
    from penstock.runtime.process.env_file import EnvFile
    from penstock.spark.config import ClusterAddress

TLS_SETTINGS = ("NATS_TLS_CA", "NATS_TLS_CERTIFICATE", "NATS_TLS_KEY")
DATA_DEFAULT = "./penstock-data"
INTERRUPTED_EXIT_CODE = 130  # the convention of shells for Ctrl-C


def run(arguments: argparse.Namespace) -> int:
    """Run the verb `run_verb` and print its text or result; 0 if that succeeded, 1 with one sentence if not."""
    from penstock.runtime.process.logs import configure_logs

    configure_logs(arguments.command, arguments.command, "error", "auto")
    try:
        result = asyncio.run(arguments.run_verb(arguments))
        if not isinstance(result, str):
            return show(result, arguments.output)
        print(result)
    except PenstockError as error:
        print(f"penstock: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED_EXIT_CODE
    return 0


def add_cluster_flags(parser: argparse.ArgumentParser, *, with_store: bool = True, with_cluster: bool = True) -> None:
    """Add the flags that select a cluster, without its store for commands that read no objects.

    Commands for all clusters of a deployment have no flag for the name of one.
    """
    parser.add_argument(
        "--data", metavar="DIR", default=DATA_DEFAULT, help="the folder of a running `penstock up` (%(default)s)"
    )
    parser.add_argument(
        "--nats-url", metavar="URL", default="", help="NATS servers, in place of --data [PENSTOCK_NATS_URL]"
    )
    if with_store:
        parser.add_argument(
            "--store", metavar="URL", default="", help="object store (that of --data) [PENSTOCK_STORE_URL]"
        )
    if with_cluster:
        parser.add_argument(
            "--cluster", metavar="NAME", default="", help="the virtual cluster (default) [PENSTOCK_CLUSTER]"
        )
    parser.add_argument(
        "--env-file",
        metavar="FILE",
        default="",
        help="file of NAME=value lines, as for a service [PENSTOCK_ENV_FILE]",
    )


def read_cluster(arguments: argparse.Namespace) -> "ClusterAddress":
    """The cluster named by flags, environment or env file, in this order; else the one in --data.

    `Invalid` with one sentence if no cluster runs there.
    """
    from penstock.cli.data_folder import recorded_store
    from penstock.objectstore import absolute_address
    from penstock.runtime.process.env_file import ENV_FILE_VARIABLE, read_env_file, with_store_keys
    from penstock.spark.config import CLUSTER_DEFAULT, ClusterAddress

    file = read_env_file(arguments.env_file or os.environ.get(ENV_FILE_VARIABLE, ""))
    nats_url = _setting(arguments.nats_url, "NATS_URL", file)
    store_url = _setting(getattr(arguments, "store", ""), "STORE_URL", file)
    data = Path(arguments.data).expanduser().absolute()
    if nats_url and not store_url and hasattr(arguments, "store"):
        raise Invalid("no object store is named: give --store or PENSTOCK_STORE_URL")
    if nats_url:
        nats = (nats_url, _setting("", "NATS_USER", file), _setting("", "NATS_PASSWORD", file))
    else:
        nats = _nats_of(data)
    address = ClusterAddress(
        check_token("cluster", _setting(getattr(arguments, "cluster", ""), "CLUSTER", file) or CLUSTER_DEFAULT),
        *nats,
        with_store_keys(absolute_address(store_url) if store_url else recorded_store(data), file, os.environ),
        *(_setting("", name, file) if nats_url else "" for name in TLS_SETTINGS),
    )
    return address.with_landing()


@contextlib.asynccontextmanager
async def connected(cluster: "ClusterAddress", name: str) -> AsyncIterator["NatsConnection"]:
    """A connection to the cluster's NATS for the length of a block; the servers show `name` for it."""
    from penstock.runtime.nats.client import connect_nats

    connection = await connect_nats(
        cluster.nats_url,
        name=name,
        user=cluster.nats_user,
        password=cluster.nats_password,
        tls=cluster.nats_tls,
    )
    try:
        yield connection
    finally:
        await connection.close()


@contextlib.asynccontextmanager
async def connected_bus(cluster: "ClusterAddress", name: str) -> AsyncIterator["Bus"]:
    """A bus to the cluster's services for the length of a block, over a connection of its own."""
    async with connected(cluster, name) as connection:
        yield connection.bus


def _setting(flag: str, name: str, file: "EnvFile") -> str:
    variable = f"PENSTOCK_{name}"
    return flag or os.environ.get(variable, "") or file.settings.get(variable, "")


def _nats_of(data: Path) -> tuple[str, str, str]:
    """The address, the user and the password of the nats-server of the `penstock up` that uses the folder."""
    from penstock.cli.data_folder import client_file, is_taken
    from penstock.runtime.process.env_file import read_env_file

    path = client_file(data)
    if not path.exists():
        raise Invalid(
            f"no `penstock up` has run in {data}; name its folder with --data, or the servers with --nats-url"
        )
    if not is_taken(data):
        raise Invalid(f"the `penstock up` of {data} does not run; start it, or name another folder with --data")
    found = read_env_file(str(path)).settings
    return found["PENSTOCK_NATS_URL"], found["PENSTOCK_NATS_USER"], found["PENSTOCK_NATS_PASSWORD"]

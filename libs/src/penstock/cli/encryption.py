"""`penstock encryption`: lists the keys that the objects of a store are encrypted with."""

import argparse
import os
from pathlib import Path

from penstock.cli.command_line import NewParser
from penstock.cli.data_folder import recorded_store
from penstock.cli.output import Listing, add_output_flag
from penstock.cli.running import DATA_DEFAULT, read_cluster, run
from penstock.contracts.errors import Invalid
from penstock.objectstore import absolute_address, open_store
from penstock.objectstore.encryption import EncryptedStore, keys_in_use
from penstock.runtime.process.env_file import ENV_FILE_VARIABLE, read_env_file, with_store_keys
from penstock.runtime.process.landing import needs_servers

STORE_VARIABLE = "PENSTOCK_STORE_URL"


def add_parser(new_parser: NewParser) -> None:
    """Register `penstock encryption` with the command line."""
    parser = new_parser(
        description="Count the objects of a store by the key that each is encrypted with. An old key can be removed "
        "from the key file when no object needs it. The command reads a few bytes of every object.",
    )
    parser.add_argument(
        "--data", metavar="DIR", default=DATA_DEFAULT, help="the folder of a `penstock up` (%(default)s)"
    )
    parser.add_argument(
        "--store", metavar="URL", default="", help=f"object store, in place of --data [{STORE_VARIABLE}]"
    )
    parser.add_argument(
        "--env-file",
        metavar="FILE",
        default="",
        help=f"file of NAME=value lines, as for a service [{ENV_FILE_VARIABLE}]",
    )
    add_output_flag(parser)
    parser.set_defaults(run=run, run_verb=_list)


async def _list(arguments: argparse.Namespace) -> Listing:
    store = await open_store(_address(arguments))
    try:
        if not isinstance(store, EncryptedStore):
            raise Invalid("the address of the store names no encryption_keys, so its objects are not encrypted")
        used = await keys_in_use(store, "")
    finally:
        await store.close()
    rows = [{"key": name, "objects": use.objects, "size_bytes": use.size_bytes} for name, use in sorted(used.items())]
    return Listing(rows, "there are no objects")


def _address(arguments: argparse.Namespace) -> str:
    file = read_env_file(arguments.env_file or os.environ.get(ENV_FILE_VARIABLE, ""))
    url = arguments.store or os.environ.get(STORE_VARIABLE, "") or file.settings.get(STORE_VARIABLE, "")
    data = Path(arguments.data).expanduser().absolute()
    address = with_store_keys(absolute_address(url) if url else recorded_store(data), file, os.environ)
    if not needs_servers(address):
        return address
    return read_cluster(argparse.Namespace(**vars(arguments), nats_url="", cluster="")).store_url

"""`penstock bucket`: creates the bucket of the store as soon as the S3 server answers."""

import argparse
import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

from penstock.cli.command_line import NewParser
from penstock.contracts.errors import Invalid, PenstockError, Unavailable
from penstock.objectstore import make_bucket
from penstock.runtime.process.env_file import ENV_FILE_VARIABLE, read_env_file, with_store_keys

STORE_URL_VARIABLE = "PENSTOCK_STORE_URL"
WAIT_S = 60.0  # for a server that starts at the same time as this command
RETRY_S = 0.25
MakeBucket = Callable[[str], Awaitable[bool]]  # takes the store's URL; whether the bucket was created


def add_parser(new_parser: NewParser) -> None:
    """Register `penstock bucket` with the command line."""
    parser = new_parser(description="Create the bucket of an S3 store unless it exists. Wait until the server answers.")
    parser.add_argument(
        "--store-url",
        metavar="URL",
        default="",
        help=f"s3://BUCKET/PREFIX?endpoint=URL [{STORE_URL_VARIABLE}]",
    )
    parser.add_argument(
        "--env-file",
        metavar="FILE",
        default="",
        help=f"file of NAME=value lines, such as AWS_ACCESS_KEY_ID [{ENV_FILE_VARIABLE}]",
    )
    parser.add_argument(
        "--wait-s", metavar="N", type=float, default=WAIT_S, help="seconds to wait for the server (%(default)g)"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace, *, make: MakeBucket = make_bucket, retry_s: float = RETRY_S) -> int:
    """Create the bucket; 0 if it exists now, 1 with one sentence if not."""
    try:
        url = _store_url(arguments.store_url, arguments.env_file)
        was_made = asyncio.run(until_made(url, arguments.wait_s, make=make, retry_s=retry_s))
    except PenstockError as error:
        print(f"penstock: {error}", file=sys.stderr)
        return 1
    print(f"{'created' if was_made else 'found'} bucket {urlsplit(url).netloc}")
    return 0


def _store_url(url: str, path: str) -> str:
    file = read_env_file(path or os.environ.get(ENV_FILE_VARIABLE, ""))
    url = url or os.environ.get(STORE_URL_VARIABLE) or file.settings.get(STORE_URL_VARIABLE, "")
    if not url:
        raise Invalid(f"no bucket is named: give --store-url or {STORE_URL_VARIABLE}")
    return with_store_keys(url, file, os.environ)


async def until_made(url: str, wait_s: float, *, make: MakeBucket = make_bucket, retry_s: float = RETRY_S) -> bool:
    """Create the bucket as soon as the server answers; return whether it was created.

    `Unavailable` after `wait_s` seconds.
    """
    reason = "the server does not answer"
    try:
        async with asyncio.timeout(wait_s):
            while True:
                try:
                    return await make(url)
                except Unavailable as error:
                    reason = str(error)
                await asyncio.sleep(retry_s)
    except TimeoutError as error:
        raise Unavailable(f"{reason}; gave up after {wait_s:g} s") from error

"""Opens the stores of both clouds, with the options of their addresses."""

import contextlib
from collections.abc import Awaitable, Callable, Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import aiohttp
from obstore.exceptions import BaseError
from obstore.store import AzureStore, GCSStore

from penstock.contracts.errors import Invalid, PenstockError, Unavailable
from penstock.objectstore.clouds.blocks import Blocks
from penstock.objectstore.clouds.errors import sentence
from penstock.objectstore.clouds.parts import begin_object_parts
from penstock.objectstore.clouds.store import BeginParts, CloudStore
from penstock.objectstore.limits import DEFAULT_LIMITS, CloudLimits
from penstock.objectstore.store import check_key
from penstock.runtime.clock import Entropy

GCS_OPTIONS = ("endpoint", "credentials_file")
AZURE_OPTIONS = ("account", "account_key", "account_key_file", "endpoint")


async def open_gcs_store(
    bucket: str,
    prefix: str,
    options: Mapping[str, str],
    *,
    entropy: Entropy,
    limits: CloudLimits = DEFAULT_LIMITS.clouds,
) -> CloudStore:
    """The store in a bucket below a prefix; `Invalid` or `Unavailable` with one sentence if it cannot be used.

    Without `credentials_file`, Google's usual credentials are used: of the environment, or of the machine.
    """
    _check(GCS_OPTIONS, "gs", bucket, prefix, options)
    names = {"endpoint": "base_url", "credentials_file": "service_account"}
    config = {names[option]: value for option, value in options.items()}
    with _in_one_sentence(bucket):
        client = GCSStore(bucket, config=config, **_client_settings(options, limits))  # type: ignore[arg-type]
    return await _opened(client, bucket, prefix, begin_object_parts, None, entropy=entropy, limits=limits)


async def open_azure_store(
    container: str,
    prefix: str,
    options: Mapping[str, str],
    *,
    entropy: Entropy,
    limits: CloudLimits = DEFAULT_LIMITS.clouds,
) -> CloudStore:
    """The store in a container below a prefix; `Invalid` or `Unavailable` with one sentence if it cannot be used.

    Without a key, credentials come from Azure's usual sources: environment, workload identity, or managed identity.
    """
    _check(AZURE_OPTIONS, "az", container, prefix, options)
    names = {"account": "account_name", "account_key": "account_key", "endpoint": "endpoint"}
    config = {names[option]: value for option, value in options.items() if option in names}
    if "account_key_file" in options:
        config["account_key"] = _key_in(options["account_key_file"])
    with _in_one_sentence(container):
        client = AzureStore(container, config=config, **_client_settings(options, limits))  # type: ignore[arg-type]
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=limits.connect_timeout_s, sock_read=limits.read_timeout_s)
    session = aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(limit=limits.connections_max))
    session._retry_connection = False  # a repeated commit could find the object of the first one
    blocks = Blocks(session, timedelta(seconds=limits.signed_s))
    return await _opened(client, container, prefix, blocks.begin, session.close, entropy=entropy, limits=limits)


async def _opened(
    client: Any,
    bucket: str,
    prefix: str,
    begin_parts: BeginParts,
    close: Callable[[], Awaitable[None]] | None,
    *,
    entropy: Entropy,
    limits: CloudLimits,
) -> CloudStore:
    store = CloudStore(client, f"{prefix}/" if prefix else "", begin_parts, entropy=entropy, limits=limits, close=close)
    async with contextlib.AsyncExitStack() as undo:
        undo.push_async_callback(store.close)
        with _in_one_sentence(bucket):
            await store.list("", limit=1)
        undo.pop_all()
    return store


def _client_settings(options: Mapping[str, str], limits: CloudLimits) -> dict[str, Any]:
    """The settings of a client without its own retries, because `retrying` has them and knows what is in doubt."""
    client = {
        "allow_http": options.get("endpoint", "").startswith("http://"),
        "connect_timeout": timedelta(seconds=limits.connect_timeout_s),
        "read_timeout": timedelta(seconds=limits.read_timeout_s),
        "timeout": timedelta(seconds=limits.request_timeout_s),
        "pool_max_idle_per_host": str(limits.connections_max),
    }
    return {"client_options": client, "retry_config": {"max_retries": 0}}


def _check(known: tuple[str, ...], scheme: str, bucket: str, prefix: str, options: Mapping[str, str]) -> None:
    unknown = sorted(set(options) - set(known))
    if unknown:
        raise Invalid(f"no {scheme} option {unknown[0]!r}; there are {', '.join(known)}")
    if not bucket:
        raise Invalid(f"the address needs a name: {scheme}://NAME/prefix")
    if "account_key" in options and "account_key_file" in options:
        raise Invalid("az options account_key and account_key_file exclude each other")
    if prefix:
        check_key(prefix)


def _key_in(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        raise Invalid(f"cannot read the key file {path}: {error}") from error


@contextlib.contextmanager
def _in_one_sentence(name: str) -> Iterator[None]:
    """Make one sentence of each error, with the bucket or container that cannot be used."""
    try:
        yield
    except PenstockError as error:
        ours = Unavailable if isinstance(error, Unavailable) else Invalid
        raise ours(f"cannot use bucket or container {name}: {error}") from error
    except (BaseError, ValueError) as error:  # of the settings
        raise Invalid(f"cannot use bucket or container {name}: {sentence(error)}") from error

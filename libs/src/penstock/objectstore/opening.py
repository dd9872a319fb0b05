"""Opens the store at an address (file://, s3://, gs://, az://, memory:// or jetstream://), and creates its bucket."""

import contextlib
import enum
from collections.abc import Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import parse_qsl, quote, unquote, urlsplit

import msgspec
import prometheus_client

from penstock.contracts.errors import Invalid
from penstock.objectstore.encryption import OPTIONS as ENCRYPTION_OPTIONS, check_marker, read_encryption
from penstock.objectstore.file import open_file_store
from penstock.objectstore.landed import LandedStore
from penstock.objectstore.limits import DEFAULT_LIMITS, S3Limits, StoreLimits
from penstock.objectstore.measured import MeasuredStore
from penstock.objectstore.memory import MemoryStore
from penstock.objectstore.quorum import MEMBERS, Member, QuorumMetrics, QuorumStore, SetDegraded
from penstock.objectstore.retrying import RetryingStore
from penstock.objectstore.store import ObjectStore
from penstock.runtime.clock import Clock, Entropy, SystemClock, SystemEntropy, fraction
from penstock.segment.keys import is_landing_key, may_list_segments

LOCAL_READS = "local_reads"  # an option of addresses: whether gateways read ranges without cachers
CLOUDS = {"gs": "gcs", "az": "azure"}  # the extra with the library of each scheme
LANDING = "landing"  # an option of addresses: the address of the landing store; three of them are a quorum
LANDING_FOR = "landing_for"  # an option of addresses: the new segments that go to the landing store


class LandingFor(enum.Enum):
    """The new segments that go to the landing store. The segments that are there are read in any case."""

    EXPRESS = "express"
    ALL = "all"
    NOTHING = "nothing"  # to remove the landing store


async def open_store(
    url: str,
    *,
    registry: prometheus_client.CollectorRegistry | None = None,
    clock: Clock | None = None,
    entropy: Entropy | None = None,
    limits: StoreLimits = DEFAULT_LIMITS,
    set_degraded: SetDegraded = lambda _name, _reason: None,
) -> ObjectStore:
    """The store at an address, with retries and, if there is a registry, with metrics.

    Raises `Invalid` or `Unavailable` with one clear sentence if the store cannot be used. The addresses are:

    - file:///absolute/folder or file://./relative/folder; local_reads=off for a folder on a slow network: then gateways
      read through cachers
    - s3://bucket/prefix?endpoint=http://host:port&region=...&access_key=...&secret_key=...&addressing=path|virtual;
      all options are optional; for encryption by the server sse=s3, sse=kms&sse_kms_key=..., or
      sse=customer&sse_key_file=/path
    - gs://bucket/prefix?endpoint=...&credentials_file=/path; without a file the usual credentials of Google are used
    - az://container/prefix?account=...&account_key=...&account_key_file=/path&endpoint=...; without a key the usual
      credentials of Azure are used
    - memory://name; its objects have the times of `clock`; local_reads=on to read as from a folder
    - jetstream://host:port,host:port/name?user=...&password=...&tls_ca=/path&tls_certificate=/path&tls_key=/path
      &replicas=3&bytes_max=...; only for small objects

    With the option landing=..., the encoded address of another store, landed segments are in that store (`landed`).
    With three such options they are in three stores (`quorum`). `set_degraded` gets the problems of one.
    With the option encryption_keys=/path or encryption_keys=command:..., each of them holds encrypted objects; see
    `encryption`.
    """
    clock, entropy = clock or SystemClock(), entropy or SystemEntropy()
    address = _parsed(url)
    encryption = await read_encryption(address.encryption, entropy)
    parts = _Parts(clock, entropy, limits, registry, set_degraded)
    raw = await _open_both(address, parts)

    def retrying(inner: ObjectStore) -> ObjectStore:
        return RetryingStore(
            inner, jitter=lambda: fraction(entropy), limits=limits.retry, monotonic_s=clock.monotonic_s
        )

    async with contextlib.AsyncExitStack() as undo:
        undo.push_async_callback(raw.close)
        await check_marker(retrying(raw), encryption)
        undo.pop_all()
    measured = raw if registry is None else MeasuredStore(raw, registry, clock=clock)
    # Retries are inside, so that each attempt sends the same bytes.
    return encryption.around(retrying(measured))


def has_landing(url: str) -> bool:
    """Whether the store at this address has a landing store."""
    return bool(_parsed(url).landing)


def landing_for(url: str) -> LandingFor:
    """The new segments that go to the landing store of this address."""
    address = _parsed(url)
    return address.landing_for if address.landing else LandingFor.NOTHING


def absolute_address(url: str) -> str:
    """The address for processes that may run in other folders: a folder in it is absolute."""
    scheme, separator, rest = url.partition("://")
    if scheme != "file" or not separator or not rest:
        return url
    folder, mark, options = rest.partition("?")
    return folder_address(Path(unquote(folder)).absolute()) + mark + options


def folder_address(folder: Path) -> str:
    """The address of the store in a folder."""
    return f"file://{quote(str(folder))}"


async def make_bucket(url: str, *, limits: S3Limits = DEFAULT_LIMITS.s3) -> bool:
    """Create the bucket of an s3:// address unless it exists; returns whether it was created.

    Raises `Invalid` or `Unavailable` with one clear sentence if there is no bucket afterwards, or if it cannot be
    listed.
    """
    if not url.startswith("s3://"):
        raise Invalid("only a store at s3://bucket has a bucket")
    from penstock.objectstore.s3 import make_s3_bucket

    address = _parsed(url)
    return await make_s3_bucket(urlsplit(address.place).netloc, address.options, limits=limits)


class _Address(msgspec.Struct, frozen=True):
    """The parts of an address; the options may have keys, so they must not be shown."""

    place: str  # without options
    options: dict[str, str]
    encryption: dict[str, str]
    landing: Sequence[str] = ()  # the addresses of the landing stores: none, one or three
    landing_for: LandingFor = LandingFor.EXPRESS


class _Parts(msgspec.Struct, frozen=True):
    """The parts that stores need."""

    clock: Clock
    entropy: Entropy
    limits: StoreLimits
    registry: prometheus_client.CollectorRegistry | None
    set_degraded: SetDegraded


def _parsed(url: str) -> _Address:
    place, _, query = url.partition("?")
    try:
        given = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query))
    except ValueError as error:
        raise Invalid("the options of a store address must be name=value, joined by '&'") from error
    landing = [value for name, value in given if name == LANDING and value]
    options = {name: value for name, value in given if name != LANDING}
    encryption = {name: options.pop(name) for name in ENCRYPTION_OPTIONS if name in options}
    lands = _landing_for(landing, options.pop(LANDING_FOR, None))
    return _Address(place, options, encryption, landing, lands)


def _landing_for(landing: Sequence[str], given: str | None) -> LandingFor:
    """The value of the option; `Invalid` unless it fits the landing stores."""
    if len(landing) not in (0, 1, MEMBERS):
        raise Invalid(f"{len(landing)} landing stores: give the option {LANDING} once, or {MEMBERS} times for a quorum")
    if len(set(landing)) < len(landing):
        raise Invalid(f"the {MEMBERS} landing stores must be different stores")
    if given is None:
        return LandingFor.EXPRESS
    if not landing:
        raise Invalid(f"the option {LANDING_FOR} needs the option {LANDING}")
    try:
        lands = LandingFor(given)
    except ValueError as error:
        raise Invalid(f"{LANDING_FOR} is {', '.join(each.value for each in LandingFor)}: {given!r}") from error
    if lands is LandingFor.ALL and any(each.startswith("jetstream:") for each in landing):
        raise Invalid(f"{LANDING_FOR}=all needs a store other than jetstream, which is on the disks of the journal")
    return lands


async def _open_both(address: _Address, parts: _Parts) -> ObjectStore:
    """The store at the address, with its landing store if it has one."""
    if not address.landing:
        return await _open(address, parts)
    inner = [_inner(each) for each in address.landing]
    final = await _open(address, parts)
    async with contextlib.AsyncExitStack() as undo:
        undo.push_async_callback(final.close)
        landing = await _open(inner[0], parts) if len(inner) == 1 else await _open_quorum(inner, parts)
        undo.pop_all()
    return LandedStore(final, landing, is_landing_key, may_list_segments)


def _inner(url: str) -> _Address:
    address = _parsed(url)
    if address.place == "jetstream:":
        raise Invalid(
            "landing=jetstream: stands for the NATS servers of a service; here give landing=jetstream://host:port/NAME"
        )
    if address.landing or address.encryption:
        raise Invalid("a landing store has no landing store of its own, and no encryption of its own")
    return address


async def _open_quorum(addresses: Sequence[_Address], parts: _Parts) -> ObjectStore:
    """The three stores as one; one of them may be absent."""
    metrics = None if parts.registry is None else QuorumMetrics(parts.registry)
    places = [address.place for address in addresses]
    members = [
        Member(
            f"{address.place} ({number})" if places.count(address.place) > 1 else address.place,
            partial(_open, address, parts),
            monotonic_s=parts.clock.monotonic_s,
            limits=parts.limits.quorum,
            metrics=metrics,
            set_degraded=parts.set_degraded,
        )
        for number, address in enumerate(addresses, 1)
    ]
    store = QuorumStore(members, parts.limits.quorum)
    async with contextlib.AsyncExitStack() as undo:
        undo.push_async_callback(store.close)
        await store.open()
        undo.pop_all()
    return store


async def _open(address: _Address, parts: _Parts) -> ObjectStore:
    clock, entropy, limits = parts.clock, parts.entropy, parts.limits
    scheme, separator, rest = address.place.partition("://")
    if not separator or not rest:
        raise Invalid(
            "a store address is file://folder, s3://bucket/prefix, gs://bucket/prefix, az://container/prefix, "
            "memory://name or jetstream://server/name"
        )
    if scheme == "file":
        has_local_reads = _has_local_reads(address, scheme, default="on")
        folder = Path(unquote(rest))
        return await open_file_store(folder, entropy=entropy, limits=limits.file, has_local_reads=has_local_reads)
    if scheme == "memory":
        has_local_reads = _has_local_reads(address, scheme, default="off")
        return MemoryStore(rest, now_ms=clock.now_ms, has_local_reads=has_local_reads)
    if scheme == "s3":
        from penstock.objectstore.s3 import open_s3_store  # its libraries are optional, and slow to import

        place = urlsplit(address.place)
        prefix = unquote(place.path).strip("/")
        return await open_s3_store(place.netloc, prefix, address.options, limits=limits.s3)
    if scheme in CLOUDS:
        return await _open_in_cloud(scheme, address, entropy, limits)
    if scheme == "jetstream":
        from penstock.objectstore.jetstream import open_jetstream_store  # slow to import, and rarely needed

        return await open_jetstream_store(address.place, address.options, entropy=entropy, limits=limits.jetstream)
    raise Invalid(f"no store of kind {scheme!r}; there are file, s3, gs, az, memory and jetstream")


async def _open_in_cloud(scheme: str, address: _Address, entropy: Entropy, limits: StoreLimits) -> ObjectStore:
    """The store at a gs:// or az:// address; its library is optional."""
    if find_spec("obstore") is None:
        raise Invalid(f"a store at {scheme}:// needs the library obstore: pip install 'penstock[{CLOUDS[scheme]}]'")
    from penstock.objectstore.clouds import open_azure_store, open_gcs_store

    parts = urlsplit(address.place)
    prefix = unquote(parts.path).strip("/")
    opened = open_gcs_store if scheme == "gs" else open_azure_store
    return await opened(parts.netloc, prefix, address.options, entropy=entropy, limits=limits.clouds)


def _has_local_reads(address: _Address, scheme: str, *, default: str) -> bool:
    """The only option of a store that is not in S3, besides those of encryption."""
    wrong = sorted(set(address.options) - {LOCAL_READS})
    if wrong:
        raise Invalid(f"no {scheme} option {wrong[0]!r}; there are {', '.join((LOCAL_READS, *ENCRYPTION_OPTIONS))}")
    value = address.options.get(LOCAL_READS, default)
    if value not in ("on", "off"):
        raise Invalid(f"{LOCAL_READS} must be on or off: {value!r}")
    return value == "on"

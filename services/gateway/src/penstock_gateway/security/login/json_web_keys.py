"""The public keys of an issuer of tokens (JSON Web Key Set, RFC 7517), loaded at intervals."""

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import aiohttp
import msgspec
import structlog

from penstock.contracts.errors import Invalid, Unavailable
from penstock.runtime.concurrency.single_flight import SingleFlight

if TYPE_CHECKING:  # imported with the first keys, because few gateways have this login
    import jwt

# By key type and curve, the algorithms that a key without `alg` may be used with. No secret keys: an issuer that signs
# with a shared secret would let every gateway make tokens.
ALGORITHMS_OF: Mapping[tuple[str, str], tuple[str, ...]] = MappingProxyType(
    {
        ("RSA", ""): ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
        ("EC", "P-256"): ("ES256",),
        ("EC", "P-384"): ("ES384",),
        ("EC", "P-521"): ("ES512",),
        ("OKP", "Ed25519"): ("EdDSA",),
    }
)
ALGORITHMS = tuple(name for names in ALGORITHMS_OF.values() for name in names)
LOOPBACK_HOSTS = ("127.0.0.1", "::1", "localhost")

Load = Callable[[], Awaitable[bytes]]

_KEYS = "keys"  # the only load of a `KeySet`

log = structlog.get_logger()


class KeySetLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The waits for an issuer's keys, and their size."""

    timeout_s: float = 5.0
    retry_s: float = 5.0  # after a failure
    # A token with an unknown key lets the keys be loaded at once, but not more often than this: clients make tokens.
    early_s_min: float = 5.0
    bytes_max: int = 1024 * 1024
    keys_max: int = 100


class _JsonWebKeySet(msgspec.Struct, frozen=True):
    keys: list[dict[str, object]]


class KeySet:
    """The keys of one issuer, by key id and algorithm."""

    def __init__(
        self,
        load: Load,
        *,
        algorithms: Sequence[str],
        refresh_s: float,
        monotonic_s: Callable[[], float],
        limits: KeySetLimits | None = None,
    ) -> None:
        self._load = load
        self._algorithms = algorithms
        self._refresh_s = refresh_s
        self._monotonic_s = monotonic_s
        self._limits = limits or KeySetLimits()
        self._keys: dict[tuple[str, str], jwt.PyJWK] = {}
        self._tried_s = -math.inf
        self._loads: SingleFlight[str, bool] = SingleFlight()

    async def run(self) -> None:
        """Load the keys now and at intervals, until cancelled. The last good ones stay while the issuer is away."""
        try:
            while True:
                is_loaded = await self.refresh()
                await asyncio.sleep(self._refresh_s if is_loaded else min(self._limits.retry_s, self._refresh_s))
        finally:
            await self._loads.close()

    async def find(self, key_id: str, algorithm: str) -> "jwt.PyJWK | None":
        """The key with this id, after a reload if it is new; `Unavailable` while no keys are known.

        A token without a key id (empty here) fits only if one key has its algorithm.
        """
        found = self._find(key_id, algorithm)
        if found is None:
            await self._reload()
            found = self._find(key_id, algorithm)
        if found is None and not self._keys:
            raise Unavailable("the keys of the issuer of tokens are not known yet")
        return found

    async def refresh(self) -> bool:
        """Load the keys now; whether that succeeded.

        Tokens that come meanwhile wait for the same keys. So the load goes on when the client of the first one leaves.
        """
        return await self._loads.get(_KEYS, self._load_keys)

    async def _load_keys(self) -> bool:
        self._tried_s = self._monotonic_s()
        try:
            async with asyncio.timeout(self._limits.timeout_s):
                keys = parse_keys(await self._load(), self._algorithms, self._limits)
        except (Invalid, OSError, aiohttp.ClientError, TimeoutError) as error:
            log.warning("token_keys_not_loaded", error=f"{type(error).__name__}: {error}")
            return False
        self._keys = keys
        return True

    async def _reload(self) -> None:
        if _KEYS in self._loads or self._monotonic_s() - self._tried_s >= self._limits.early_s_min:
            await self.refresh()

    def _find(self, key_id: str, algorithm: str) -> "jwt.PyJWK | None":
        if key_id:
            return self._keys.get((key_id, algorithm))
        fitting = [key for (_, each), key in self._keys.items() if each == algorithm]
        return fitting[0] if len(fitting) == 1 else None


def parse_keys(document: bytes, algorithms: Sequence[str], limits: KeySetLimits) -> "dict[tuple[str, str], jwt.PyJWK]":
    """The usable keys of a set, by id and algorithm; `Invalid` if it is malformed or has none."""
    import jwt

    if len(document) > limits.bytes_max:
        raise Invalid(f"more than {limits.bytes_max} bytes of keys")
    try:
        described = msgspec.json.decode(document, type=_JsonWebKeySet).keys
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise Invalid(f"not a JSON Web Key Set: {error}") from error
    found: dict[tuple[str, str], jwt.PyJWK] = {}
    for number, key in enumerate(described[: limits.keys_max]):
        for algorithm in _algorithms(key):
            if algorithm not in algorithms:
                continue
            try:
                found[str(key.get("kid") or f"#{number}"), algorithm] = jwt.PyJWK(key, algorithm)
            except jwt.PyJWTError:  # its text may have the key
                log.warning("token_key_unusable", number=number, algorithm=algorithm)
    if not found:
        raise Invalid("no key has an accepted algorithm")
    return found


def _algorithms(key: Mapping[str, object]) -> Sequence[str]:
    """The algorithms of a public key for signatures; none for other keys."""
    if key.get("use", "sig") != "sig" or "d" in key:
        return ()
    kind = str(key.get("kty", ""))
    fitting = ALGORITHMS_OF.get((kind, "" if kind == "RSA" else str(key.get("crv", ""))), ())
    own = key.get("alg")
    return fitting if own is None else [each for each in fitting if each == own]


def source_of(url: str, limits: KeySetLimits | None = None) -> Load:
    """Loads the bytes at file:///path, https://..., or http://... of this machine; `Invalid` for other URLs.

    Plain HTTP over a network would let an attacker on the way replace the keys.
    """
    bytes_max = (limits or KeySetLimits()).bytes_max
    parts = urlsplit(url)
    if parts.scheme == "file" and parts.path and not parts.netloc:
        path = Path(unquote(parts.path))
        return lambda: asyncio.to_thread(_read_file, path, bytes_max)
    is_local = parts.scheme == "http" and parts.hostname in LOOPBACK_HOSTS
    if not parts.hostname or not (parts.scheme == "https" or is_local):
        raise Invalid(f"keys come from file:///path or https://host/path, plain http only from this machine: {url!r}")
    return lambda: _fetch(url, bytes_max)


def _read_file(path: Path, bytes_max: int) -> bytes:
    with path.open("rb") as file:
        return file.read(bytes_max + 1)


async def _fetch(url: str, bytes_max: int) -> bytes:
    async with aiohttp.ClientSession() as session, session.get(url, allow_redirects=False) as answer:
        if answer.status != 200:
            raise Invalid(f"{url} answers with status {answer.status}")
        return await _read_at_most(answer.content, bytes_max + 1)


async def _read_at_most(content: aiohttp.StreamReader, size_bytes: int) -> bytes:
    read = bytearray()
    while len(read) < size_bytes and (chunk := await content.read(size_bytes - len(read))):
        read += chunk
    return bytes(read)

"""The TLS of listeners: certificates and keys from PEM files, read again when they change.

A new certificate serves new connections, and open ones stay as they are. New files that are wrong change nothing: the
listener keeps its certificate, and an error is logged.
"""

import asyncio
import contextlib
import os
import ssl
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import structlog

from penstock.contracts.configs.quotas import ANONYMOUS
from penstock.contracts.errors import Invalid
from penstock.runtime.clock import Clock
from penstock_gateway.metrics import TlsMetrics
from penstock_gateway.security.listener_security import ClientAuth, ListenerSecurity, TlsFiles
from penstock_gateway.security.principal_rules import PrincipalRules, distinguished_name
from penstock_gateway.security.tls_session import NamedTls

if TYPE_CHECKING:  # imported with the first certificate, because few gateways have any
    from cryptography import x509

VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_VERIFY = {
    ClientAuth.NONE: ssl.CERT_NONE,
    ClientAuth.REQUESTED: ssl.CERT_OPTIONAL,
    ClientAuth.REQUIRED: ssl.CERT_REQUIRED,
}

log = structlog.get_logger()

Version = tuple[tuple[int, ...] | None, ...]  # of each file; None: the file cannot be read


class ReloadLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How often changed files are noticed."""

    poll_s: float = 3.0  # three calls of `stat` for each listener, in a thread


class LoadedTls(msgspec.Struct, frozen=True):
    """A context made from files."""

    context: ssl.SSLContext
    not_before_ms: int
    not_after_ms: int
    subject: str  # of the listener's certificate


def load_tls(listener: str, files: TlsFiles) -> LoadedTls:
    """The context of a listener's files; `Invalid` with one sentence if they do not serve. It reads files."""
    chain = _certificates(listener, "ssl_keystore_certificate_chain", files.certificate_chain)
    _check_key(listener, files.key, chain[0])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = VERSIONS[files.versions[0]]
    context.maximum_version = VERSIONS[files.versions[-1]]
    context.options |= ssl.OP_NO_RENEGOTIATION
    try:
        # The key has no password; the function keeps OpenSSL from asking for one on the terminal.
        context.load_cert_chain(files.certificate_chain, files.key, password=lambda: "")
        if files.trusted_certificates:
            _certificates(listener, "ssl_truststore_certificates", files.trusted_certificates)
            context.load_verify_locations(cafile=files.trusted_certificates)
    except (OSError, ValueError) as error:  # also `ssl.SSLError`: a key that is too weak, or a file that just changed
        raise Invalid(f"listener {listener}: the certificate files do not serve: {error}") from error
    context.verify_mode = _VERIFY[files.client_auth]
    own = chain[0]
    return LoadedTls(
        context,
        round(own.not_valid_before_utc.timestamp() * 1000),
        round(own.not_valid_after_utc.timestamp() * 1000),
        distinguished_name(own.subject),
    )


def _read(listener: str, setting: str, path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise Invalid(f"listener {listener}: cannot read {setting} {path!r}: {reason}") from error


def _certificates(listener: str, setting: str, path: str) -> "list[x509.Certificate]":
    from cryptography import x509

    try:
        return x509.load_pem_x509_certificates(_read(listener, setting, path))
    except ValueError as error:
        raise Invalid(f"listener {listener}: {setting} {path!r} has no valid PEM certificate") from error


def _check_key(listener: str, path: str, certificate: "x509.Certificate") -> None:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    data = _read(listener, "ssl_keystore_key", path)
    try:
        key = load_pem_private_key(data, None)
    except TypeError as error:
        raise Invalid(
            f"listener {listener}: the key in ssl_keystore_key {path!r} has a password, which is not supported"
        ) from error
    except (ValueError, UnsupportedAlgorithm) as error:  # their texts may quote the file, so they stay out
        raise Invalid(f"listener {listener}: ssl_keystore_key {path!r} has no valid PEM private key") from error
    if key.public_key() != certificate.public_key():
        raise Invalid(
            f"listener {listener}: the key in ssl_keystore_key {path!r} does not match the certificate "
            "in ssl_keystore_certificate_chain"
        )


class ListenerTls:
    """The TLS of one listener."""

    def __init__(self, security: ListenerSecurity, clock: Clock) -> None:
        """Read the files; `Invalid` if they or the rules are wrong."""
        assert security.tls is not None, "only a protocol with TLS has files"
        self.name = security.name
        self._files = security.tls
        self._has_login = security.protocol.has_login
        self._rules = PrincipalRules(self._files.principal_mapping_rules)
        self._clock = clock
        # Whether a server name may be asked for; None: all names. A handshake for another one ends with an alert.
        self.accepts_name: Callable[[str], bool] | None = None
        self._read_version = self.version()
        self._loaded = load_tls(self.name, self._files)
        self._warn_of_dates()

    @property
    def context(self) -> ssl.SSLContext:
        """The context for a new connection."""
        context = self._loaded.context
        if self.accepts_name is not None and context.sslobject_class is not NamedTls:
            context.sslobject_class = NamedTls
            context.sni_callback = self._take_name
        return context

    def _take_name(self, tls: ssl.SSLObject | ssl.SSLSocket, name: str | None, _context: ssl.SSLContext) -> int | None:
        """Called during a handshake: keep the server name, or refuse it by the number of an alert."""
        assert isinstance(tls, NamedTls) and self.accepts_name is not None, "the context was prepared for names"
        tls.server_name = name or ""
        tls.is_name_refused = not self.accepts_name(tls.server_name)
        return ssl.AlertDescription.ALERT_DESCRIPTION_UNRECOGNIZED_NAME if tls.is_name_refused else None

    @property
    def not_after_ms(self) -> int:
        """When the certificate expires."""
        return self._loaded.not_after_ms

    def user(self, certificate: bytes | None) -> str:
        """The user of a client's certificate (DER, as TLS has verified it); `Invalid` if it cannot be one."""
        if certificate is None or self._has_login:
            return ANONYMOUS
        from cryptography import x509

        try:
            name = distinguished_name(x509.load_der_x509_certificate(certificate).subject)
        except ValueError as error:
            raise Invalid("the name in the certificate cannot be read") from error
        return self._rules.user(name)

    def version(self) -> Version:
        """The version of the files on disk; it changes with each of them. It reads the file system."""
        files = self._files
        return tuple(_version(path) for path in (files.certificate_chain, files.key, files.trusted_certificates))

    async def reload(self, *, forced: bool) -> bool:
        """Read the files again if they have changed; return whether they were read. `Invalid` if they are wrong.

        Wrong files are read again when they change again, so that one change makes one error.
        """
        version = await asyncio.to_thread(self.version)
        if version == self._read_version and not forced:
            return False
        self._read_version = version
        self._loaded = await asyncio.to_thread(load_tls, self.name, self._files)
        self._warn_of_dates()
        return True

    def log_loaded(self) -> None:
        """Log the certificate that serves now."""
        expires_s = self._loaded.not_after_ms // 1000
        log.info("certificate_loaded", listener=self.name, subject=self._loaded.subject, expires_s=expires_s)

    def _warn_of_dates(self) -> None:
        now_ms, loaded = self._clock.now_ms(), self._loaded
        if now_ms > loaded.not_after_ms:
            log.warning("certificate_expired", listener=self.name, expired_s=loaded.not_after_ms // 1000)
        elif now_ms < loaded.not_before_ms:
            log.warning("certificate_not_valid_yet", listener=self.name, valid_from_s=loaded.not_before_ms // 1000)


def _version(path: str) -> tuple[int, ...] | None:
    if not path:
        return ()
    with contextlib.suppress(OSError, ValueError):
        found = os.stat(path)  # follows links, as Kubernetes replaces secrets by links
        return (found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size)
    return None


class TlsReloader:
    """Looks for changed files of all listeners with TLS."""

    def __init__(
        self, listeners: Sequence[ListenerTls], metrics: TlsMetrics, limits: ReloadLimits | None = None
    ) -> None:
        self._listeners = listeners
        self._metrics = metrics
        self._limits = limits or ReloadLimits()
        self._asked = asyncio.Event()

    def reload_soon(self) -> None:
        """Read all files again now, also those that seem unchanged."""
        self._asked.set()

    async def run(self) -> None:
        """Look for changes until cancelled."""
        for tls in self._listeners:
            self._record_expiry(tls)
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._limits.poll_s):
                    await self._asked.wait()
            forced = self._asked.is_set()
            self._asked.clear()
            for tls in self._listeners:
                await self._reload(tls, forced=forced)

    async def _reload(self, tls: ListenerTls, *, forced: bool) -> None:
        try:
            if not await tls.reload(forced=forced):
                return
        except Invalid as error:
            self._metrics.certificate_reloads.labels("failed").inc()
            log.error("certificate_reload_failed", listener=tls.name, error=str(error))
            return
        self._metrics.certificate_reloads.labels("completed").inc()
        self._record_expiry(tls)
        tls.log_loaded()

    def _record_expiry(self, tls: ListenerTls) -> None:
        self._metrics.certificate_expiry_seconds.labels(tls.name).set(tls.not_after_ms / 1000)

"""The connection to NATS: `connect_nats` returns one connection with a bus and a journal over it."""

import asyncio
import re
import ssl
from collections.abc import Sequence
from urllib.parse import urlsplit

import msgspec
import nats.errors
import prometheus_client

from penstock.contracts.errors import Invalid, Unavailable
from penstock.contracts.ids import check_token
from penstock.runtime.bus.bus import Bus
from penstock.runtime.clock import Entropy, SystemEntropy
from penstock.runtime.journal import Journal
from penstock.runtime.nats.bus import BusLimits, NatsBus
from penstock.runtime.nats.cancellation import finish_within
from penstock.runtime.nats.deletion import delete_stream
from penstock.runtime.nats.journal import JournalLimits, open_journal
from penstock.runtime.nats.patched_client import PatchedClient
from penstock.runtime.nats.tls import NatsTls, client_context


class NatsLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How a connection to NATS is opened and kept, and the limits of the bus and the journal over it."""

    # All attempts together. A server that starts at the same time as this process answers by then.
    connect_deadline_s: float = 5.0
    connect_attempt_s: float = 2.0
    # The time between two attempts. The random part keeps processes from reconnecting all at once.
    reconnect_wait_ms_min: int = 50
    reconnect_wait_ms_spread: int = 50
    # A server that hangs without closing the connection counts as dead after three intervals.
    ping_interval_s: int = 2
    pings_unanswered_max: int = 2
    # Bytes that wait in this process for the socket. Above this, a sender waits; offline, its message is rejected.
    send_buffer_bytes_max: int = 4 * 1024 * 1024
    bus: BusLimits = BusLimits()
    journal: JournalLimits = JournalLimits()


DEFAULT_LIMITS = NatsLimits()
NO_TLS = NatsTls()
_LOGIN = re.compile(r"^(\s*[a-z]+://)?.*@", re.IGNORECASE | re.DOTALL)
_BETWEEN_ADDRESSES = re.compile(r",(?=\s*[a-z]+://)|,(?!.*@)", re.IGNORECASE | re.DOTALL)


class NatsConnection:
    """One connection to NATS: a bus, and journals over it."""

    def __init__(self, bus: NatsBus, limits: NatsLimits = DEFAULT_LIMITS) -> None:
        self._bus = bus
        self._limits = limits

    @property
    def bus(self) -> Bus:
        """The bus over this connection."""
        return self._bus

    @property
    def messages(self) -> NatsBus:
        """The connection's own messages, with headers, for requests to JetStream."""
        return self._bus

    async def journal(self, cluster: str, *, create: bool, replicas: int = 1) -> Journal:
        """The journal of `cluster`.

        `JournalLost` if there is none and `create` is false. `Invalid` if the stream has settings unfit for a journal.
        `Unavailable` if JetStream does not answer.
        """
        return await open_journal(self._bus, cluster, create=create, replicas=replicas, limits=self._limits.journal)

    async def delete_stream(self, name: str) -> None:
        """Delete a stream with all its messages; an absent stream counts as deleted.

        `Unavailable` if JetStream does not answer, `Invalid` if it rejects the deletion.
        """
        await delete_stream(self._bus, name)

    async def close(self) -> None:
        """Close the bus."""
        await self._bus.close()


async def connect_nats(
    url: str,
    *,
    name: str,
    user: str = "",
    password: str = "",
    tls: NatsTls = NO_TLS,
    registry: prometheus_client.CollectorRegistry | None = None,
    entropy: Entropy | None = None,
    limits: NatsLimits = DEFAULT_LIMITS,
    client: PatchedClient | None = None,
) -> NatsConnection:
    """Connect to one of the servers in `url`; `Unavailable` if none answers within `limits.connect_deadline_s`.

    `Invalid` if a text in `url` is not an address. `client` is for callers that observe it; the default is a new one.

    Commas separate several servers, which are tried in the order given, again and again. So traffic stays in the
    zone if `url` names the server of the own zone first. When a connection breaks, the next server in the list is
    used, as long as it lives. With addresses `tls://host:port`, a connection begins with TLS, and `tls` has the files.

    Answers come to `_INBOX.<user>.<random>`. So the servers can limit each user to its own inboxes. Without a user
    they come to `_INBOX.<random>`. `Invalid` if the user is no subject token, or may not subscribe to that inbox.
    """
    random_bytes = (entropy or SystemEntropy()).take(12)
    wait_s = (limits.reconnect_wait_ms_min + limits.reconnect_wait_ms_spread * random_bytes[0] / 255) / 1000
    servers = [checked_server(server) for server in url.split(",")]
    context = _context(servers, tls)
    client = client or PatchedClient()
    owner = f"{check_token('nats user', user)}." if user else ""
    bus = NatsBus(client, f"_INBOX.{owner}{random_bytes[1:].hex()}", registry, limits=limits.bus)
    try:
        connecting = client.connect(
            servers,
            name=name,
            user=user or None,
            password=password or None,
            connect_timeout=limits.connect_attempt_s,  # type: ignore[arg-type]  # a float works
            reconnect_time_wait=wait_s,  # type: ignore[arg-type]  # a float works
            max_reconnect_attempts=-1,
            ping_interval=limits.ping_interval_s,
            max_outstanding_pings=limits.pings_unanswered_max,
            dont_randomize=True,
            # The handshake comes first, so that no network can make this client send its password without TLS.
            tls=context,
            tls_handshake_first=context is not None,
            pending_size=limits.send_buffer_bytes_max,
            # No limit, because each waiting sender takes a slot. With a limit, the pings that detect a hanging server
            # would wait behind the senders.
            flusher_queue_size=0,
            error_cb=bus.on_error,
            disconnected_cb=bus.on_disconnected,
            reconnected_cb=bus.on_reconnected,
            closed_cb=bus.on_closed,
        )
        await finish_within(connecting, limits.connect_deadline_s)
    except (TimeoutError, OSError, nats.errors.Error) as error:
        reason = client.last_error or error
        await bus.close()
        named = ",".join(map(without_password, servers))
        raise Unavailable(f"no nats server at {named}: {_in_words(reason)}") from error
    except asyncio.CancelledError:
        if client.is_connected:  # a client that never was cannot be closed
            await bus.close()
        client.abort()
        raise
    await _open_or_close(bus)
    return NatsConnection(bus, limits)


async def _open_or_close(bus: NatsBus) -> None:
    """Open the bus over a connection; an error closes both."""
    try:
        await bus.open()
        await bus.try_flush()  # a server that rejects the inbox reports that before it answers this
        if bus.failure is not None:
            raise bus.failure
    except BaseException:
        await bus.close()
        raise


def _in_words(reason: BaseException) -> str:
    """The reason why a connection failed, without the number and the repeated address of an error of a socket."""
    if isinstance(reason, ConnectionRefusedError):
        return "Connection refused; start it, or name its address"
    if isinstance(reason, TimeoutError):
        return "it does not answer; check the address, the network and whether the server hangs"
    return str(reason) or type(reason).__name__


def _context(servers: Sequence[str], tls: NatsTls) -> ssl.SSLContext | None:
    """The context for `tls://` addresses, None for others; `Invalid` if only some connections would have TLS."""
    secure = [server.startswith("tls://") for server in servers]
    if not any(secure) and not tls.is_given:
        return None
    if not all(secure):
        named = ",".join(map(without_password, servers))
        raise Invalid(f"with TLS, the address of each nats server must begin with tls://: {named}")
    return client_context(tls)


def checked_server(text: str) -> str:
    """A server's address as the client needs it; `Invalid` with one sentence if the text is no address."""
    try:
        parts = urlsplit(text.strip() if "://" in text else f"nats://{text.strip()}")
        if parts.hostname and (parts.port is None or parts.port > 0):
            return parts.geturl()
    except ValueError:  # the port is no number, or too large
        pass
    raise Invalid(f"the address of a nats server must be nats://host:port: {without_password(text)!r}")


def without_password(addresses: str) -> str:
    """One or several addresses without their secrets, for logs and errors.

    A secret may have any character. So all before the last @ of an address counts as secret, except the scheme.
    """
    return ",".join(_LOGIN.sub(r"\1***@", address) for address in _BETWEEN_ADDRESSES.split(addresses))

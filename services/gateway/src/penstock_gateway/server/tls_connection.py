"""TLS between a socket and a Kafka connection: to the socket's transport a protocol, to the `Connection` a transport.

    socket's transport <--> TlsConnection <--> Connection

The `Connection` is made after the handshake. It sees what it would see on a plain socket. It may pause reading, take an
end of the client's bytes and still answer, and abort. An answer is encrypted in steps, as fast as the socket takes it:
until then it stays in the buffers that the handler gave, which several connections may share.
"""

import asyncio
import ssl
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Protocol, cast

from penstock.contracts.errors import Invalid
from penstock.kafkawire.primitives import Buffer
from penstock_gateway.security.tls_contexts import ListenerTls
from penstock_gateway.security.tls_session import TlsSession, joined
from penstock_gateway.server.connection import Connection, Owner
from penstock_gateway.server.handshakes import (
    CLOSED,
    COMPLETED,
    CONNECTION_RATE,
    FAILED,
    REFUSED,
    STOPPED,
    TIMEOUT,
    UNKNOWN_NAME,
    Handshakes,
)

RECEIVE_BYTES = 64 * 1024  # one read from the socket; all connections of a listener share the buffer
RECORD_BYTES = 16 * 1024  # of TLS; smaller answers share one
CHUNK_BYTES = 8 * RECORD_BYTES  # encrypted at once
STEP_BYTES = 1024 * 1024  # encrypted in some half a millisecond, then other clients are served
NO_CLUSTER = "no cluster is served by the name of the server that the client asks for"
NO_TLS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST")  # OpenSSL's reasons for a client without TLS
SOCKET_BUFFER_BYTES = 128 * 1024  # encrypted bytes that the kernel did not take yet; beyond it nothing is encrypted


class TlsOwner(Protocol):
    """The owner of a connection until the end of its handshake."""

    handshakes: Handshakes
    admits: bool  # whether `delay_s` is that of the owner after the handshake

    def owner_of(self, listener: str, server_name: str) -> Owner | None:
        """The owner after the handshake; None if no owner takes the connection."""

    def wake(self) -> bool: ...

    def delay_s(self, host: str) -> float: ...

    def refusal(self) -> str:
        """Why no other client may connect; empty if one may."""

    def log_handshake(self, host: str, reason: str) -> None: ...


class TlsConnection(asyncio.BufferedProtocol, asyncio.Transport):
    """One accepted socket of a listener with TLS."""

    def __init__(self, owner: TlsOwner, listener: str, tls: ListenerTls, receive_buffer: memoryview) -> None:
        super().__init__()
        self._owner = owner
        self._listener = listener
        self._tls = tls
        self._receive_buffer = receive_buffer
        self._session = TlsSession(tls.context)
        self._socket: asyncio.Transport
        self._host = ""
        self._is_in_handshake = False
        self._is_delayed = False  # it is closed after a delay, without a handshake
        self._connection: Connection | None = None
        self._get_plain_buffer: Callable[[int], memoryview]
        self._is_closing = False  # no more plain bytes are read or taken; encrypted ones may still have to leave
        self._is_reading_paused = False
        self._is_delivering = False
        self._has_socket_ended = False  # the client's last byte has come
        self._is_end_reported = False
        self._is_output_ended = False
        self._unsent: deque[Buffer] = deque()
        self._unsent_bytes = 0
        self._is_socket_full = False
        self._is_flush_scheduled = False
        self._is_writing_paused = False
        self._high_bytes = SOCKET_BUFFER_BYTES

    # ---- the socket's protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._socket = cast(asyncio.Transport, transport)
        self._socket.set_write_buffer_limits(high=SOCKET_BUFFER_BYTES)
        peer = transport.get_extra_info("peername")
        self._host = peer[0] if peer else ""
        owner = self._owner
        if owner.wake():
            self._refuse(STOPPED, "")
        elif refusal := owner.refusal():
            self._refuse(REFUSED, refusal)
        elif not owner.handshakes.begin(self):
            self._refuse(REFUSED, "too many TLS handshakes in progress")
        else:
            self._is_in_handshake = True
            self._delay()

    def _refuse(self, outcome: str, reason: str) -> None:
        self._owner.handshakes.end(self, outcome)
        if reason:
            self._owner.log_handshake(self._host, reason)
        self._is_closing = True
        self._socket.abort()

    def _delay(self) -> None:
        """Close after a delay if a quota of new connections is used up, and make no handshake."""
        delay_s = self._owner.delay_s(self._host)
        if delay_s:
            self._owner.log_handshake(self._host, "a quota of new connections is used up")
            self._is_delayed = True
            asyncio.get_running_loop().call_later(delay_s, self.give_up, CONNECTION_RATE)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._receive_buffer

    def buffer_updated(self, nbytes: int) -> None:
        if self._is_closing:
            return
        if self._is_delayed:  # not paused before: uvloop begins to read after `connection_made`
            self._socket.pause_reading()
            return
        self._session.receive(self._receive_buffer[:nbytes])
        if self._is_in_handshake:
            self._socket.pause_reading()  # until its turn, so that a client cannot fill the memory
            self._owner.handshakes.ask_turn(self)
        else:
            self._deliver()

    def eof_received(self) -> bool:
        """The socket stays open for answers, as without TLS; the `Connection` decides when it closes."""
        self._has_socket_ended = True
        if self._is_in_handshake:
            self._owner.handshakes.ask_turn(self)
        elif not self._is_closing:
            self._deliver()
        return True

    def pause_writing(self) -> None:
        self._is_socket_full = True

    def resume_writing(self) -> None:
        self._is_socket_full = False
        self._flush()

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_closing = True
        self._end_handshake(CLOSED)
        self._unsent.clear()
        self._unsent_bytes = 0
        connection, self._connection = self._connection, None  # they would keep each other in memory
        if connection is not None:
            connection.connection_lost(exc)

    # ---- the handshake

    def advance(self) -> None:
        """Go on with the handshake."""
        if not self._is_in_handshake or self._is_delayed:
            return
        try:
            is_complete = self._session.handshake()
            user = self._tls.user(self._session.certificate) if is_complete else ""
        except (ssl.SSLError, Invalid) as error:
            is_name_refused = self._session.is_name_refused
            self._fail(UNKNOWN_NAME if is_name_refused else FAILED, NO_CLUSTER if is_name_refused else _reason(error))
            return
        self._send_output()
        if not is_complete and self._has_socket_ended:
            self.give_up(CLOSED)
        elif not self._socket.is_closing():
            self._socket.resume_reading()
            if is_complete:
                self._complete(user)

    def give_up(self, outcome: str) -> None:
        if outcome == TIMEOUT:
            self._owner.log_handshake(self._host, "the TLS handshake takes too long")
        self._end_handshake(outcome)
        self.abort()

    def _fail(self, outcome: str, reason: str) -> None:
        """Close, after the alert with the reason for the client."""
        self._owner.log_handshake(self._host, reason)
        self._end_handshake(outcome)
        self._is_closing = True
        self._send_output()
        self._socket.close()

    def _end_handshake(self, outcome: str) -> None:
        if self._is_in_handshake:
            self._is_in_handshake = False
            self._owner.handshakes.end(self, outcome)

    def _complete(self, user: str) -> None:
        owner = self._owner.owner_of(self._listener, self._session.server_name)
        if owner is None:  # it ended during the handshake
            self._fail(UNKNOWN_NAME, NO_CLUSTER)
            return
        self._end_handshake(COMPLETED)
        self._connection = Connection(owner, self._listener, user=user, is_admitted=self._owner.admits)
        self._get_plain_buffer = self._connection.get_buffer
        self._connection.connection_made(self)
        self._deliver()

    # ---- plain bytes in

    def _deliver(self) -> None:
        """Give the plain bytes at hand to the connection, until it pauses; then the client's end."""
        if self._is_delivering or self._connection is None:  # the loop below handles these bytes too
            return
        self._is_delivering = True
        try:
            while not self._is_reading_paused and not self.is_closing() and self._read():
                pass
        except ssl.SSLError as error:
            self._owner.log_handshake(self._host, _reason(error))
            self._send_output()
            self.abort()
            return
        finally:
            self._is_delivering = False
        if self._session.has_output and not self.is_closing():  # an answer of TLS itself, as to a key update
            self._send_output()

    def _read(self) -> bool:
        """Give the connection a buffer of bytes, or the end; return whether there may be more."""
        assert self._connection is not None, "bytes are read after the handshake"
        session = self._session
        has_ended = session.is_at_eof or self._has_socket_ended
        buffer = self._get_plain_buffer(-1)
        size_bytes = 0 if session.is_at_eof else session.read_into(buffer)
        if size_bytes:
            self._connection.buffer_updated(size_bytes)
            return size_bytes == len(buffer) or has_ended or session.is_at_eof
        if (session.is_at_eof or has_ended) and not self._is_end_reported:
            self._is_end_reported = True
            if not self._connection.eof_received():
                self.close()
            elif not self._unsent:
                self._end_output()  # the client may wait for it, while requests with acks=0 are still in progress
        return False

    # ---- the connection's transport: reading

    def is_reading(self) -> bool:
        return not self._is_reading_paused and not self.is_closing()

    def pause_reading(self) -> None:
        if not self._is_reading_paused and not self.is_closing():
            self._is_reading_paused = True
            self._socket.pause_reading()

    def resume_reading(self) -> None:
        if not self._is_reading_paused or self.is_closing():
            return
        self._is_reading_paused = False
        self._socket.resume_reading()
        asyncio.get_running_loop().call_soon(self._deliver)  # bytes that were received before the pause

    # ---- the connection's transport: writing

    def write(self, data: Any) -> None:
        self.writelines((data,))

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        if self.is_closing() or self._is_output_ended:
            return
        for data in list_of_data:
            size_bytes = len(data)
            if size_bytes:
                self._unsent.append(data)
                self._unsent_bytes += size_bytes
        self._flush()

    def get_write_buffer_size(self) -> int:
        return self._unsent_bytes + self._socket.get_write_buffer_size()

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return (0, self._high_bytes)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Only the upper limit counts: writing resumes when all is encrypted, and the socket takes more."""
        self._high_bytes = SOCKET_BUFFER_BYTES if high is None else high

    def can_write_eof(self) -> bool:
        return False

    def _flush(self) -> None:
        """Encrypt and send as much as the socket takes, for one step; then report to the connection."""
        self._is_flush_scheduled = False
        left_bytes = STEP_BYTES
        while self._unsent and not self._is_socket_full and not self._socket.is_closing():
            if left_bytes <= 0:
                self._flush_soon()
                break
            left_bytes -= self._send_chunk()
        if self._is_closing:
            self._finish()
        elif self._connection is not None:
            self._report(self._connection)

    def _flush_soon(self) -> None:
        if not self._is_flush_scheduled:
            self._is_flush_scheduled = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _report(self, connection: Connection) -> None:
        if not self._is_writing_paused:
            if self._unsent and self.get_write_buffer_size() > self._high_bytes:
                self._is_writing_paused = True
                connection.pause_writing()
        elif not self._unsent and not self._is_socket_full:
            self._is_writing_paused = False
            connection.resume_writing()

    def _send_chunk(self) -> int:
        """Encrypt and send some bytes from the front; return their number."""
        unsent, taken, size_bytes = self._unsent, [], 0
        while unsent and size_bytes < RECORD_BYTES:
            taken.append(unsent.popleft())
            size_bytes += len(taken[-1])
        if size_bytes > CHUNK_BYTES:
            last = memoryview(taken.pop())
            split = len(last) - (size_bytes - CHUNK_BYTES)
            taken.append(last[:split])
            unsent.appendleft(last[split:])
            size_bytes = CHUNK_BYTES
        self._unsent_bytes -= size_bytes
        self._session.encrypt(joined(taken))
        self._send_output()
        return size_bytes

    def _send_output(self) -> None:
        if self._session.has_output:
            self._socket.write(self._session.take_output())

    # ---- the connection's transport: the end

    def is_closing(self) -> bool:
        return self._is_closing or self._socket.is_closing()

    def close(self) -> None:
        """Close after all answers were sent."""
        if self.is_closing():
            return
        self._is_closing = True
        self._socket.pause_reading()
        self._finish()

    def abort(self) -> None:
        self._is_closing = True
        self._unsent.clear()
        self._unsent_bytes = 0
        self._socket.abort()

    def _finish(self) -> None:
        if self._unsent or self._socket.is_closing():
            return
        self._end_output()
        self._socket.close()

    def _end_output(self) -> None:
        """Announce the end of our bytes to the client; later writes are dropped."""
        if not self._is_output_ended:
            self._is_output_ended = True
            self._session.close()
            self._send_output()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._session.tls_object if name == "ssl_object" else self._socket.get_extra_info(name, default)

    def get_protocol(self) -> asyncio.BaseProtocol:
        assert self._connection is not None, "the connection has begun and has not ended"
        return self._connection


def _reason(error: Exception) -> str:
    """The reason of a failed handshake for the log, without positions in OpenSSL's source."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the client's certificate is rejected: {error.verify_message}"
    if isinstance(error, ssl.SSLError) and error.reason in NO_TLS:
        return "the client does not use TLS"
    if isinstance(error, ssl.SSLError) and error.reason:
        return f"TLS: {error.reason.lower().replace('_', ' ')}"
    return str(error)

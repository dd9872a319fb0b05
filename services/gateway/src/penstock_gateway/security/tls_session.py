"""One TLS connection without its socket: encrypted bytes in and out, plain bytes out and in. It does no I/O.

from the socket --> receive() --> handshake(), then read_into() --> plain bytes
to the socket <-- take_output() <-- encrypt() <-- plain bytes
"""

import ssl
from collections.abc import Sequence

from penstock.kafkawire.primitives import Buffer


class NamedTls(ssl.SSLObject):
    """A session that keeps the server name which the client asked for."""

    server_name = ""
    is_name_refused = False


class TlsSession:
    """The server's side of one TLS connection.

    Each method may raise `ssl.SSLError`. An alert for the client may then be among the output.
    """

    def __init__(self, context: ssl.SSLContext) -> None:
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self.is_at_eof = False  # the client has sent its last plain byte, by a close_notify

    @property
    def has_output(self) -> bool:
        """Whether encrypted bytes wait for the socket."""
        return self._outgoing.pending > 0

    @property
    def server_name(self) -> str:
        """The name of the server that the client asked for, after the handshake; "" if it asked for none."""
        return self._tls.server_name if isinstance(self._tls, NamedTls) else ""

    @property
    def is_name_refused(self) -> bool:
        """Whether the handshake failed because of the server name."""
        return isinstance(self._tls, NamedTls) and self._tls.is_name_refused

    @property
    def certificate(self) -> bytes | None:
        """The client's verified certificate as DER, or None, after the handshake."""
        return self._tls.getpeercert(binary_form=True)

    @property
    def tls_object(self) -> ssl.SSLObject:
        """The session as the standard library has it."""
        return self._tls

    def receive(self, data: Buffer) -> None:
        """Take encrypted bytes."""
        self._incoming.write(data)

    def handshake(self) -> bool:
        """Go on with the handshake; return whether it is complete."""
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    def read_into(self, buffer: memoryview) -> int:
        """Put plain bytes into `buffer`; return their number, 0 if there are none now. It sets `is_at_eof`."""
        count = 0
        try:
            while count < len(buffer):
                size_bytes = int(self._tls.read(len(buffer) - count, buffer[count:]))
                if not size_bytes:
                    self.is_at_eof = True
                    break
                count += size_bytes
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            self.is_at_eof = True
        return count

    def encrypt(self, data: Buffer) -> None:
        """Encrypt all of `data`, in records of 16 KiB."""
        size_bytes = len(data)
        written = self._tls.write(data)
        while written < size_bytes:
            written += self._tls.write(memoryview(data)[written:])

    def close(self) -> None:
        """Announce that no more bytes follow, by a close_notify."""
        try:
            self._tls.unwrap()
        except (ssl.SSLError, ValueError):  # the client's own close_notify is missing, or the session is broken
            return

    def take_output(self) -> bytes:
        """The encrypted bytes for the socket."""
        return self._outgoing.read()


def joined(buffers: Sequence[Buffer]) -> Buffer:
    """The buffers as one, without a copy if there is only one."""
    return buffers[0] if len(buffers) == 1 else b"".join(buffers)

"""The nats client without patience for a server that hangs: it drops what is unsent and tries another server."""

from typing import Any

from nats.aio.client import Client

from penstock.runtime.nats.bulk_client import BulkClient


class ImpatientClient(BulkClient):
    """Leaves a server that was found dead at once.

    The client's own way is to close its socket, which first waits until all that is unsent was taken. A server that
    hangs takes nothing and its kernel answers for it, so that would be for as long as it hangs. Then it sends what it
    had not handed to the socket yet to the next server: but who sent that has been told that the connection broke, and
    may have sent it again.
    """

    async def _attempt_reconnect(self) -> None:
        self._pending, self._pending_data_size = [], 0
        abort(self)
        await super()._attempt_reconnect()

    async def _connect_to_server(self, server: Any) -> None:
        abort(self)  # an attempt that came to nothing leaves its socket open
        await super()._connect_to_server(server)


def abort(client: Client) -> None:
    """Cut the connection and throw away what could not be sent."""
    writer = getattr(client._transport, "_io_writer", None)
    if writer is not None:
        writer.transport.abort()

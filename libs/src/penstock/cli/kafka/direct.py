"""How kafka-python connects here. It is imported late, as kafka-python is."""

import socket
from typing import Any

from kafka.net.inet import KafkaNetSocket

DIRECT = "direct://"


class DirectSocket(KafkaNetSocket):  # type: ignore[misc]
    """Connects without a proxy, for clients with the setting `proxy_url=DIRECT`.

    By itself, kafka-python leaves the socket of a connection that fails, or is cancelled, to the garbage collector.
    """

    SCHEMES = (DIRECT.partition(":")[0],)

    async def sock_connect(self, net: Any, sock: socket.socket, sockaddr: Any, timeout_at: float | None = None) -> Any:
        """The connected socket; closed if the connection is not made until `timeout_at` (monotonic, in seconds)."""
        try:
            return await super().sock_connect(net, sock, sockaddr, timeout_at=timeout_at)
        except BaseException:
            sock.close()
            raise

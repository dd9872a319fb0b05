"""TCP between simulated clients and gateways: bytes in order, until one side closes, dies or is cut off."""

import asyncio
import zlib
from collections.abc import Callable, Iterable
from typing import Any

from penstock.contracts.codec import Buffer
from penstock.contracts.configs.quotas import ANONYMOUS
from tests.testkit.fakes.answers import within
from tests.testkit.sim.environment.loop import SimLoop
from tests.testkit.sim.environment.wire import Wire

PORT = 9092

Address = tuple[str, int]


class Network:
    """All listening sockets, and all connections by the process that accepted them."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self._blocked: dict[str, None] = {}  # gateways
        self._listening: dict[Address, SimListener] = {}
        self._sockets: dict[str, dict[ClientSocket, None]] = {}
        self.attempts = 0  # of clients to connect

    def listen(self, listener: "SimListener") -> None:
        """Send new connections to the listener's address to it from now on."""
        self._listening[listener.address] = listener

    def stop(self, listener: "SimListener") -> None:
        """Send no more connections to the listener."""
        if self._listening.get(listener.address) is listener:
            del self._listening[listener.address]

    def block(self, gateway: str) -> None:
        """Carry nothing between a gateway and clients; present connections never carry anything again."""
        self._blocked[gateway] = None
        for sockets in self._sockets.values():
            for socket in sockets:
                socket.is_stuck = socket.is_stuck or socket.gateway == gateway

    def unblock(self) -> None:
        """Let new connections work again."""
        self._blocked.clear()

    async def connect(self, client: str, address: Address, timeout_s: float) -> "ClientSocket":
        """Connect to a gateway; `ConnectionError` without a listener, or without an answer in time."""
        answer: asyncio.Future[ClientSocket | None] = asyncio.get_running_loop().create_future()
        self.attempts += 1
        self.wire.carry((client, f"connect {self.attempts}"), self._arrive, client, address, answer)
        try:
            socket = await within(timeout_s, answer)
        except TimeoutError as error:
            raise ConnectionError(f"{address} does not answer") from error
        if socket is None:
            raise ConnectionError(f"no listener at {address}")
        return socket

    def _arrive(self, client: str, address: Address, answer: "asyncio.Future[ClientSocket | None]") -> None:
        if address[0] in self._blocked or answer.done():
            return
        listener = self._listening.get(address)
        if listener is None:
            answer.set_result(None)
            return
        socket = ClientSocket(self, client, address[0], answer.get_loop())
        self._sockets.setdefault(listener.process, {})[socket] = None
        listener.admit(socket)
        answer.set_result(socket)

    def remove(self, socket: "ClientSocket") -> None:
        """Remove a connection that is closed."""
        for sockets in self._sockets.values():
            sockets.pop(socket, None)

    def kill(self, process: str) -> None:
        """Reset all connections of a process, as its kernel does when it ends."""
        for listener in [each for each in self._listening.values() if each.process == process]:
            self.stop(listener)
        for socket in list(self._sockets.pop(process, {})):
            socket.reset_by_gateway()

    def kill_client(self, client: str) -> None:
        """Close all connections of a client."""
        for sockets in list(self._sockets.values()):
            for socket in [each for each in sockets if each.client == client]:
                socket.close()


class ClientSocket:
    """The client's end of a connection: it calls `on_data` and at the end `on_close`, in the client's loop."""

    def __init__(self, network: Network, client: str, gateway: str, loop: asyncio.AbstractEventLoop) -> None:
        self.client = client
        self.gateway = gateway
        self.is_open = True
        self.is_stuck = False
        self.on_data: Callable[[bytes], None] = lambda _: None
        self.on_close: Callable[[], None] = lambda: None
        self._network = network
        self._loop = loop
        self._other: SimTransport | None = None
        self._lane = f"{client} {gateway} {network.attempts}"

    def attach(self, other: "SimTransport") -> None:
        """Set the gateway's end, when the gateway has accepted."""
        self._other = other

    def write(self, data: bytes) -> None:
        """Send bytes, which are lost if the connection is closed."""
        if self.is_open:
            self._network.wire.carry((self._lane, "to gateway"), self._deliver, data)

    def close(self) -> None:
        """Send no more bytes, and take no more."""
        if self.is_open:
            self.is_open = False
            self._network.wire.carry((self._lane, "to gateway"), self._deliver, None)

    def _deliver(self, data: bytes | None) -> None:
        if self._other is not None and not self.is_stuck:
            self._other.receive(data)

    def send_back(self, data: bytes | None) -> None:
        """Send bytes from the gateway to the client, or the end (None)."""
        self._network.wire.carry((self._lane, "to client"), self._take, data)

    def reset_by_gateway(self) -> None:
        """Close the connection after the end of the gateway's process."""
        if self._other is not None:
            self._other.die()
        self._other = None
        self.send_back(None)

    def _take(self, data: bytes | None) -> None:
        if not self.is_open or self.is_stuck:
            return
        if data is None:
            self.is_open = False
            self._network.remove(self)
            self._loop.call_soon(self.on_close)
        else:
            self._loop.call_soon(self.on_data, data)


class SimTransport:
    """The gateway's end of a connection, with the interface of asyncio's transports."""

    def __init__(self, network: Network, socket: ClientSocket, loop: SimLoop, accept: Callable[[], Any]) -> None:
        self._network = network
        self._socket = socket
        self._loop = loop
        self._accept = accept
        self._protocol: Any = None
        self._inbox: list[bytes | None] = []
        self._is_reading = True
        self._is_closing = False
        self._is_pumping = False

    def begin(self) -> None:
        """Make the protocol, in the gateway's loop."""
        if self._is_closing:
            return
        self._protocol = self._accept()
        self._protocol.connection_made(self)
        self._pump_soon()

    def receive(self, data: bytes | None) -> None:
        """Take bytes, or the end (None)."""
        self._inbox.append(data)
        self._pump_soon()

    def _pump_soon(self) -> None:
        if not self._is_pumping and not self._is_closing and self._inbox and self._protocol is not None:
            self._is_pumping = True
            self._loop.call_soon(self._pump)

    def _pump(self) -> None:
        self._is_pumping = False
        if self._is_closing or not self._inbox or not self._is_reading:
            return
        data = self._inbox.pop(0)
        if data is None:
            if not self._protocol.eof_received():
                self._end()
            return
        while data:
            room = self._protocol.get_buffer(len(data))
            count = min(len(room), len(data))
            room[:count] = data[:count]
            self._protocol.buffer_updated(count)
            data = data[count:]
            if data and (not self._is_reading or self._is_closing):
                self._inbox.insert(0, data)
                break
        self._pump_soon()

    def die(self) -> None:
        """Pass nothing on any more, after the end of the gateway's process."""
        self._is_closing = True

    def _end(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            self._network.remove(self._socket)
            self._socket.send_back(None)
            self._loop.call_soon(self._protocol.connection_lost, None)

    # The methods that protocols need of their transport.

    def writelines(self, buffers: Iterable[Buffer]) -> None:
        if not self._is_closing:
            self._socket.send_back(b"".join(buffers))

    def get_extra_info(self, name: str) -> Any:
        return (self._socket.client, PORT) if name == "peername" else None

    def set_write_buffer_limits(self, high: int) -> None:
        """Do nothing, as written bytes are sent at once."""

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        self._end()

    abort = close

    def pause_reading(self) -> None:
        self._is_reading = False

    def resume_reading(self) -> None:
        self._is_reading = True
        self._pump_soon()


CROWD = "crowd"  # a client with a user of its own


def user_of(client: str) -> str:
    """The client's user, as from its certificate: one of three for most clients."""
    return CROWD if client == CROWD else (ANONYMOUS, "ann", "bob")[zlib.crc32(client.encode()) % 3]


class SimListener:
    """A gateway's listening socket, in place of `gateway.listener.Listener`."""

    def __init__(
        self, network: Network, process: str, loop: SimLoop, name: str, address: Address, connect: Any
    ) -> None:
        self.name = name
        self.port = address[1]
        self.address = address
        self.process = process
        self._network = network
        self._loop = loop
        self._make_connection = connect
        self._owner: Any = None

    async def accept(self, owner: Any) -> None:
        """Accept connections from now on."""
        self._owner = owner
        self._network.listen(self)

    def admit(self, socket: ClientSocket) -> None:
        """Accept one connection of a client."""
        make, owner, name, user = self._make_connection, self._owner, self.name, user_of(socket.client)
        transport = SimTransport(self._network, socket, self._loop, lambda: make(owner, name, user=user))
        socket.attach(transport)
        self._loop.call_soon(transport.begin)

    def stop(self) -> None:
        """Accept no more connections."""
        self._network.stop(self)

    close = stop

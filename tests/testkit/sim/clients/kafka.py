"""The connections of simulated Kafka clients to gateways, with requests in flight and answers in order."""

import asyncio
import random
import struct
from collections import deque
from typing import Any, NamedTuple

import msgspec

from penstock.kafkawire.api import API_TABLE, decode_response, encode_request, is_flexible
from tests.testkit.fakes.answers import within
from tests.testkit.sim.environment.sockets import Address, ClientSocket, Network

REQUEST_TIMEOUT_S = 4.0  # the defaults of clients are 30 s and more; a shorter one finds more faults
CONNECT_TIMEOUT_S = 2.0
BACKOFF_S = (0.02, 0.4)

PRODUCE, FETCH, LIST_OFFSETS, METADATA, OFFSET_COMMIT, OFFSET_FETCH = 0, 1, 2, 3, 8, 9
JOIN_GROUP, HEARTBEAT, LEAVE_GROUP, SYNC_GROUP = 11, 12, 13, 14
CREATE_TOPICS, DELETE_TOPICS, DELETE_RECORDS, INIT_PRODUCER_ID = 19, 20, 21, 22
DESCRIBE_ACLS, CREATE_ACLS, DELETE_ACLS, DESCRIBE_SCRAM, ALTER_SCRAM = 29, 30, 31, 50, 51
CONSUMER_GROUP_HEARTBEAT = 68
SHARE_GROUP_HEARTBEAT, SHARE_FETCH, SHARE_ACKNOWLEDGE = 76, 78, 79
ADD_PARTITIONS_TO_TXN, ADD_OFFSETS_TO_TXN, END_TXN, TXN_OFFSET_COMMIT = 24, 25, 26, 28


class _Question(NamedTuple):
    """A request without an answer so far."""

    number: int
    api_key: int
    version: int
    request: msgspec.Struct
    asked_at: int
    answer: "asyncio.Future[Any]"


class Disconnected(Exception):
    """The connection is closed; unanswered requests may have had an effect."""


class Witness:
    """Sees all requests and answers of all clients; this one does nothing."""

    def asked(self, api_key: int, request: msgspec.Struct) -> int:
        """Take a request; the number is given back with the answer."""
        return 0

    def answered(self, client: str, api_key: int, request: msgspec.Struct, answer: Any, asked_at: int) -> None:
        """Take an answer."""


class KafkaConnection:
    """One connection to one gateway."""

    def __init__(self, socket: ClientSocket, client_id: str, witness: Witness) -> None:
        self.address = socket.gateway
        self._socket = socket
        self._name = client_id
        self._client_id = client_id.encode()
        self._witness = witness
        self._correlation = 0
        self._waiting: deque[_Question] = deque()
        self._received = b""
        socket.on_data = self._take
        socket.on_close = self.close

    @property
    def is_open(self) -> bool:
        """Whether answers can still come."""
        return self._socket.is_open

    def send(
        self, api_key: int, version: int, request: msgspec.Struct, *, answered: bool = True
    ) -> asyncio.Future[Any]:
        """Send a request; the future gets its answer, or `Disconnected`."""
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if not self._socket.is_open:
            answer.set_exception(Disconnected("closed"))
            return answer
        self._correlation += 1
        head = struct.pack(">hhih", api_key, version, self._correlation, len(self._client_id)) + self._client_id
        if is_flexible(API_TABLE[api_key], version):
            head += b"\0"
        frame = head + encode_request(api_key, version, request)
        if answered:
            asked_at = self._witness.asked(api_key, request)
            self._waiting.append(_Question(self._correlation, api_key, version, request, asked_at, answer))
        else:
            answer.set_result(None)
        self._socket.write(struct.pack(">i", len(frame)) + frame)
        return answer

    async def ask(
        self, api_key: int, version: int, request: msgspec.Struct, timeout_s: float = REQUEST_TIMEOUT_S
    ) -> Any:
        """Send a request and return its answer; `Disconnected` if none comes in time."""
        answer = self.send(api_key, version, request)
        try:
            return await within(timeout_s, answer)
        except TimeoutError as error:
            self.close()
            raise Disconnected("no answer in time") from error

    def close(self) -> None:
        """Close the connection; all waiting requests get `Disconnected`."""
        self._socket.close()
        while self._waiting:
            answer = self._waiting.popleft().answer
            if not answer.done():
                answer.set_exception(Disconnected("closed"))
                answer.exception()  # asyncio reports exceptions that are never read

    def _take(self, data: bytes) -> None:
        received = self._received + data if self._received else data
        start = 0
        while len(received) >= start + 4:
            end = start + 4 + int.from_bytes(received[start : start + 4], "big")
            if len(received) < end:
                break
            self._answer(received[start + 4 : end])
            start = end
        self._received = received[start:]

    def _answer(self, frame: bytes) -> None:
        question = self._waiting.popleft()
        api_key, version = question.api_key, question.version
        if int.from_bytes(frame[:4], "big") != question.number:
            raise AssertionError(f"an answer to request {int.from_bytes(frame[:4], 'big')}, not {question.number}")
        start = 5 if is_flexible(API_TABLE[api_key], version) else 4
        if not question.answer.done():
            answer = decode_response(api_key, version, frame[start:])
            self._witness.answered(self._name, api_key, question.request, answer, question.asked_at)
            question.answer.set_result(answer)


class KafkaClient:
    """Connects to a random gateway each time."""

    def __init__(
        self,
        network: Network,
        name: str,
        gateways: list[Address],
        stream: random.Random,
        witness: Witness | None = None,
    ) -> None:
        self.name = name
        self.stream = stream
        self._network = network
        self._gateways = gateways
        self._witness = witness or Witness()

    async def connect(self) -> KafkaConnection:
        """Connect to a random gateway; tries until a connection works."""
        while True:
            try:
                address = self.stream.choice(self._gateways)
                socket = await self._network.connect(self.name, address, CONNECT_TIMEOUT_S)
                return KafkaConnection(socket, self.name, self.witness_at(socket.gateway))
            except ConnectionError:
                await self.back_off()

    def witness_at(self, gateway: str) -> Witness:
        """The witness of a connection to a gateway."""
        return self._witness

    async def back_off(self) -> None:
        """Wait before the next try."""
        await asyncio.sleep(self.stream.uniform(*BACKOFF_S))

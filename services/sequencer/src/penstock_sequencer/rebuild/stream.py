"""The stream that a rebuilt journal lives in: found, or made so that its sequences go on where the rebuild says.

JetStream's interface is requests in JSON, as in penstock.runtime.nats_journal; only what a rebuild needs beyond a
journal's own settings is here.
"""

import asyncio

import msgspec

from penstock.contracts.errors import Corrupt, Invalid, Unavailable
from penstock.contracts.subjects import journal_stream, journal_subject
from penstock.runtime.bus.bus import Bus
from penstock.runtime.nats.stream import STREAM_NOT_FOUND, ApiError, StreamConfig, StreamState

ASK_TIMEOUT_S = 2.0
ASK_ATTEMPTS_MAX = 15  # servers of a cluster that just started elect a leader first
RETRY_S = 0.2
# How a stream that a rebuild has made, and perhaps not filled, is told from any other.
MADE_BY = "made by penstock rebuild"


class NewStreamConfig(StreamConfig, frozen=True):
    """A journal's settings, and where it begins."""

    first_seq: int = 0
    description: str = ""


class _Reply(msgspec.Struct, frozen=True):
    error: ApiError | None = None
    created: str = ""
    config: NewStreamConfig | None = None
    state: StreamState | None = None


class FoundStream(msgspec.Struct, frozen=True):
    """The stream under the journal's name."""

    created: str  # the server's words
    is_rebuilt: bool  # made by a rebuild
    first_sequence: int  # of a stream that a rebuild made: where it began
    last_sequence: int


class Streams:
    """The journal's stream of one cluster at a NATS server."""

    def __init__(self, bus: Bus, cluster: str) -> None:
        self._bus = bus
        self._name = journal_stream(cluster)
        self._subject = journal_subject(cluster)

    async def find(self) -> FoundStream | None:
        """The stream, if there is one; `Unavailable` if nobody knows."""
        reply = await self._ask("INFO", b"")
        if reply.error is not None and reply.error.err_code == STREAM_NOT_FOUND:
            return None
        return self._found(reply)

    async def make(self, first_sequence: int, replicas: int) -> FoundStream:
        """Make it, its first entry to have `first_sequence`; one that is there already is returned instead."""
        config = NewStreamConfig(
            name=self._name,
            subjects=[self._subject],
            num_replicas=replicas,
            first_seq=first_sequence,
            description=MADE_BY,
        )
        reply = await self._ask("CREATE", msgspec.json.encode(config))
        if reply.error is not None:
            found = await self.find()
            if found is None:
                raise Invalid(f"cannot make the stream {self._name}: {reply.error.description}")
            return found
        made = self._found(reply)
        if made.first_sequence != first_sequence:
            raise Invalid(
                f"the stream {self._name} begins with {made.first_sequence}; nats-server 2.10 or later is needed"
            )
        return made

    def _found(self, reply: _Reply) -> FoundStream:
        if reply.error is not None or reply.config is None or reply.state is None:
            reason = reply.error.description if reply.error else "it says nothing of itself"
            raise Unavailable(f"the stream {self._name} cannot be described: {reason}")
        config = reply.config
        return FoundStream(reply.created, config.description == MADE_BY, config.first_seq, reply.state.last_seq)

    async def _ask(self, verb: str, data: bytes) -> _Reply:
        for attempt in range(1, ASK_ATTEMPTS_MAX + 1):
            try:
                answer = await self._bus.request(f"$JS.API.STREAM.{verb}.{self._name}", data, ASK_TIMEOUT_S)
                return msgspec.json.decode(answer, type=_Reply)
            except Unavailable:
                if attempt == ASK_ATTEMPTS_MAX:
                    raise
                await asyncio.sleep(RETRY_S)
            except (msgspec.DecodeError, msgspec.ValidationError) as error:
                raise Corrupt(f"jetstream's answer cannot be read: {error}") from error
        raise AssertionError("the last attempt returns or raises")

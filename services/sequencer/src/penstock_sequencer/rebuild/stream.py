"""Finds the stream of a rebuilt journal, or makes it with the sequence of its first entry.

JetStream's interface is requests in JSON, as in penstock.runtime.nats.journal. This module has only the settings that a
rebuild needs beyond a journal's own.
"""

import asyncio

import msgspec

from penstock.contracts.errors import Corrupt, Invalid, Unavailable
from penstock.contracts.subjects import journal_stream, journal_subject
from penstock.runtime.journal import Journal
from penstock.runtime.nats.client import NatsConnection
from penstock.runtime.nats.stream import STREAM_NOT_FOUND, ApiError, StreamConfig, StreamState

# The description of a stream that a rebuild has made and perhaps not filled.
MADE_BY = "made by penstock rebuild"


class StreamLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How long a rebuild waits for JetStream."""

    ask_timeout_s: float = 2.0
    ask_attempts_max: int = 15  # a cluster that has just started elects a leader first
    retry_s: float = 0.2


STREAM_LIMITS = StreamLimits()


class NewStreamConfig(StreamConfig, frozen=True):
    """A journal's settings, and its first sequence."""

    first_seq: int = 0
    description: str = ""


class _Reply(msgspec.Struct, frozen=True):
    error: ApiError | None = None
    created: str = ""
    config: NewStreamConfig | None = None
    state: StreamState | None = None


class FoundStream(msgspec.Struct, frozen=True):
    """The stream with the journal's name."""

    created: str  # as the server formats it
    is_rebuilt: bool  # made by a rebuild
    first_sequence: int  # of a stream that a rebuild made: its first sequence
    last_sequence: int


class NatsStreams:
    """The journal's stream of one cluster at a NATS server, and the journal over it."""

    def __init__(
        self, connection: NatsConnection, cluster: str, replicas: int, *, limits: StreamLimits = STREAM_LIMITS
    ) -> None:
        self._connection = connection
        self._cluster = cluster
        self._replicas = replicas
        self._limits = limits
        self._name = journal_stream(cluster)
        self._subject = journal_subject(cluster)

    async def find(self) -> FoundStream | None:
        """The stream, or None; `Unavailable` if no server answers."""
        reply = await self._ask("INFO", b"")
        if reply.error is not None and reply.error.err_code == STREAM_NOT_FOUND:
            return None
        return self._found(reply)

    async def make(self, first_sequence: int, replicas: int) -> FoundStream:
        """Make the stream, with `first_sequence` as its first; an existing stream is returned instead."""
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
                f"the stream {self._name} starts at {made.first_sequence}; nats-server 2.10 or later is needed"
            )
        return made

    async def journal(self) -> Journal:
        """The journal in the existing stream."""
        return await self._connection.journal(self._cluster, create=False, replicas=self._replicas)

    def _found(self, reply: _Reply) -> FoundStream:
        if reply.error is not None or reply.config is None or reply.state is None:
            reason = reply.error.description if reply.error else "its answer has no settings"
            raise Unavailable(f"the stream {self._name} cannot be described: {reason}")
        config = reply.config
        return FoundStream(reply.created, config.description == MADE_BY, config.first_seq, reply.state.last_seq)

    async def _ask(self, verb: str, data: bytes) -> _Reply:
        subject, limits = f"$JS.API.STREAM.{verb}.{self._name}", self._limits
        for attempt in range(1, limits.ask_attempts_max + 1):
            try:
                answer = await self._connection.bus.request(subject, data, limits.ask_timeout_s)
                return msgspec.json.decode(answer, type=_Reply)
            except Unavailable:
                if attempt == limits.ask_attempts_max:
                    raise
                await asyncio.sleep(limits.retry_s)
            except (msgspec.DecodeError, msgspec.ValidationError) as error:
                raise Corrupt(f"jetstream's answer cannot be read: {error}") from error
        raise AssertionError("the last attempt returns or raises")

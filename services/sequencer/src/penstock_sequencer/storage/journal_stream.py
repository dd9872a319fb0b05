"""Finds a journal's stream, or makes it with the sequence of its first entry; for a rebuild or a move.

JetStream's interface is requests in JSON, as in penstock.runtime.nats.journal. This module has only the settings that
these two need beyond a journal's own.
"""

import asyncio

import msgspec

from penstock.contracts.errors import Conflict, Corrupt, Invalid, Unavailable
from penstock.contracts.subjects import journal_stream, journal_subject
from penstock.runtime.journal import Journal
from penstock.runtime.nats.client import NatsConnection
from penstock.runtime.nats.stream import (
    NO_ROOM,
    STREAM_NOT_FOUND,
    WRONG_LAST_SEQUENCE,
    ApiError,
    StreamConfig,
    StreamState,
    decode_reply,
)

# The descriptions of streams that a rebuild or a move has made and perhaps not filled.
MADE_BY_REBUILD = "made by penstock rebuild"
MADE_BY_MOVE = "made by penstock journal move"


class StreamLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How long a rebuild or a move waits for JetStream."""

    ask_timeout_s: float = 2.0
    ask_attempts_max: int = 15  # a cluster that has just started elects a leader first
    retry_s: float = 0.2
    append_timeout_s: float = 5.0


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


class _Appended(msgspec.Struct, frozen=True):
    error: ApiError | None = None
    seq: int = 0


class FoundStream(msgspec.Struct, frozen=True):
    """The stream with the journal's name."""

    created: str  # as the server formats it
    made_by: str  # one of the descriptions above; "" for a stream that sequencers made
    first_sequence: int  # of a stream that a rebuild or a move made: its first sequence
    last_sequence: int


class NatsStreams:
    """The journal's stream of one cluster at a NATS server, and the journal over it.

    `made_by` is the description of the streams that it makes.
    """

    def __init__(
        self,
        connection: NatsConnection,
        cluster: str,
        replicas: int,
        *,
        made_by: str = MADE_BY_REBUILD,
        limits: StreamLimits = STREAM_LIMITS,
    ) -> None:
        self._connection = connection
        self._cluster = cluster
        self._replicas = replicas
        self._made_by = made_by
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
            description=self._made_by,
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

    async def start_at(self, first_sequence: int) -> None:
        """Remove all entries before this sequence; the next entry of an empty stream gets this sequence."""
        await self._change("PURGE", {"seq": first_sequence})

    async def remove(self) -> None:
        """Delete the stream with all its entries."""
        await self._change("DELETE", None)

    async def append_at(self, sequence: int, data: bytes) -> None:
        """Append an entry that must get this sequence; `Conflict` if it would get another one.

        `Invalid` if the servers have no room, `Unavailable` if it is unknown whether the entry is stored.
        """
        headers = {"Nats-Expected-Stream": self._name, "Nats-Expected-Last-Sequence": str(sequence - 1)}
        exchange = self._connection.messages.exchange
        reply = decode_reply(
            (await exchange(self._subject, data, self._limits.append_timeout_s, headers)).data, _Appended
        )
        if reply.error is None and reply.seq == sequence:
            return
        if reply.error is None or reply.error.err_code in WRONG_LAST_SEQUENCE:
            raise Conflict(f"entry {sequence} is not the next one of the stream {self._name}")
        if reply.error.err_code in NO_ROOM:
            raise Invalid(f"the nats servers have no room for the journal: {reply.error.description}")
        raise Unavailable(f"the stream {self._name} did not accept entry {sequence}: {reply.error.description}")

    async def _change(self, verb: str, request: object) -> None:
        reply = await self._ask(verb, b"" if request is None else msgspec.json.encode(request))
        if reply.error is not None:
            raise Unavailable(f"the stream {self._name} cannot be changed: {reply.error.description}")

    def _found(self, reply: _Reply) -> FoundStream:
        if reply.error is not None or reply.config is None or reply.state is None:
            reason = reply.error.description if reply.error else "its answer has no settings"
            raise Unavailable(f"the stream {self._name} cannot be described: {reason}")
        config = reply.config
        return FoundStream(reply.created, config.description, config.first_seq, reply.state.last_seq)

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

"""The journal as a JetStream stream: its settings, appends to it, and checks of the stream.

JetStream's interface is requests in JSON. So this module needs only a connection, no client library for JetStream.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Protocol

import msgspec
import structlog

from penstock.contracts.errors import Invalid, Unavailable, Undelivered
from penstock.contracts.subjects import journal_stream, journal_subject
from penstock.runtime.journal import JournalEntry, JournalGap, JournalInfo, JournalLost, JournalStuck
from penstock.runtime.nats.loss import JournalReplaced, LossDetector, LossLimits
from penstock.runtime.nats.stream import (
    MESSAGE_NOT_FOUND,
    OTHER_STREAM_EXPECTED,
    REPLICAS_NEED_A_CLUSTER,
    STREAM_NAME_TAKEN,
    STREAM_NOT_FOUND,
    AppendReply,
    ConsumerReply,
    Reply,
    StreamConfig,
    StreamReply,
    decode_reply,
    is_error,
    leads,
)
from penstock.runtime.nats.tail import Feed, RawMessage, TailLimits

log = structlog.get_logger()


class JournalLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How long requests to JetStream wait, and when the journal counts as stuck or lost."""

    # A request sent during a leader election is never answered. So this is also the delay until a new leader is used.
    ask_timeout_s: float = 1.0
    # A thousand times the usual time of an append; a retry with the same id does no harm.
    append_timeout_s: float = 2.0
    create_timeout_s: float = 2.0
    # How long a server may answer requests but no append: seven retries of one entry.
    stuck_after_s: float = 15.0
    # A leader that lost both other servers accepts no entries either, and notices that after 20 s.
    stuck_in_cluster_after_s: float = 60.0
    # For a cluster whose servers start seconds apart and then elect their leaders; longer than the proof of a loss.
    open_deadline_s: float = 30.0
    retry_ms: int = 50
    # The headers of a message with an entry; the server counts headers as part of its largest payload.
    header_bytes_max: int = 4096
    # A follower starts an election only after at least 4 s without its leader. So a leader that heard from most
    # servers within this time was still the only leader. When idle, it hears from each server once a second.
    leader_heard_within_s: float = 3.0
    loss: LossLimits = LossLimits()
    tail: TailLimits = TailLimits()


DEFAULT_LIMITS = JournalLimits()


class Messages(Protocol):
    """The connection that the journal runs over."""

    @property
    def message_bytes_max(self) -> int: ...

    @property
    def is_clustered(self) -> bool:
        """Whether the server is one of a cluster."""

    async def exchange(
        self, subject: str, data: bytes, timeout_s: float, headers: dict[str, str] | None = None
    ) -> RawMessage:
        """Send a request and return the answer; raises the errors of `Bus.request`."""

    async def publish(self, subject: str, data: bytes) -> None: ...

    async def listen(self, inbox: str, deliver: Callable[[RawMessage], None]) -> Callable[[], Awaitable[None]]:
        """Pass on the messages that come to `inbox`. The returned function ends that."""

    def new_inbox(self) -> str: ...

    def on_reconnect(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener` when the connection broke and when it is back. The returned function ends that."""


class NatsJournal:
    """`Journal` over one JetStream stream."""

    def __init__(self, messages: Messages, cluster: str, *, limits: JournalLimits = DEFAULT_LIMITS) -> None:
        self._messages = messages
        self._limits = limits
        self._stream = journal_stream(cluster)
        self._subject = journal_subject(cluster)
        self._created = ""  # the stream's identity: once seen, no other is accepted
        self._last_sequence = 0  # the highest seen; a stream that ends before it has lost entries
        # The time since which the stream answers requests but no append; None if it answers appends.
        self._stuck_since_s: float | None = None
        self._stream_loss = LossDetector(lambda: messages.is_clustered, limits=limits.loss)
        self._entry_loss = LossDetector(lambda: messages.is_clustered, limits=limits.loss)

    @property
    def entry_bytes_max(self) -> int:
        return self._messages.message_bytes_max - self._limits.header_bytes_max

    async def describe(self) -> JournalInfo:
        # Entries may be acknowledged while the answer is on its way. So the answer is compared with the older value.
        known = self._last_sequence
        with self._stream_loss.observe():
            return self._checked(await self._info(), known)

    async def last_sequence(self) -> int:
        known = self._last_sequence
        with self._stream_loss.observe():
            reply = await self._info()
            info = self._checked(reply, known)
        heard_within_s = self._limits.leader_heard_within_s
        if reply.cluster is not None and not leads(reply.cluster, info.replicas, heard_within_s):
            raise Unavailable(
                f"the leader of the stream {self._stream} has lost the other servers, and may lead no longer"
            )
        return info.last_sequence

    async def exists(self) -> bool:
        """Whether there is a stream; does not compare it with the stream seen before."""
        reply = await self._info()
        if reply.error is not None and not is_error(reply.error, STREAM_NOT_FOUND):
            raise Unavailable(f"the stream {self._stream} cannot be described: {reply.error.description}")
        return reply.error is None

    async def create(self, replicas: int) -> None:
        """Create the stream; does nothing if there is one."""
        config = StreamConfig(name=self._stream, subjects=[self._subject], num_replicas=replicas)
        request = msgspec.json.encode(config)
        reply = await self._ask(f"STREAM.CREATE.{self._stream}", request, StreamReply, self._limits.create_timeout_s)
        if reply.error is None or is_error(reply.error, STREAM_NAME_TAKEN):
            return
        failure = f"cannot create the stream {self._stream} with {replicas} replicas: {reply.error.description}"
        raise Invalid(failure) if is_error(reply.error, REPLICAS_NEED_A_CLUSTER) else Unavailable(failure)

    async def check_is_fit(self, replicas: int) -> None:
        """`Invalid` if the stream may lose acknowledged entries, or keeps fewer copies than `replicas`."""
        reply = await self._info()
        config = reply.config
        if config is None:
            reason = "the answer has no settings" if reply.error is None else reply.error.description
            raise Unavailable(f"the stream {self._stream} cannot be described: {reason}")
        fit = StreamConfig(name=self._stream, subjects=[self._subject])
        for name in ("subjects", "retention", "storage", "max_msgs", "max_bytes", "max_age", "max_msgs_per_subject"):
            found, wanted = getattr(config, name), getattr(fit, name)
            if found != wanted:
                raise Invalid(f"stream {self._stream} is no journal: its {name} is {found!r} instead of {wanted!r}")
        if config.num_replicas < replicas:
            raise Invalid(
                f"the journal's stream {self._stream} has {config.num_replicas} replicas, but the settings ask for "
                f"{replicas}: run `penstock journal replicas {replicas}` (needs as many servers)"
            )

    async def append(self, entry_id: str, data: bytes) -> int:
        if len(data) > self.entry_bytes_max:
            raise Invalid(f"journal entry of {len(data)} bytes is over the limit of {self.entry_bytes_max}")
        headers = {"Nats-Msg-Id": entry_id, "Nats-Expected-Stream": self._stream}
        try:
            answer = await self._messages.exchange(self._subject, data, self._limits.append_timeout_s, headers)
        except Undelivered as error:
            self._stuck_since_s = None
            await self.describe()  # raises if the stream is gone for good
            raise Unavailable(f"the stream {self._stream} accepts no entries at this moment") from error
        except Unavailable:
            await self._check_is_not_stuck()
            raise
        self._stuck_since_s = None
        reply = decode_reply(answer.data, AppendReply)
        if is_error(reply.error, OTHER_STREAM_EXPECTED):
            raise JournalLost(f"the journal's stream {self._stream} is gone: another stream has its subject")
        if is_error(reply.error, STREAM_NOT_FOUND):
            await self.describe()
        if reply.error is not None or not reply.seq:
            reason = reply.error.description if reply.error else "the answer has no sequence"
            raise Unavailable(f"the stream {self._stream} did not accept entry {entry_id}: {reason}")
        self._advance(reply.seq)
        return reply.seq

    async def purge(self, up_to: int) -> None:
        info = await self.describe()
        if up_to > info.last_sequence:  # the server would accept this, and skip sequences
            raise Invalid(f"cannot purge the journal up to entry {up_to}: it ends at {info.last_sequence}")
        request = msgspec.json.encode({"seq": up_to + 1})  # the first one to stay
        reply = await self._ask(f"STREAM.PURGE.{self._stream}", request, ConsumerReply)
        if reply.error is not None:
            raise Unavailable(f"the stream {self._stream} cannot be purged: {reply.error.description}")

    async def tail(self, after: int) -> AsyncIterator[list[JournalEntry]]:
        expected = after + 1
        while True:
            try:
                feed = await self._open_feed(expected)
            except Unavailable as error:
                log.debug("journal_tail_not_open", error=str(error))
                await asyncio.sleep(self._limits.retry_ms / 1000)
                continue
            try:
                while group := await feed.take():
                    expected = group[-1].sequence + 1
                    self._advance(expected - 1)
                    yield group
            finally:
                await feed.close()
            log.info("journal_tail_interrupted", cause=feed.broken, sequence=expected)

    async def _open_feed(self, expected: int) -> Feed:
        info = await self.describe()
        with self._entry_loss.observe():
            await self._check_continues(info, expected)
        feed = Feed(self._messages.publish, expected, limits=self._limits.tail)
        try:
            await self._start(feed, expected)
        except BaseException:
            await feed.close()
            raise
        return feed

    async def _check_continues(self, info: JournalInfo, expected: int) -> None:
        """`JournalLost` or `JournalGap` if the stream does not continue after the last entry taken."""
        if info.last_sequence < expected - 1:
            raise JournalLost(
                f"the journal's stream {self._stream} ends at sequence {info.last_sequence}, "
                f"but entry {expected - 1} was seen already"
            )
        if info.first_sequence > expected:
            raise JournalGap(f"journal entries {expected} to {info.first_sequence - 1} are gone")
        if expected <= info.last_sequence:
            await self._check_is_there(expected)

    async def _start(self, feed: Feed, expected: int) -> None:
        inbox = self._messages.new_inbox()
        feed.on_close(self._messages.on_reconnect(feed.interrupt))
        feed.end_with(await self._messages.listen(inbox, feed.deliver))
        config = _consumer_config(inbox, expected, self._limits.tail)
        request = msgspec.json.encode({"stream_name": self._stream, "config": config})
        reply = await self._ask(f"CONSUMER.CREATE.{self._stream}", request, ConsumerReply)
        if reply.error is not None:
            raise Unavailable(f"cannot read the stream {self._stream}: {reply.error.description}")
        feed.end_with(lambda: self._messages.publish(f"$JS.API.CONSUMER.DELETE.{self._stream}.{reply.name}", b""))

    async def _check_is_there(self, sequence: int) -> None:
        """`JournalGap` if the stream has lost this entry. A consumer would silently skip it.

        All other answers pass: if the consumer then begins with another entry, the feed breaks and this runs again.
        """
        request = msgspec.json.encode({"seq": sequence})
        reply = await self._ask(f"STREAM.MSG.GET.{self._stream}", request, ConsumerReply)
        if is_error(reply.error, MESSAGE_NOT_FOUND):
            raise JournalGap(f"journal entry {sequence} is gone")

    async def _check_is_not_stuck(self) -> None:
        """Check the stream after an unanswered append: after a full disk, a server looks healthy but stores nothing."""
        try:
            await self.describe()
        except Unavailable:
            self._stuck_since_s = None  # the server answers nothing at all, so this is not only about appends
            return
        now_s = asyncio.get_running_loop().time()
        if self._stuck_since_s is None:
            self._stuck_since_s = now_s
        limits = self._limits
        stuck_after_s = limits.stuck_in_cluster_after_s if self._messages.is_clustered else limits.stuck_after_s
        if now_s - self._stuck_since_s >= stuck_after_s:
            raise JournalStuck(
                f"the journal's stream {self._stream} answers requests but has answered no append for "
                f"{stuck_after_s:g} s, as after a full disk: make space on the disk and restart the nats-server"
            )

    def _advance(self, sequence: int) -> None:
        """Record that the stream reaches this sequence; a higher one than before proves that appends work."""
        if sequence > self._last_sequence:
            self._last_sequence = sequence
            self._stuck_since_s = None

    def _checked(self, reply: StreamReply, known: int) -> JournalInfo:
        if is_error(reply.error, STREAM_NOT_FOUND):
            raise JournalLost(f"there is no journal: nats has no stream {self._stream}")
        if reply.error is not None or reply.state is None or reply.config is None:
            reason = reply.error.description if reply.error else "the answer has no state"
            raise Unavailable(f"the stream {self._stream} cannot be described: {reason}")
        if reply.cluster is not None and not reply.cluster.leader:
            raise Unavailable(f"the stream {self._stream} has no leader at this moment")
        self._created = self._created or reply.created
        if reply.created != self._created:
            raise JournalReplaced(
                f"the journal's stream {self._stream} was created again: at {reply.created}, "
                f"but the one seen first was created at {self._created}"
            )
        state = reply.state
        if state.last_seq < known:
            raise JournalLost(
                f"the journal's stream {self._stream} went back to sequence {state.last_seq} from {known}"
            )
        self._advance(state.last_seq)
        first = state.first_seq if state.messages else state.last_seq + 1
        return JournalInfo(first, state.last_seq, reply.created, reply.config.num_replicas)

    async def _info(self) -> StreamReply:
        return await self._ask(f"STREAM.INFO.{self._stream}", b"", StreamReply)

    async def _ask(self, verb: str, data: bytes, kind: type[Reply], timeout_s: float | None = None) -> Reply:
        timeout_s = self._limits.ask_timeout_s if timeout_s is None else timeout_s
        try:
            answer = await self._messages.exchange(f"$JS.API.{verb}", data, timeout_s)
        except Undelivered as error:
            raise Unavailable("jetstream does not answer; is it enabled on the nats server?") from error
        return decode_reply(answer.data, kind)


async def open_journal(
    messages: Messages, cluster: str, *, create: bool, replicas: int, limits: JournalLimits = DEFAULT_LIMITS
) -> NatsJournal:
    """The journal of `cluster`, created if there is none and `create` is true; see `NatsConnection.journal`."""
    journal = NatsJournal(messages, cluster, limits=limits)
    loop = asyncio.get_running_loop()
    open_deadline_s = limits.open_deadline_s
    deadline_s = loop.time() + open_deadline_s
    reported = ""
    while True:
        try:
            await _find_or_create(journal, create=create, replicas=replicas)
            return journal
        except Unavailable as error:
            if loop.time() > deadline_s:
                hint = "; does a majority of the nats-servers run?" if messages.is_clustered else ""
                raise Unavailable(f"no journal of {cluster} within {open_deadline_s:g} s: {error}{hint}") from error
            if str(error) != reported:
                reported = str(error)
                log.warning("journal_not_open", deadline_s=open_deadline_s, error=reported)
            await asyncio.sleep(limits.retry_ms / 1000)


async def _find_or_create(journal: NatsJournal, *, create: bool, replicas: int) -> None:
    if create and not await journal.exists():
        await journal.create(replicas)
    await journal.describe()
    await journal.check_is_fit(replicas)


def _consumer_config(inbox: str, first: int, limits: TailLimits) -> dict[str, object]:
    """A push consumer for this connection only: in order, without acknowledgements, with flow control."""
    config: dict[str, object] = {
        "deliver_subject": inbox,
        "deliver_policy": "by_start_sequence",
        "opt_start_seq": first,
        "ack_policy": "none",
        "max_deliver": 1,
        "replay_policy": "instant",
        "flow_control": True,
        "idle_heartbeat": limits.heartbeat_ms * 1_000_000,
        "mem_storage": True,
        "num_replicas": 1,
    }
    if limits.consumer_inactive_s:
        config["inactive_threshold"] = round(limits.consumer_inactive_s * 1_000_000_000)
    return config

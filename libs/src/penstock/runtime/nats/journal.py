"""The journal as a JetStream stream: its settings, appends to it, and checks of the stream.

JetStream's interface is requests in JSON. So this needs no client library, only a connection that carries them.
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

    # A question asked while servers elect a leader is never answered. So this is also how late we notice a new leader.
    ask_timeout_s: float = 1.0
    # A thousand times what an append takes; a retry with the same id does no harm.
    append_timeout_s: float = 2.0
    create_timeout_s: float = 2.0
    # A server that answers questions but no append for so long: seven retries of one entry.
    stuck_after_s: float = 15.0
    # A leader that lost both other servers takes no entries either, and notices that after 20 s.
    stuck_in_cluster_after_s: float = 60.0
    # For a cluster whose servers start seconds apart and then elect their leaders; longer than the proof of a loss.
    open_deadline_s: float = 30.0
    retry_ms: int = 50
    # Of a message that carries an entry; the server counts headers as part of its largest payload.
    header_bytes_max: int = 4096
    # A follower gives a silent leader at least 4 s before it stands for election. So a leader that heard from most
    # servers less than this ago was still the only leader then. In idle times it hears from each once a second.
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
        """Ask, and return the answer; the errors of `Bus.request`."""

    async def publish(self, subject: str, data: bytes) -> None: ...

    async def listen(self, inbox: str, deliver: Callable[[RawMessage], None]) -> Callable[[], Awaitable[None]]:
        """Hand over the messages that come to `inbox`; returns a function that ends that."""

    def new_inbox(self) -> str: ...

    def on_reconnect(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener` when the connection broke and when it is back; returns a function that ends that."""


class NatsJournal:
    """`Journal` over one JetStream stream."""

    def __init__(self, messages: Messages, cluster: str, *, limits: JournalLimits = DEFAULT_LIMITS) -> None:
        self._messages = messages
        self._limits = limits
        self._stream = journal_stream(cluster)
        self._subject = journal_subject(cluster)
        self._created = ""  # the stream's identity: once seen, no other is accepted
        self._last_sequence = 0  # the highest seen; a stream that ends before it has lost entries
        # Since when the stream answers questions but no append; None if it answers appends.
        self._stuck_since_s: float | None = None
        self._stream_loss = LossDetector(lambda: messages.is_clustered, limits=limits.loss)
        self._entry_loss = LossDetector(lambda: messages.is_clustered, limits=limits.loss)

    @property
    def entry_bytes_max(self) -> int:
        return self._messages.message_bytes_max - self._limits.header_bytes_max

    async def describe(self) -> JournalInfo:
        # Entries may be acknowledged while the answer is on its way, so it is compared with what was known before.
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
            raise Unavailable(f"the leader of the stream {self._stream} has lost the others, and may be it no longer")
        return info.last_sequence

    async def exists(self) -> bool:
        """Whether there is a stream, whatever was known of it before."""
        reply = await self._info()
        if reply.error is not None and not is_error(reply.error, STREAM_NOT_FOUND):
            raise Unavailable(f"the stream {self._stream} cannot be described: {reply.error.description}")
        return reply.error is None

    async def create(self, replicas: int) -> None:
        """Make the stream; does nothing if there is one."""
        config = StreamConfig(name=self._stream, subjects=[self._subject], num_replicas=replicas)
        request = msgspec.json.encode(config)
        reply = await self._ask(f"STREAM.CREATE.{self._stream}", request, StreamReply, self._limits.create_timeout_s)
        if reply.error is None or is_error(reply.error, STREAM_NAME_TAKEN):
            return
        failure = f"cannot create the stream {self._stream} with {replicas} replicas: {reply.error.description}"
        raise Invalid(failure) if is_error(reply.error, REPLICAS_NEED_A_CLUSTER) else Unavailable(failure)

    async def check_is_fit(self, replicas: int) -> None:
        """`Invalid` if the stream may lose what it acknowledged, or keeps fewer copies than `replicas`."""
        reply = await self._info()
        config = reply.config
        if config is None:
            reason = "without a word on its settings" if reply.error is None else reply.error.description
            raise Unavailable(f"the stream {self._stream} cannot be described: {reason}")
        fit = StreamConfig(name=self._stream, subjects=[self._subject])
        for name in ("subjects", "retention", "storage", "max_msgs", "max_bytes", "max_age", "max_msgs_per_subject"):
            found, wanted = getattr(config, name), getattr(fit, name)
            if found != wanted:
                raise Invalid(f"stream {self._stream} is no journal: its {name} is {found!r}, not {wanted!r}")
        if config.num_replicas < replicas:
            raise Invalid(
                f"the journal's stream {self._stream} was made with {config.num_replicas} replicas and {replicas} are "
                f"asked for; `nats stream edit {self._stream} --replicas {replicas}` makes more, if there are as many "
                f"servers"
            )

    async def append(self, entry_id: str, data: bytes) -> int:
        if len(data) > self.entry_bytes_max:
            raise Invalid(f"journal entry of {len(data)} bytes is over the {self.entry_bytes_max} allowed")
        headers = {"Nats-Msg-Id": entry_id, "Nats-Expected-Stream": self._stream}
        try:
            answer = await self._messages.exchange(self._subject, data, self._limits.append_timeout_s, headers)
        except Undelivered as error:
            self._stuck_since_s = None
            await self.describe()  # raises if the stream is gone for good
            raise Unavailable(f"the stream {self._stream} takes no entries at this moment") from error
        except Unavailable:
            await self._check_is_not_stuck()
            raise
        self._stuck_since_s = None
        reply = decode_reply(answer.data, AppendReply)
        if is_error(reply.error, OTHER_STREAM_EXPECTED):
            raise JournalLost(f"the journal's stream {self._stream} is gone: another one takes its subject")
        if is_error(reply.error, STREAM_NOT_FOUND):
            await self.describe()
        if reply.error is not None or not reply.seq:
            reason = reply.error.description if reply.error else "it gave no sequence"
            raise Unavailable(f"the stream {self._stream} did not take entry {entry_id}: {reason}")
        self._advance(reply.seq)
        return reply.seq

    async def purge(self, up_to: int) -> None:
        info = await self.describe()
        if up_to > info.last_sequence:  # the server would do it, and go on with the sequence after that
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
                log.debug("journal_tail_waits", error=str(error))
                await asyncio.sleep(self._limits.retry_ms / 1000)
                continue
            try:
                while group := await feed.take():
                    expected = group[-1].sequence + 1
                    self._advance(expected - 1)
                    yield group
            finally:
                await feed.close()
            log.info("journal_tail_resumes", cause=feed.broken, sequence=expected)

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
        """`JournalLost` or `JournalGap` if the stream does not continue after the last entry that we took."""
        if info.last_sequence < expected - 1:
            raise JournalLost(
                f"the journal's stream {self._stream} ends at sequence {info.last_sequence}, "
                f"but entry {expected - 1} was there already"
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
        """A consumer silently skips an entry that the stream has lost, so ask for it by its sequence.

        Any other answer is good enough: a consumer that does not begin with it breaks the feed, and we ask again.
        """
        request = msgspec.json.encode({"seq": sequence})
        reply = await self._ask(f"STREAM.MSG.GET.{self._stream}", request, ConsumerReply)
        if is_error(reply.error, MESSAGE_NOT_FOUND):
            raise JournalGap(f"journal entry {sequence} is gone")

    async def _check_is_not_stuck(self) -> None:
        """After an append without an answer: a server whose disk was full takes no more, although it looks healthy."""
        try:
            await self.describe()
        except Unavailable:
            self._stuck_since_s = None  # the server answers nothing at all, so appends are not stuck by themselves
            return
        now_s = asyncio.get_running_loop().time()
        if self._stuck_since_s is None:
            self._stuck_since_s = now_s
        limits = self._limits
        stuck_after_s = limits.stuck_in_cluster_after_s if self._messages.is_clustered else limits.stuck_after_s
        if now_s - self._stuck_since_s >= stuck_after_s:
            raise JournalStuck(
                f"the journal's stream {self._stream} answers questions but has answered no append for "
                f"{stuck_after_s:g} s, as after a full disk: see that there is space and start the nats-server again"
            )

    def _advance(self, sequence: int) -> None:
        """The stream is known to reach this sequence; if that is new, an append was taken."""
        if sequence > self._last_sequence:
            self._last_sequence = sequence
            self._stuck_since_s = None

    def _checked(self, reply: StreamReply, known: int) -> JournalInfo:
        if is_error(reply.error, STREAM_NOT_FOUND):
            raise JournalLost(f"there is no journal: nats has no stream {self._stream}")
        if reply.error is not None or reply.state is None or reply.config is None:
            reason = reply.error.description if reply.error else "it says nothing of its state"
            raise Unavailable(f"the stream {self._stream} cannot be described: {reason}")
        if reply.cluster is not None and not reply.cluster.leader:
            raise Unavailable(f"the stream {self._stream} has no leader at this moment")
        self._created = self._created or reply.created
        if reply.created != self._created:
            raise JournalReplaced(
                f"the journal's stream {self._stream} was made again: created {reply.created}, "
                f"the one seen first was created {self._created}"
            )
        state = reply.state
        if state.last_seq < known:
            raise JournalLost(
                f"the journal's stream {self._stream} went back to sequence {state.last_seq}, it was at {known} already"
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
    """The journal of `cluster`, made if there is none and `create` says so; see `NatsConnection.journal`."""
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
                hint = "; do enough of the nats-servers run?" if messages.is_clustered else ""
                raise Unavailable(f"no journal of {cluster} within {open_deadline_s:g} s: {error}{hint}") from error
            if str(error) != reported:
                reported = str(error)
                log.warning("journal_awaited", deadline_s=open_deadline_s, error=reported)
            await asyncio.sleep(limits.retry_ms / 1000)


async def _find_or_create(journal: NatsJournal, *, create: bool, replicas: int) -> None:
    if create and not await journal.exists():
        await journal.create(replicas)
    await journal.describe()
    await journal.check_is_fit(replicas)


def _consumer_config(inbox: str, first: int, limits: TailLimits) -> dict[str, object]:
    """A push consumer for this connection only: in order, without acknowledgements, throttled by what we have taken."""
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

"""Answers commands and queries from the bus: each in its own task, with a limit on their number.

A failure in one request stays in its task.
"""

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import structlog

from penstock.contracts import codec, subjects
from penstock.contracts.commands import (
    Command,
    CommandReply,
    CommandRequest,
    Outcome,
    Rejected,
    Waiting,
)
from penstock.contracts.commands.group_sizes import oversize
from penstock.contracts.errors import Corrupt, Invalid, Unavailable, Undelivered
from penstock.contracts.queries.consumer_groups import ConsumerHeartbeatView
from penstock.contracts.queries.groups import GroupWaitQuery, GroupWaitView, HeartbeatQuery, HeartbeatView
from penstock.contracts.queries.janitor import JournalView
from penstock.contracts.queries.share import ShareHeartbeatView
from penstock.contracts.queries.streams_groups import StreamsHeartbeatView
from penstock.contracts.queries.topics import ValidateView
from penstock.contracts.rejections import Rejection
from penstock.contracts.senders import COMMANDS, COMMANDS_OF_ANY, CommandType, not_allowed
from penstock.runtime.bus.bus import Bus, Inbound, Subscription
from penstock.runtime.clock import Clock
from penstock.runtime.journal import Journal, JournalLost
from penstock_sequencer.core.previews import PREVIEWS, preview
from penstock_sequencer.core.queries import group_wait
from penstock_sequencer.metrics import SequencerMetrics
from penstock_sequencer.replication.proposer import Proposer
from penstock_sequencer.replication.read_index import ReadIndex
from penstock_sequencer.replication.replica import Replica
from penstock_sequencer.replication.seen_entries import SeenEntries
from penstock_sequencer.replication.stall_detector import StallDetector
from penstock_sequencer.serving.administration_log import log_administration
from penstock_sequencer.serving.cluster_quotas import ReadQuotas, merged, no_quotas, over_quota
from penstock_sequencer.serving.member_liveness import MemberLiveness
from penstock_sequencer.serving.query_table import QUERY_HANDLERS, QueryHandler

COMMAND = "command"
GROUP_WAIT = "group_wait"
_HEARTBEAT_VIEWS = (ConsumerHeartbeatView, ShareHeartbeatView, StreamsHeartbeatView)
ALIVE = (Rejection.NONE, Rejection.REBALANCE_IN_PROGRESS)  # with these answers a heartbeat shows that its member lives

log = structlog.get_logger()


class RequestLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How many requests a sequencer handles at the same time, and for how long."""

    requests_max: int = 16_384  # of one name: about 100 MB; further requests are rejected at once
    group_waits_max: int = 32_768  # members that wait for a rebalance: sixteen groups of the largest size
    catch_up_timeout_s: float = 1.0  # the sender gives up after a second, so a later answer is useless
    group_wait_ms_max: int = 30_000
    # Commands of this size are compared with the state before they are journaled. The read index takes about 1 ms.
    preview_bytes_min: int = 32 * 1024
    flush_retry_s: float = 0.2


REQUEST_LIMITS = RequestLimits()


class RequestServer:
    """Answers the commands and queries of the other services."""

    def __init__(
        self,
        *,
        bus: Bus,
        cluster: str,
        journal: Journal,
        replica: Replica,
        read_index: ReadIndex,
        proposer: Proposer,
        members: MemberLiveness,
        clock: Clock,
        metrics: SequencerMetrics,
        stalls: StallDetector,
        seen: SeenEntries,
        queries: Mapping[str, QueryHandler] = QUERY_HANDLERS,
        quotas: ReadQuotas = no_quotas,
        limits: RequestLimits = REQUEST_LIMITS,
    ) -> None:
        self._bus = bus
        self._cluster = cluster
        self._operators_subject = subjects.sequencer_command(cluster, subjects.Sender.ADMIN)
        self._journal = journal
        self._replica = replica
        self._read_index = read_index
        self._proposer = proposer
        self._members = members
        self._clock = clock
        self._metrics = metrics
        self._stalls = stalls
        self._seen = seen
        self._queries = queries
        self._quotas = quotas
        self._limits = limits
        self._subscriptions: list[Subscription] = []
        self._refused: set[tuple[str, str]] = set()  # at most each command on each subject
        self._owner: asyncio.TaskGroup | None = None
        self._in_work = dict.fromkeys((COMMAND, *queries), 0)
        self._serving = asyncio.Event()
        self._draining = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    async def run(self) -> None:
        """Accept requests and own the tasks that answer them, until cancelled; the replica must have caught up."""
        async with asyncio.TaskGroup() as self._owner:
            for sender, allowed in COMMANDS.items():
                await self._listen(subjects.sequencer_command(self._cluster, sender), COMMAND, allowed)
            await self._listen(subjects.sequencer_command_of_any(self._cluster), COMMAND, COMMANDS_OF_ANY)
            for name in self._queries:
                await self._listen(subjects.sequencer_query(self._cluster, name), name)
            await self._until_listening()
            self._serving.set()
            try:
                await asyncio.Event().wait()
            finally:
                self._owner = None

    async def _until_listening(self) -> None:
        while True:
            try:
                return await self._bus.flush()
            except Unavailable as error:
                log.warning("bus_not_flushed", error=str(error))
                await asyncio.sleep(self._limits.flush_retry_s)

    async def until_serving(self) -> None:
        """Return when requests are accepted."""
        await self._serving.wait()

    async def _listen(self, subject: str, name: str, allowed: frozenset[CommandType] = frozenset()) -> None:
        async def take(message: Inbound) -> None:
            await self._take(name, message, allowed)

        self._subscriptions.append(await self._bus.subscribe(subject, take, subjects.SEQUENCER_QUEUE))

    async def drain(self) -> None:
        """Accept nothing new, and return when every accepted request is answered.

        Members that wait for a group are answered at once, and ask another replica.
        """
        for subscription in self._subscriptions:
            await subscription.unsubscribe()
        self._draining.set()
        self._replica.release_groups()
        await self._idle.wait()

    async def _take(self, name: str, message: Inbound, allowed: frozenset[CommandType]) -> None:
        most = self._limits.group_waits_max if name == GROUP_WAIT else self._limits.requests_max
        if self._in_work[name] >= most:
            await self._reply(name, message, self._failure(name, f"overloaded: {most} requests are in work already"))
            return
        if self._owner is None:
            return  # `run` ends, and the subscriptions end after it; the sender asks another replica
        self._in_work[name] += 1
        self._idle.clear()
        handling = self._owner.create_task(self._handle(name, message, allowed, self._stalls.ticket_in()))
        handling.add_done_callback(lambda _: self._finish(name))

    def _finish(self, name: str) -> None:
        self._in_work[name] -= 1
        if not any(self._in_work.values()):
            self._idle.set()

    async def _handle(self, name: str, message: Inbound, allowed: frozenset[CommandType], ticket: int) -> None:
        """Contain every error in its request, so that other requests and the process are not affected."""
        try:
            answer = await self._answer(name, message, allowed, ticket)
        except Unavailable as error:
            answer = self._failure(name, str(error))
        except Corrupt as error:
            log.warning("request_not_understood", name=name, error=str(error))
            answer = self._failure(name, str(error))
        except Exception as error:  # the one boundary of the process: a bug costs its request
            log.error("request_failed", name=name, exc_info=error)
            answer = self._failure(name, f"internal error: {type(error).__name__}")
        await self._reply(name, message, answer)

    def _failure(self, name: str, text: str) -> msgspec.Struct:
        sequence = self._replica.applied_sequence
        if name == COMMAND:
            return CommandReply(sequence, [], text, self._replica.state.clock_ms)
        return self._queries[name].fail(sequence, text)

    async def _reply(self, name: str, message: Inbound, answer: msgspec.Struct) -> None:
        """Send an answer; one that fits no message becomes a failure with this reason."""
        data = codec.encode(answer)
        if len(data) > self._bus.message_bytes_max:
            text = f"the answer of {len(data)} bytes is over the {self._bus.message_bytes_max} that a message holds"
            log.warning("answer_too_large", name=name, size_bytes=len(data))
            answer = self._failure(name, text)
            data = codec.encode(answer)
        failed = getattr(answer, "failure", None) is not None
        self._metrics.requests.labels(name, "failed" if failed else "answered").inc()
        await message.respond(data)

    async def _answer(
        self, name: str, message: Inbound, allowed: frozenset[CommandType], ticket: int
    ) -> msgspec.Struct:
        data = message.data
        if name == COMMAND:
            request = codec.decode(data, CommandRequest)
            if refused := not_allowed(request.commands, allowed):
                return self._refuse(request, refused, message.subject)
            await self._catch_up(request)
            reply = await self._command(request, len(data), ticket)
            if message.subject == self._operators_subject:
                log_administration(request.commands, reply.outcomes)
            return reply
        handler = self._queries[name]
        query = codec.decode(data, handler.kind)
        await self._catch_up(query)
        if name == GROUP_WAIT:
            return await self._group_wait(query)
        if handler.answer is None:
            return await self._describe_journal()
        answer = handler.answer(self._replica.state, query)
        if isinstance(answer, ValidateView):
            over = over_quota(self._replica.state, query.commands, self._quotas())
            pairs = zip(over, answer.outcomes, strict=True)
            return msgspec.structs.replace(answer, outcomes=[why or outcome for why, outcome in pairs])
        if isinstance(answer, HeartbeatView):
            self._record_heartbeat(query, answer)
        if isinstance(answer, _HEARTBEAT_VIEWS) and not isinstance(answer.outcome, Rejected):
            self._members.record_heartbeat(
                query.heartbeat.group_id, query.heartbeat.member_id, self._clock.monotonic_s()
            )
        return answer

    async def _catch_up(self, query: Any) -> None:
        """Return when the state is recent enough for the request; `Unavailable` when its sender has given up."""
        sequence = query.min_sequence
        timeout_s = self._limits.catch_up_timeout_s
        deadline_s = self._clock.monotonic_s() + timeout_s
        if getattr(query, "fresh", False):
            sequence = max(sequence, await self._read_index.ask(timeout_s))
        await self._seen.until_applied(sequence, max(deadline_s - self._clock.monotonic_s(), 0))

    async def _command(self, request: CommandRequest, size_bytes: int, ticket: int) -> CommandReply:
        refused = over_quota(self._replica.state, request.commands, self._quotas())
        if any(refused):
            return await self._without_refused(request, refused, size_bytes, ticket)
        rejected = await self._rejected(request.commands, size_bytes)
        if not self._stalls.is_good(ticket):
            raise Undelivered("the commands may have waited here while the process was stalled")
        sequence, outcomes = self._replica.applied_sequence, list[Outcome]()
        if rejected:
            outcomes = rejected
        elif request.commands:
            try:
                sequence, outcomes = await self._proposer.propose(request.commands, request.trace)
            except Invalid as error:
                # A repeated request would get the same error, so this is an outcome and no failure.
                outcomes = [Rejected(Rejection.INVALID_REQUEST, str(error)) for _ in request.commands]
        return CommandReply(sequence, outcomes, clock_ms=self._replica.state.clock_ms)

    async def _without_refused(
        self, request: CommandRequest, refused: Sequence[Rejected | None], size_bytes: int, ticket: int
    ) -> CommandReply:
        """Propose the commands that exceed no quota, and answer all."""
        others = [command for command, why in zip(request.commands, refused, strict=True) if why is None]
        reply = await self._command(msgspec.structs.replace(request, commands=others), size_bytes, ticket)
        return msgspec.structs.replace(reply, outcomes=merged(refused, reply.outcomes))

    def _refuse(self, request: CommandRequest, refused: str, subject: str) -> CommandReply:
        """Reject all commands of a request, because one of them is not for senders of its subject."""
        if (refused, subject) not in self._refused:  # once, because the sender chooses how often it asks
            self._refused.add((refused, subject))
            log.warning("command_not_allowed", command=refused, subject=subject)
        rejected = Rejected(Rejection.INVALID_REQUEST, f"{refused} is not allowed on {subject}")
        outcomes: list[Outcome] = [rejected] * len(request.commands)
        return CommandReply(self._replica.applied_sequence, outcomes, clock_ms=self._replica.state.clock_ms)

    async def _rejected(self, commands: Sequence[Command], size_bytes: int) -> list[Outcome]:
        """The outcomes of commands that need no room in the journal, because all of them are rejected; else nothing.

        Some are rejected in any state. Large ones are compared with the state. It must hold all that is journaled.
        """
        outcomes: list[Outcome | None] = [oversize(command) for command in commands]
        is_large = size_bytes >= self._limits.preview_bytes_min
        if is_large and not all(outcomes) and all(type(command) in PREVIEWS for command in commands):
            try:
                sequence = await self._read_index.ask(self._limits.catch_up_timeout_s)
                await self._replica.until_applied(sequence, self._limits.catch_up_timeout_s)
            except Unavailable as error:
                raise Undelivered(str(error)) from error
            outcomes = [preview(self._replica.state, command) for command in commands]
        return [each for each in outcomes if each is not None] if all(outcomes) else []

    async def _describe_journal(self) -> JournalView:
        """The journal as the server knows it now: a stream that was made again is another journal."""
        try:
            described = await self._journal.describe()
        except JournalLost as error:  # the replica's own tail gets the same error, and halts
            raise Unavailable(str(error)) from error
        stream = subjects.journal_stream(self._cluster)
        return JournalView(self._replica.applied_sequence, stream, described.created)

    def _record_heartbeat(self, query: HeartbeatQuery, answer: HeartbeatView) -> None:
        if answer.rejection in ALIVE:
            self._members.record_heartbeat(query.group_id, query.member_id, self._clock.monotonic_s())

    async def _group_wait(self, query: GroupWaitQuery) -> GroupWaitView:
        """The answer to a waiting member as soon as there is one; `Waiting` after the timeout."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(min(max(query.wait_ms, 0), self._limits.group_wait_ms_max) / 1000):
                while self._has_to_wait(query) and not self._draining.is_set():
                    await self._replica.until_group_changes(query.group_id)
        view = group_wait(self._replica.state, query)
        if not isinstance(view.outcome, Rejected):
            self._members.record_heartbeat(query.group_id, query.member_id, self._clock.monotonic_s())
        return view

    def _has_to_wait(self, query: GroupWaitQuery) -> bool:
        return isinstance(group_wait(self._replica.state, query).outcome, Waiting)

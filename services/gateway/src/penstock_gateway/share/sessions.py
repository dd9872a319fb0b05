"""Share sessions: the partitions that a member fetches, so that its requests name changes only (KIP-932). Pure.

A session belongs to a member and its principal, as in Kafka: the member may fetch through one connection and
acknowledge through another. The session ends with the connection that opened it. Acquired records stay acquired, since
they are in the state machine. The member may acknowledge them through any session and any gateway, or without a
session. Only a request that closes the session releases its records.

Gateways behind one address are one broker for clients. So a session misses the requests that went to other gateways.
A gateway may also get acknowledgements of a session that it does not have:

- Acknowledgements need no session. Only a request without any gets SHARE_SESSION_NOT_FOUND.
- The epoch of an acknowledgement may skip numbers. That of a fetch may skip them only on the connection that opened the
  session: all fetches of that connection come here, so the skipped requests changed no partitions.
"""

from collections.abc import Iterable
from typing import Protocol

from penstock.contracts.commands import NO_ACQUISITION
from penstock.contracts.commands.group_sizes import GROUP_SIZES
from penstock.kafkawire.api.share_acknowledge import ShareAcknowledgeRequest
from penstock.kafkawire.api.share_fetch import ShareFetchRequest
from penstock.kafkawire.error_codes import ErrorCode
from penstock.runtime.clock import Clock
from penstock_gateway.kafka.client import Client
from penstock_gateway.share.limits import ShareLimits
from penstock_gateway.tail.tail_index import PartitionKey

OPENING_EPOCH, CLOSING_EPOCH = 0, -1
EPOCH_MAX = 2**31 - 1

Member = tuple[str, str, str]  # user, group id and member id: no other user can use the session


class ShareSession:
    """The partitions of one member's session, in the order of their requests, and the epoch of the next request."""

    def __init__(self, opener: Client, now_s: float) -> None:
        self.opener = opener  # the session ends with this connection
        self.used_s = now_s
        self.is_closed = False
        self.next_epoch = 1
        self.partitions: dict[PartitionKey, None] = {}
        self.first_acquisition = NO_ACQUISITION  # the first acquisition through this session
        self.acquisition = NO_ACQUISITION  # the newest acquisition through this session

    def change(self, added: Iterable[PartitionKey], removed: Iterable[PartitionKey]) -> None:
        """Add and remove partitions."""
        self.partitions.update(dict.fromkeys(added))
        for key in removed:
            self.partitions.pop(key, None)

    def record_acquired(self, acquisition: int) -> None:
        """Record that the member got records by this acquisition."""
        self.first_acquisition = min(self.first_acquisition or acquisition, acquisition)
        self.acquisition = max(self.acquisition, acquisition)

    def take_epoch(self, epoch: int, *, may_skip: bool) -> bool:
        """Whether a request may have this epoch; if so, expect the one after it. 1 follows the largest one."""
        if epoch != self.next_epoch and not (may_skip and epoch > self.next_epoch):
            return False
        self.next_epoch = epoch + 1 if epoch < EPOCH_MAX else 1
        return True


class _Opened:
    """The sessions that one connection opened."""

    def __init__(self) -> None:
        self.members: dict[Member, ShareSession] = {}
        self.ends_with_connection = False


class ShareSessions:
    """The sessions of one gateway."""

    def __init__(self, *, clock: Clock, limits: ShareLimits) -> None:
        self._clock = clock
        self._limits = limits
        self._sessions: dict[Member, ShareSession] = {}  # the least recently used first
        self._partitions = 0  # of all sessions

    def __len__(self) -> int:
        return len(self._sessions)

    def fetching(self, client: Client, request: ShareFetchRequest) -> ShareSession | ErrorCode:
        """The session of a ShareFetch, with the changes of the request; a closed one is already removed. Or an error.

        The error is SHARE_SESSION_NOT_FOUND also if the request has acknowledgements, which the caller accepts.
        """
        member, epoch = _member(client, request), request.share_session_epoch
        if epoch == CLOSING_EPOCH:
            return self._close(member)
        if epoch == OPENING_EPOCH:
            if has_acknowledgements(request):
                return ErrorCode.INVALID_REQUEST
            session = self._open(client, member)
        else:
            session = self._resume(member, epoch, fetches_through=client)
        if isinstance(session, ErrorCode):
            return session
        before = len(session.partitions)
        session.change(
            ((topic.topic_id, each.partition_index) for topic in request.topics for each in topic.partitions),
            ((topic.topic_id, number) for topic in request.forgotten_topics_data for number in topic.partitions),
        )
        self._partitions += len(session.partitions) - before
        if len(session.partitions) > self._limits.session_partitions_max:
            self._close(member)
            return ErrorCode.INVALID_REQUEST
        if not self._make_room(sessions=0, kept=session):
            self._close(member)
            return ErrorCode.SHARE_SESSION_LIMIT_REACHED
        return session

    def acknowledging(self, client: Client, request: ShareAcknowledgeRequest) -> ShareSession | ErrorCode:
        """The session of a ShareAcknowledge; a closed one is already removed. Or an error, as in `fetching`."""
        if not request.group_id or not request.member_id:
            return ErrorCode.INVALID_REQUEST
        member, epoch = _member(client, request), request.share_session_epoch
        if epoch == OPENING_EPOCH:  # a new session has nothing to acknowledge
            return ErrorCode.INVALID_SHARE_SESSION_EPOCH
        return self._close(member) if epoch == CLOSING_EPOCH else self._resume(member, epoch)

    def partitions_of(self, client: Client, request: ShareFetchRequest) -> list[PartitionKey]:
        """The partitions of the session that the request names; none without a session."""
        session = self._sessions.get(_member(client, request))
        return [] if session is None else list(session.partitions)

    def keep(self, client: Client, request: ShareFetchRequest, keys: Iterable[PartitionKey]) -> None:
        """Add partitions that the request was not allowed to fetch, so that the next request asks for them again.

        A partition that the request no longer wants is not added; nor are those beyond a limit.
        """
        session = self._sessions.get(_member(client, request))
        if session is None:
            return
        forgotten = {(topic.topic_id, number) for topic in request.forgotten_topics_data for number in topic.partitions}
        added = [key for key in dict.fromkeys(keys) if key not in forgotten and key not in session.partitions]
        limits = self._limits
        room = limits.session_partitions_max - len(session.partitions)
        added = added[: max(min(room, limits.sessions_partitions_max - self._partitions), 0)]
        session.change(added, ())
        self._partitions += len(added)

    def end(self, client: Client, group_id: str, member_id: str) -> None:
        """Remove the session of a member that has left its group."""
        self._close((client.user, group_id, member_id))

    def _open(self, client: Client, member: Member) -> ShareSession | ErrorCode:
        """A new session, which replaces the one that the member may have."""
        _, group_id, member_id = member
        if len(group_id) > GROUP_SIZES.group_id_length_max or len(member_id) > GROUP_SIZES.member_names_length_max:
            return ErrorCode.INVALID_REQUEST  # no member has such ids, and sessions keep them
        self._close(member)
        opened = client.part(_Opened)
        if len(opened.members) >= self._limits.connection_sessions_max or not self._make_room(sessions=1):
            return ErrorCode.SHARE_SESSION_LIMIT_REACHED
        if not opened.ends_with_connection:
            client.on_close.append(lambda: self._end_connection(client))
            opened.ends_with_connection = True
        session = ShareSession(client, self._clock.monotonic_s())
        self._sessions[member] = opened.members[member] = session
        return session

    def _resume(self, member: Member, epoch: int, fetches_through: Client | None = None) -> ShareSession | ErrorCode:
        """The member's session, if it may have a request with this epoch; else an error."""
        session = self._sessions.get(member)
        if session is None:
            return ErrorCode.SHARE_SESSION_NOT_FOUND
        if not session.take_epoch(epoch, may_skip=fetches_through in (None, session.opener)):
            return ErrorCode.INVALID_SHARE_SESSION_EPOCH
        session.used_s = self._clock.monotonic_s()
        self._sessions[member] = self._sessions.pop(member)
        return session

    def _close(self, member: Member) -> ShareSession | ErrorCode:
        """Remove the member's session and return it."""
        session = self._sessions.pop(member, None)
        if session is None:
            return ErrorCode.SHARE_SESSION_NOT_FOUND
        session.is_closed = True
        self._partitions -= len(session.partitions)
        session.opener.part(_Opened).members.pop(member, None)
        return session

    def _end_connection(self, client: Client) -> None:
        for member in list(client.part(_Opened).members):
            self._close(member)

    def _make_room(self, *, sessions: int, kept: ShareSession | None = None) -> bool:
        """Close sessions that were not used for long, if the table exceeds a limit; whether it is within its limits."""
        due_s = self._clock.monotonic_s() - self._limits.session_idle_s
        for member, session in list(self._sessions.items()) if self._is_full(sessions) else []:
            if session.used_s > due_s or not self._is_full(sessions):
                break
            if session is not kept:
                self._close(member)
        return not self._is_full(sessions)

    def _is_full(self, sessions: int) -> bool:
        limits = self._limits
        return len(self._sessions) + sessions > limits.sessions_max or self._partitions > limits.sessions_partitions_max


class HasShareSessions(Protocol):
    @property
    def share_sessions(self) -> ShareSessions: ...


def has_acknowledgements(request: ShareFetchRequest | ShareAcknowledgeRequest) -> bool:
    """Whether the request acknowledges records."""
    return any(each.acknowledgement_batches for topic in request.topics for each in topic.partitions)


def _member(client: Client, request: ShareFetchRequest | ShareAcknowledgeRequest) -> Member:
    return client.user, request.group_id or "", request.member_id or ""

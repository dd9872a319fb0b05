"""Share sessions: the partitions that a member fetches, so that its requests name changes only (KIP-932). Pure.

A session belongs to its connection and ends with it. Acquired records stay acquired: they are in the state machine, and
the member may acknowledge them through any session. Only a request that closes the session releases its records.
"""

from collections.abc import Iterable

from penstock.contracts.commands import NO_ACQUISITION
from penstock.kafkawire.api.share_acknowledge import ShareAcknowledgeRequest
from penstock.kafkawire.api.share_fetch import ShareFetchRequest
from penstock.kafkawire.error_codes import ErrorCode
from penstock_gateway.kafka.client import Client
from penstock_gateway.tail.tail_index import PartitionKey

OPENING_EPOCH, CLOSING_EPOCH = 0, -1
EPOCH_MAX = 2**31 - 1
SESSIONS_MAX = 16  # per connection: a client has one session for each of its share consumers, usually one
SESSION_PARTITIONS_MAX = 10_000  # the limit of one command

Member = tuple[str, str]  # group id and member id


class ShareSession:
    """The partitions of one member's session, in the order of their requests, and the epoch of the next request."""

    def __init__(self) -> None:
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

    def advance(self) -> None:
        """Expect the next epoch; 1 follows the largest one."""
        self.next_epoch = self.next_epoch + 1 if self.next_epoch < EPOCH_MAX else 1


class ShareSessions:
    """The sessions of one connection."""

    def __init__(self) -> None:
        self._sessions: dict[Member, ShareSession] = {}

    def open(self, member: Member) -> ShareSession | ErrorCode:
        """Open a new session; it replaces the one that the member may have."""
        self._sessions.pop(member, None)
        if len(self._sessions) >= SESSIONS_MAX:
            return ErrorCode.SHARE_SESSION_LIMIT_REACHED
        self._sessions[member] = ShareSession()
        return self._sessions[member]

    def resume(self, member: Member, epoch: int) -> ShareSession | ErrorCode:
        """The member's session, if `epoch` is the expected one; else an error."""
        session = self._sessions.get(member)
        if session is None:
            return ErrorCode.SHARE_SESSION_NOT_FOUND
        if session.next_epoch != epoch:
            return ErrorCode.INVALID_SHARE_SESSION_EPOCH
        session.advance()
        return session

    def partitions_of(self, member: Member) -> list[PartitionKey]:
        """The partitions of the member's session; none without a session."""
        session = self._sessions.get(member)
        return [] if session is None else list(session.partitions)

    def close(self, member: Member) -> ShareSession | ErrorCode:
        """Remove the member's session and return it."""
        return self._sessions.pop(member, ErrorCode.SHARE_SESSION_NOT_FOUND)


def requested_session(client: Client, request: ShareFetchRequest) -> ShareSession | ErrorCode:
    """The session of a ShareFetch, with the changes of the request; a closed one is already removed. Or an error."""
    assert request.group_id and request.member_id, "the caller checks both"
    sessions = client.part(ShareSessions)
    member, epoch = (request.group_id, request.member_id), request.share_session_epoch
    if epoch == CLOSING_EPOCH:
        return sessions.close(member)
    if epoch == OPENING_EPOCH:
        if any(each.acknowledgement_batches for topic in request.topics for each in topic.partitions):
            return ErrorCode.INVALID_REQUEST
        session = sessions.open(member)
    else:
        session = sessions.resume(member, epoch)
    if isinstance(session, ErrorCode):
        return session
    session.change(
        ((topic.topic_id, each.partition_index) for topic in request.topics for each in topic.partitions),
        ((topic.topic_id, number) for topic in request.forgotten_topics_data for number in topic.partitions),
    )
    if len(session.partitions) > SESSION_PARTITIONS_MAX:
        sessions.close(member)
        return ErrorCode.INVALID_REQUEST
    return session


def acknowledging_session(client: Client, request: ShareAcknowledgeRequest) -> ShareSession | ErrorCode:
    """The session of a ShareAcknowledge; a closed one is already removed. Or an error."""
    if not request.group_id or not request.member_id:
        return ErrorCode.INVALID_REQUEST
    sessions = client.part(ShareSessions)
    member, epoch = (request.group_id, request.member_id), request.share_session_epoch
    if epoch == OPENING_EPOCH:  # a new session has nothing to acknowledge
        return ErrorCode.INVALID_SHARE_SESSION_EPOCH
    if epoch == CLOSING_EPOCH:
        return sessions.close(member)
    return sessions.resume(member, epoch)

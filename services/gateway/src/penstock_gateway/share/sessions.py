"""Share sessions: which partitions a member fetches, so that its requests name changes only (KIP-932). Pure.

A session belongs to its connection and ends with it. What the member has acquired does not: that is the machine's to
know, and its acknowledgements are good through any session. Only who closes a session gives back what came through it.
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
SESSIONS_MAX = 16  # of one connection: a client has one for each of its share consumers, mostly one
SESSION_PARTITIONS_MAX = 10_000  # as many as one command takes

Member = tuple[str, str]  # group id and member id


class ShareSession:
    """The partitions of one member's session, in the order in which they were named, and the next request's number."""

    def __init__(self) -> None:
        self.next_epoch = 1
        self.partitions: dict[PartitionKey, None] = {}
        self.first_acquisition = NO_ACQUISITION  # by which the member got anything through this session
        self.acquisition = NO_ACQUISITION  # the newest

    def change(self, added: Iterable[PartitionKey], removed: Iterable[PartitionKey]) -> None:
        """Fetch these, too, and those no more."""
        self.partitions.update(dict.fromkeys(added))
        for key in removed:
            self.partitions.pop(key, None)

    def record_acquired(self, acquisition: int) -> None:
        """The member got something by this acquisition."""
        self.first_acquisition = min(self.first_acquisition or acquisition, acquisition)
        self.acquisition = max(self.acquisition, acquisition)

    def advance(self) -> None:
        """Expect the number after this one."""
        self.next_epoch = self.next_epoch + 1 if self.next_epoch < EPOCH_MAX else 1


class ShareSessions:
    """The sessions of one connection."""

    def __init__(self) -> None:
        self._sessions: dict[Member, ShareSession] = {}

    def open(self, member: Member) -> ShareSession | ErrorCode:
        """A new session in the place of the one that the member may have."""
        self._sessions.pop(member, None)
        if len(self._sessions) >= SESSIONS_MAX:
            return ErrorCode.SHARE_SESSION_LIMIT_REACHED
        self._sessions[member] = ShareSession()
        return self._sessions[member]

    def go_on(self, member: Member, epoch: int) -> ShareSession | ErrorCode:
        """The member's session, if this is the number that its next request has to have."""
        session = self._sessions.get(member)
        if session is None:
            return ErrorCode.SHARE_SESSION_NOT_FOUND
        if session.next_epoch != epoch:
            return ErrorCode.INVALID_SHARE_SESSION_EPOCH
        session.advance()
        return session

    def close(self, member: Member) -> ShareSession | ErrorCode:
        """The member's session, of which nothing is known any more."""
        return self._sessions.pop(member, ErrorCode.SHARE_SESSION_NOT_FOUND)


def requested_session(client: Client, request: ShareFetchRequest) -> ShareSession | ErrorCode:
    """The session of a ShareFetch: new, with its changes, or just closed; or why there is none."""
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
        session = sessions.go_on(member, epoch)
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
    """The session of a ShareAcknowledge, which goes on or is closed; or why the request is not accepted."""
    if not request.group_id or not request.member_id:
        return ErrorCode.INVALID_REQUEST
    sessions = client.part(ShareSessions)
    member, epoch = (request.group_id, request.member_id), request.share_session_epoch
    if epoch == OPENING_EPOCH:  # nothing can have been acquired yet
        return ErrorCode.INVALID_SHARE_SESSION_EPOCH
    if epoch == CLOSING_EPOCH:
        return sessions.close(member)
    return sessions.go_on(member, epoch)

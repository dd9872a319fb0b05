"""Share sessions: they belong to a member and its user, and end with the connection that opened them."""

import msgspec
import pytest

from penstock.contracts.commands.group_sizes import GROUP_SIZES
from penstock.kafkawire.api.share_acknowledge import ShareAcknowledgeRequest
from penstock.kafkawire.api.share_fetch import (
    AcknowledgementBatch,
    FetchPartition,
    FetchTopic,
    ForgottenTopic,
    ShareFetchRequest,
)
from penstock.kafkawire.error_codes import ErrorCode
from penstock.runtime.clock import SystemClock
from penstock_gateway.kafka.client import Client
from penstock_gateway.share.limits import ShareLimits
from penstock_gateway.share.sessions import CLOSING_EPOCH, EPOCH_MAX, ShareSession, ShareSessions

TOPIC = b"t" * 16
NOT_FOUND, WRONG_EPOCH = ErrorCode.SHARE_SESSION_NOT_FOUND, ErrorCode.INVALID_SHARE_SESSION_EPOCH
FULL = ErrorCode.SHARE_SESSION_LIMIT_REACHED


class StoppedClock(SystemClock):
    """A monotonic clock that a test moves."""

    now_s = 0.0

    def monotonic_s(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> StoppedClock:
    return StoppedClock()


@pytest.fixture
def sessions(clock: StoppedClock) -> ShareSessions:
    return table(clock)


def table(clock: StoppedClock, **limits: int) -> ShareSessions:
    return ShareSessions(clock=clock, limits=ShareLimits(**limits))


def connection(user: str = "ann") -> Client:
    return Client(host="127.0.0.1", zone="z", user=user)


def fetch(epoch: int, *partitions: int, member: str = "m", removed: tuple[int, ...] = ()) -> ShareFetchRequest:
    return ShareFetchRequest(
        group_id="g",
        member_id=member,
        share_session_epoch=epoch,
        topics=[FetchTopic(TOPIC, [FetchPartition(number) for number in partitions])],
        forgotten_topics_data=[ForgottenTopic(TOPIC, list(removed))],
    )


def acknowledge(epoch: int, member: str = "m") -> ShareAcknowledgeRequest:
    return ShareAcknowledgeRequest(group_id="g", member_id=member, share_session_epoch=epoch)


def opened(sessions: ShareSessions, client: Client, *partitions: int, member: str = "m") -> ShareSession:
    session = sessions.fetching(client, fetch(0, *partitions, member=member))
    assert isinstance(session, ShareSession), session
    return session


def test_a_member_fetches_on_one_connection_and_acknowledges_on_another(sessions: ShareSessions) -> None:
    one, other = connection(), connection()
    session = opened(sessions, one, 0)
    assert sessions.acknowledging(other, acknowledge(1)) is session
    assert sessions.fetching(one, fetch(2, 1)) is session
    assert sessions.fetching(other, fetch(3, removed=(0,))) is session
    assert list(session.partitions) == [(TOPIC, 1)]


def test_no_session_has_ids_that_no_member_can_have(sessions: ShareSessions) -> None:
    client = connection()
    long = "m" * (GROUP_SIZES.member_names_length_max + 1)
    for request in (fetch(0, member=long), msgspec.structs.replace(fetch(0), group_id="g" * 1_025)):
        assert sessions.fetching(client, request) is ErrorCode.INVALID_REQUEST
    assert len(sessions) == 0


def test_a_session_takes_each_epoch_once_and_1_after_the_largest(sessions: ShareSessions) -> None:
    client = connection()
    session = opened(sessions, client)
    assert sessions.fetching(client, fetch(1)) is session
    assert sessions.fetching(client, fetch(1)) == WRONG_EPOCH
    assert sessions.acknowledging(client, acknowledge(1)) == WRONG_EPOCH
    session.next_epoch = EPOCH_MAX
    assert sessions.fetching(client, fetch(EPOCH_MAX)) is session
    assert sessions.fetching(client, fetch(1)) is session
    assert sessions.fetching(client, fetch(2, member="other")) == NOT_FOUND


def test_only_the_opening_connection_may_fetch_after_requests_that_went_to_another_gateway(
    sessions: ShareSessions,
) -> None:
    opener, other = connection(), connection()
    session = opened(sessions, opener)
    assert sessions.fetching(opener, fetch(3)) is session
    assert sessions.fetching(other, fetch(6)) == WRONG_EPOCH, "another connection may have missed changed partitions"
    assert sessions.acknowledging(other, acknowledge(6)) is session
    assert sessions.fetching(opener, fetch(7)) is session


def test_another_user_has_no_access_to_a_session(sessions: ShareSessions) -> None:
    ann, bob = connection(), connection("bob")
    session = opened(sessions, ann, 0)
    assert sessions.fetching(bob, fetch(1)) == NOT_FOUND
    assert sessions.acknowledging(bob, acknowledge(1)) == NOT_FOUND
    assert sessions.acknowledging(bob, acknowledge(CLOSING_EPOCH)) == NOT_FOUND
    assert not sessions.partitions_of(bob, fetch(1))
    opened(sessions, bob)
    sessions.end(bob, "g", "m")
    assert sessions.fetching(ann, fetch(1)) is session


def test_a_closed_session_is_not_found_and_a_new_one_is_empty(sessions: ShareSessions) -> None:
    client = connection()
    session = opened(sessions, client, 0)
    assert sessions.acknowledging(connection(), acknowledge(CLOSING_EPOCH)) is session
    assert session.is_closed
    assert sessions.fetching(client, fetch(CLOSING_EPOCH)) == NOT_FOUND
    assert not opened(sessions, client).partitions


def test_a_session_ends_with_the_connection_that_opened_it_only(sessions: ShareSessions) -> None:
    opener, other = connection(), connection()
    session = opened(sessions, opener)
    sessions.acknowledging(other, acknowledge(1))
    other.close()
    assert sessions.fetching(opener, fetch(2)) is session
    moved = opened(sessions, connection())  # replaces it
    assert session.is_closed
    opener.close()
    assert (len(sessions), moved.is_closed) == (1, False)
    moved.opener.close()
    assert (len(sessions), moved.is_closed) == (0, True)


def test_reopening_a_session_leaves_nothing_behind_in_its_connection(sessions: ShareSessions) -> None:
    client = connection()
    for _ in range(20):
        opened(sessions, client)
    assert (len(sessions), len(client.on_close)) == (1, 1)


def test_a_connection_has_a_bounded_number_of_sessions(clock: StoppedClock) -> None:
    sessions, client = table(clock, connection_sessions_max=2), connection()
    opened(sessions, client, member="1")
    opened(sessions, client, member="2")
    assert sessions.fetching(client, fetch(0)) == FULL
    opened(sessions, client, member="1")  # replaces the first one


def test_a_full_table_takes_no_more_sessions_until_one_is_idle(clock: StoppedClock) -> None:
    sessions, client = table(clock, sessions_max=2), connection()
    used = opened(sessions, client, member="used")
    opened(sessions, client, member="idle")
    clock.now_s = 100
    assert sessions.fetching(client, fetch(1, member="used")) is used
    assert sessions.fetching(client, fetch(0)) == FULL
    clock.now_s = 121
    opened(sessions, client)
    assert sessions.fetching(client, fetch(2, member="used")) is used
    assert sessions.fetching(client, fetch(1, member="idle")) == NOT_FOUND


def test_the_partitions_of_all_sessions_are_bounded(clock: StoppedClock) -> None:
    sessions, client = table(clock, sessions_partitions_max=3), connection()
    opened(sessions, client, 0, 1, member="idle")
    assert sessions.fetching(client, fetch(0, 0, 1)) == FULL
    assert sessions.fetching(client, fetch(1)) == NOT_FOUND, "a session that does not fit remains"
    clock.now_s = 121
    opened(sessions, client, 0, 1)
    assert sessions.fetching(client, fetch(1, member="idle")) == NOT_FOUND
    assert sessions.fetching(client, fetch(1, 2, 3)) == FULL
    assert len(sessions) == 0


def test_the_partitions_of_one_session_are_bounded(clock: StoppedClock) -> None:
    sessions, client = table(clock, session_partitions_max=2), connection()
    opened(sessions, client, 0, 1)
    assert sessions.fetching(client, fetch(1, 2)) == ErrorCode.INVALID_REQUEST
    assert sessions.fetching(client, fetch(2)) == NOT_FOUND


def test_a_session_that_opens_acknowledges_nothing(sessions: ShareSessions) -> None:
    partition = FetchPartition(0, [AcknowledgementBatch(0, 0, [1])])
    request = ShareFetchRequest(group_id="g", member_id="m", topics=[FetchTopic(TOPIC, [partition])])
    assert sessions.fetching(connection(), request) == ErrorCode.INVALID_REQUEST
    assert sessions.acknowledging(connection(), acknowledge(0)) == WRONG_EPOCH

"""The durations and shares of the clients of a run: one struct for each kind of client.

A run's `Length` holds them, so that waits are shorter in short runs. Tests pass others to make a fault more likely.
"""

import msgspec

from tests.testkit.sim.clients.kafka import REQUEST_TIMEOUT_S

Span = tuple[float, float]  # seconds, from the shortest to the longest


class MemberSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Members of classic groups."""

    session_timeout_ms: int = 6_000
    rebalance_timeout_ms: int = 6_000
    heartbeat_s: float = 1.0


class ConsumerMemberSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Members of groups of KIP-848."""

    session_timeout_ms: int = 6_000  # instead of 45 s
    stall_s: Span = (2.0, 12.0)  # of a member that stalls: often longer than its session


class TransformingMemberSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Members that consume, transform and produce in transactions."""

    # The time for which offsets are sent and not committed. The group removes a member that stalls for longer.
    stall_s: Span = (1.0, 12.0)
    left_s: Span = (2.0, 7.0)  # from leaving the group to committing
    new_protocol_share: float = 0.5  # of the members: these speak transaction version 2


class CompactorSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Compactors."""

    pause_s_max: float = 1.5  # between jobs
    job_s_max: float = 2.0  # from plan to commit, without the time of the store and of the sequencers


class TransactionSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Transactional producers."""

    runs_share: float = 0.4  # of all runs: these have transactions
    # A client chooses one of these. With a short one, more requests are still under way when the client asks again.
    request_timeouts_s: Span = (0.7, REQUEST_TIMEOUT_S)
    new_protocol_share: float = 0.5  # of the transactional ids: their clients speak transaction version 2
    die_share: float = 0.02  # of steps of a transaction: the producer dies before them
    stall_s: Span = (0.2, 6.0)
    rest_s: Span = (0.0, 0.4)  # between transactions
    timeouts_ms: tuple[int, ...] = (2_000, 5_000, 60_000)


class ClientSettings(msgspec.Struct, frozen=True, kw_only=True):
    """All clients of a run."""

    member: MemberSettings = MemberSettings()
    consumer_member: ConsumerMemberSettings = ConsumerMemberSettings()
    transforming_member: TransformingMemberSettings = TransformingMemberSettings()
    compactor: CompactorSettings = CompactorSettings()
    transactions: TransactionSettings = TransactionSettings()


LONG_CLIENTS = ClientSettings()
# Waits in short runs take half of the time, so that they end while there are faults.
SHORT_CLIENTS = ClientSettings(
    member=MemberSettings(session_timeout_ms=3_000, rebalance_timeout_ms=3_000, heartbeat_s=0.5),
    consumer_member=ConsumerMemberSettings(session_timeout_ms=3_000, stall_s=(1.0, 6.0)),
    transforming_member=TransformingMemberSettings(stall_s=(0.5, 6.0), left_s=(1.0, 3.5)),
    compactor=CompactorSettings(pause_s_max=0.8, job_s_max=1.0),
    transactions=TransactionSettings(stall_s=(0.1, 3.0), rest_s=(0.0, 0.1), timeouts_ms=(1_000, 2_500, 60_000)),
)


def with_short_timeouts(settings: ClientSettings) -> ClientSettings:
    """Every run has transactions of the old protocol, and clients soon repeat a request at another gateway."""
    replace = msgspec.structs.replace
    return replace(
        settings,
        transforming_member=replace(settings.transforming_member, new_protocol_share=0.0),
        transactions=replace(
            settings.transactions,
            runs_share=1.0,
            request_timeouts_s=(0.15, 0.5),
            new_protocol_share=0.0,
            die_share=0.0,
        ),
    )

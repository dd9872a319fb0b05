"""The limits and waiting times of share groups in a gateway, each with its reason."""

import msgspec

MIB = 1024 * 1024


class ShareLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How much one ShareFetch may request, and how long it waits."""

    # Per answer, even if the client requests more: other clients wait while it is assembled, and the client asks again.
    read_bytes_max: int = 4 * MIB
    share_bytes_min: int = MIB  # per partition: a smaller read would often not contain one whole batch
    spare_factor: int = 2  # bytes to read, as a multiple of the average size of the wanted records
    wait_ms_max: int = 300_000  # no client needs longer, and a wrong value does not block a connection for ever
    # A request for thousands of partitions keeps others of its size waiting. Its client asks again at once.
    large_wait_ms_max: int = 500
    records_max: int = 10_000  # per answer, even if the client requests more
    # Locks also end by time and through other gateways, and no announcement reports that. So each member looks again.
    look_again_s: float = 1.0
    # Consecutive rounds without records and without a wait: only gaps, or records that other members acquired first.
    rounds_max: int = 16
    command_deadline_s: float = 5.0
    # For the search of first offsets by time. Then the heartbeat is sent with those that were found (ADR 0070).
    starts_timeout_s: float = 2.0
    # Kafka's `group.share.max.share.sessions` is 2000. A session without partitions takes 1 KB.
    sessions_max: int = 10_000
    sessions_partitions_max: int = 200_000  # of all sessions, 50 MB; a cluster has as many shared partitions
    session_partitions_max: int = 10_000  # the limit of one command
    connection_sessions_max: int = 16  # a client has one session for each of its share consumers, usually one
    session_idle_s: float = 120.0  # from then on a full table may drop it; members that fetch send every few seconds

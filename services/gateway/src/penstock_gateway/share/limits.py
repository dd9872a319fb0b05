"""The limits and waits of share groups in a gateway, each with its reason."""

import msgspec

MIB = 1024 * 1024


class ShareLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What one ShareFetch may ask for, and how long it waits."""

    # Of one answer, whatever the client asks for; it asks again at once. Other clients wait while it is assembled.
    read_bytes_max: int = 4 * MIB
    share_bytes_min: int = MIB  # of one partition: below a usual batch there would often be nothing
    spare_factor: int = 2  # so many times the bytes that the wanted records take on average in their extents
    wait_ms_max: int = 300_000  # no client needs longer, and a mistaken client holds no connection for ever
    records_max: int = 10_000  # of one answer, whatever the client asks for
    # Records also come back by time and through other gateways, which is not announced. So each member looks again.
    look_again_s: float = 1.0
    # Rounds without records, one after the other without a wait: only gaps, or records that other members got first.
    rounds_max: int = 16
    command_deadline_s: float = 5.0

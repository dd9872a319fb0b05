"""The limits and waits of Kafka connections, each with its reason."""

import msgspec


class ConnectionLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What one connection may leave unread, and when connections are given up."""

    write_buffer_bytes_max: int = 256 * 1024  # answers that the kernel did not take yet; beyond it no request starts
    # Answers that wait for earlier ones; beyond it no request starts but Produce.
    unsent_bytes_max: int = 8 * 1024 * 1024
    sweep_interval_s: float = 5.0
    # When the budget is spent on incomplete frames, the largest of them is given up after this time.
    partial_frame_s_max: float = 30.0
    # When too many answers wait for clients, those are given up that have taken nothing for this long.
    stuck_s_max: float = 30.0

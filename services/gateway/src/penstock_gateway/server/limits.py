"""The limits and waits of Kafka connections, each with its reason."""

import msgspec


class ConnectionLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How many bytes one connection may leave unread, and when the gateway ends connections."""

    write_buffer_bytes_max: int = 256 * 1024  # answers that the kernel did not take yet; beyond it no request starts
    # Answers that wait for earlier ones; beyond it only Produce requests start.
    unsent_bytes_max: int = 8 * 1024 * 1024
    sweep_interval_s: float = 5.0
    # If incomplete frames use up the budget, the connection with the largest of them is ended after this time.
    partial_frame_s_max: float = 30.0
    # If too many answers wait for clients, the connections of clients that took nothing for this time are ended.
    stuck_s_max: float = 30.0

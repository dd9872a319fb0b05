"""The limits and waits of Kafka connections, each with its reason."""

import msgspec

from penstock.kafkawire.api import REQUEST_ELEMENTS_MAX


class RejectionLogLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How much a gateway logs about rejected connections, because clients decide how many there are."""

    lines_max: int = 20  # in one interval; the rest is counted
    interval_s: float = 10.0
    client_id_max: int = 64  # characters
    reason_max: int = 300  # characters; a reason may name what the client sent


class DecodingLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How much memory decoded requests may take. A small element of one byte in a frame becomes hundreds in memory."""

    # A request with more elements than the first number needs a reservation. Its size is the next number that is
    # enough. A consumer rarely fetches 2,000 partitions from one gateway.
    elements_steps: tuple[int, ...] = (2_000, 10_000, 50_000, REQUEST_ELEMENTS_MAX)
    # Of an element and the objects that a handler makes from it; of a usual size.
    element_bytes: int = 512
    encoded_at_once_max: int = 10_000  # elements of an answer, in some 3 ms; a thread encodes a larger one
    kept_answers_max: int = 2  # lists of all topics, one for each version of Metadata that clients use
    kept_answer_bytes_max: int = 16 * 1024 * 1024  # with its objects, such an answer takes some 50 MB
    reserved_bytes_max: int = 128 * 1024 * 1024  # of all requests together: one of the largest, or 25 of the next step
    # From the arrival of a large request to its encoded answer, the wait for its reservation included. Other requests
    # wait for its memory. After a minute every client has given up.
    large_request_s_max: float = 60.0


class MemoryReleaseLimits(msgspec.Struct, frozen=True, kw_only=True):
    """When freed memory goes back to the kernel. It takes some milliseconds, and then memory must be mapped again."""

    granted_bytes_min: int = 16 * 1024 * 1024  # reservations of large frames and decoded requests since the last time
    interval_s: float = 10.0


class HandshakeLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How much clients may take that have not completed their TLS handshake."""

    handshakes_max: int = 1_000  # at once; each takes some 20 KiB
    handshake_s_max: float = 10.0
    turn_s_max: float = 0.004  # of all handshakes in one iteration of the event loop; one takes up to 2 ms


class ConnectionLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How many bytes one connection may leave unread, and when the gateway ends connections."""

    write_buffer_bytes_max: int = 256 * 1024  # answers that the kernel did not take yet; beyond it no request starts
    # Answers that wait for earlier ones; beyond it only Produce requests start.
    unsent_bytes_max: int = 8 * 1024 * 1024
    sweep_interval_s: float = 1.0
    # A client that sends no byte of an incomplete frame for this time has gone.
    partial_frame_s_max: float = 30.0
    # While incomplete frames keep other clients waiting, each frame needs this rate, averaged over this time. A client
    # with a slower link must send again when the others are served.
    contended_frame_s_max: float = 2.0
    contended_bytes_per_second_min: int = 64 * 1024
    # If too many answers wait for clients, the connections of clients that took nothing for this time are ended.
    stuck_s_max: float = 30.0
    # A gateway that was stalled for longer gives up all connections. Other processes count it as gone after three
    # seconds of silence. The silence may begin a second before the stall. A gateway that is only slow stays below.
    stall_s: float = 2.0
    look_interval_s: float = 0.25  # between two readings of the time
    # After a stall new connections are closed for this time, because some of them waited to be accepted.
    settle_s: float = 0.5
    rejection_log: RejectionLogLimits = RejectionLogLimits()
    decoding: DecodingLimits = DecodingLimits()
    handshakes: HandshakeLimits = HandshakeLimits()
    memory_release: MemoryReleaseLimits = MemoryReleaseLimits()

"""The limits and waits of the write path in a gateway, each with its reason."""

import msgspec

MIB = 1024 * 1024


class RecordLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How much of one batch is decoded, and how long other connections wait for it."""

    # Up to this many records are checked without a pause, which takes half a millisecond.
    records_at_once_max: int = 1_000
    slice_records: int = 1_000  # of a larger batch; after each slice other connections continue
    # A batch up to this size is decompressed in the event loop, because handing it to a thread costs more.
    compressed_at_once_max: int = 32 * 1024
    decompressed_at_once_max: int = 256 * 1024
    # Of one batch: no real client sends more, and decoding it would take seconds.
    decompressed_bytes_max: int = 64 * MIB
    records_max: int = 1_000_000
    errors_max: int = 1_000  # listed one by one in an answer; a batch may have a million of them
    errors_shown: int = 3  # in the message for the whole batch


class ProduceLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Windows and waits between a gateway and its flushers."""

    # Of one window, also if the flusher's budget is larger: a burst may queue this much in NATS for a slow flusher.
    window_bytes_max: int = 64 * MIB
    window_bytes_default: int = 8 * MIB  # for a flusher that announces no budget
    unreachable_s: float = 0.5  # how long a flusher is avoided after a message found no process listening
    sweep_interval_s: float = 0.1  # how late an expired request may be noticed
    answer_timeout_s_min: float = 1.0  # for a message whose requests are about to expire
    # The client's own time-out, within these limits: below a flush interval no request could succeed, and after a
    # minute the client has given up.
    request_timeout_s_min: float = 1.0
    request_timeout_s_max: float = 60.0
    # How long a commit may take after a confirmation. A flusher is given up only after that time. It is below the three
    # seconds after which a silent flusher counts as gone.
    commit_lease_s: float = 2.0
    # Stock producers send so many requests without an answer, and then wait for one.
    requests_in_flight_usual: int = 5
    records: RecordLimits = RecordLimits()

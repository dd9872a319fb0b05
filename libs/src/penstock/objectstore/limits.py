"""Limits of object stores: of each kind of store, and of the retries."""

import msgspec


class FileLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of a store in a folder: its threads, and the age of files from crashed writers."""

    # No upload takes an hour, so the writer of an older staged file has crashed.
    staging_age_max_s: int = 3600
    # Each thread waits for the disk most of the time.
    write_threads: int = 8
    # Reads have their own threads, so that they never wait for syncs.
    read_threads: int = 8
    # Files whose names the kernel most likely has in memory, so that they are opened without a thread.
    opened_max: int = 4_096
    # Folders whose names are known to be durable: ten times the number of segment folders.
    folders_known_max: int = 10_000


class HttpLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of a store behind HTTP: its connections and time-outs."""

    # Of reads, and again of writes; a store answers one request per connection at a time.
    connections_max: int = 64
    connect_timeout_s: float = 3.0
    # Without any byte; S3 answers 99 of 100 puts of 8 MiB within 0.4 s.
    read_timeout_s: float = 10.0


class S3Limits(HttpLimits, frozen=True, kw_only=True):
    """Limits of a store in S3."""


class JetStreamLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of a store in a JetStream stream, unless its address has others."""

    # Of all objects; a put above it is rejected. At 5 MB/s it holds 13 minutes: a minute until compaction, and the
    # janitor's grace.
    bytes_max: int = 4 * 1024 * 1024 * 1024
    # Of one message with an object; the server counts headers as part of its largest payload.
    header_bytes_max: int = 4096
    put_timeout_s: float = 5.0
    ask_timeout_s: float = 5.0
    create_timeout_s: float = 5.0
    list_timeout_s: float = 10.0
    deletes_parallel_max: int = 16


class QuorumLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of three landing stores; the defaults suit S3 Express, where a put takes 5 to 15 ms."""

    # For one call to one store, which then counts as failed. A put of 8 MiB takes 0.1 s.
    call_s_max: float = 10.0
    # Puts to one store that go on after the others answered. Above these limits it gets no puts.
    behind_puts_max: int = 64
    behind_bytes_max: int = 32 * 1024 * 1024
    # Before a read asks the next store, too.
    read_hedge_s: float = 0.05
    # The measured time of a slow or failed read counts half after this time.
    read_half_life_s: float = 10.0
    # For the third store, after two have listed, or have answered that an object is absent.
    last_answer_s: float = 2.0
    # After this time of failures, health reports it.
    degraded_after_s: float = 5.0
    # After this time of failures, deletes go on without the store. The orphan sweep deletes its objects later.
    gone_after_s: float = 60.0
    # Between two attempts to open a store that was not there.
    reopen_s: float = 5.0
    # For puts without a caller, before a delete of the object and at the end of the process.
    end_s_max: float = 1.0


class CloudLimits(HttpLimits, frozen=True, kw_only=True):
    """Limits of a store in Google Cloud Storage or Azure."""

    deletes_parallel_max: int = 16
    # Of one request with its body. A retry limit ends most requests earlier.
    request_timeout_s: float = 60.0
    # An upload in blocks must end before its signed address does.
    signed_s: int = 24 * 3600


class RetryLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of retries; the defaults suit S3, where one put of a hundred takes 400 ms."""

    # For one call with all its attempts.
    deadline_s: float = 30.0
    # For one attempt. Then it is cancelled, and its outcome is unknown.
    attempt_s: float = 15.0
    # Before the second attempt; it doubles with each attempt. The actual pause is random, from half of it to all of it.
    first_pause_s: float = 0.05
    pause_max_s: float = 2.0
    # The failed attempt that is logged, about 300 ms after the first. Shorter disturbances are not logged.
    logged_attempt: int = 4


class StoreLimits(msgspec.Struct, frozen=True, kw_only=True):
    """All limits of a store."""

    file: FileLimits = FileLimits()
    s3: S3Limits = S3Limits()
    clouds: CloudLimits = CloudLimits()
    jetstream: JetStreamLimits = JetStreamLimits()
    quorum: QuorumLimits = QuorumLimits()
    retry: RetryLimits = RetryLimits()


DEFAULT_LIMITS = StoreLimits()

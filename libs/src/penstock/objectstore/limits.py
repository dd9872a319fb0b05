"""The limits of object stores: of each kind of store, and of the retries around it."""

import msgspec


class FileLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How many threads work on a folder, and how long files of crashed writers stay."""

    # No upload takes an hour, so the writer of an older staged file is gone.
    staging_age_max_s: int = 3600
    # Each thread waits for the disk most of its time.
    write_threads: int = 8
    # Threads of their own, so that reads never wait behind syncs.
    read_threads: int = 8
    # Folders whose names are known to be durable: ten times the folders that segments spread over.
    folders_known_max: int = 10_000


class S3Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How many connections a store has, and how long it waits for an answer."""

    # In each of the two pools; S3 answers one request per connection at a time.
    connections_max: int = 64
    connect_timeout_s: float = 3.0
    # Of silence; S3 answers 99 in 100 puts of 8 MiB within 0.4 s.
    read_timeout_s: float = 10.0


class RetryLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How long and how often to try; the defaults suit S3, where one put in a hundred takes 400 ms."""

    # One call with all its attempts.
    deadline_s: float = 30.0
    # One attempt. It is then abandoned, and its outcome is unknown.
    attempt_s: float = 15.0
    # Before the second attempt; doubled for each attempt. The actual pause is a random part from half to all of it.
    first_pause_s: float = 0.05
    pause_max_s: float = 2.0
    # This failed attempt of a call is logged, some 300 ms after the first. Shorter disturbances of a store are not.
    logged_attempt: int = 4


class StoreLimits(msgspec.Struct, frozen=True, kw_only=True):
    """All limits of a store that an address names."""

    file: FileLimits = FileLimits()
    s3: S3Limits = S3Limits()
    retry: RetryLimits = RetryLimits()


DEFAULT_LIMITS = StoreLimits()

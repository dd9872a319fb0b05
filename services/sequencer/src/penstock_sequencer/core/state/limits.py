"""Every limit and period of the state machine, each with its reason; the state carries them as `State.limits`.

The constants are parts of Kafka's protocol, of the journal or of the snapshot format: no replica may have others. The
structs hold the limits that a test or a simulation may change.
"""

import msgspec

from penstock.contracts.commands import LOGS_PER_COMMAND_MAX

SECOND_MS = 1_000
MINUTE_MS = 60 * SECOND_MS
HOUR_MS = 60 * MINUTE_MS

INTEGER_MAX = 2**63 - 1  # the columns are 64 bits wide, signed, as Kafka's offsets and timestamps are
CLOCK_MS_MAX = 2**48 - 1  # what the birth time in a segment id can hold; a later `now_ms` is a broken clock, ignored
SEGMENT_BYTES_MAX = 2**32 - 1  # positions and lengths are columns of 32 bits; the largest planned object is 1 GiB
RECORDS_PER_BATCH_MAX = 2**31 - 1  # Kafka counts them in 32 bits, signed
SEGMENT_LEVEL_MAX = 9  # one digit in an object's key; two levels are in use
PARTITION_INDEX_MAX = 2**32 - 1  # a column of 32 bits
DEFAULT_PARTITIONS = 1  # as Kafka's num.partitions
FIRST_PRODUCER_ID = 1
SEQUENCE_MAX = 2**31 - 1  # the sequence after this one is 0
PRODUCER_EPOCH_MAX = 2**15 - 1  # 16 bits on the wire, signed
BATCHES_REMEMBERED = 5  # Kafka's: an idempotent client has at most five requests in flight
REBALANCE_TIMEOUT_MAX_MS = 2**31 - 1  # 32 bits on the wire, signed
# Snapshots hold the sum of these sizes (`State.group_bytes`), so another size would be another format.
MEMBER_OVERHEAD_BYTES = 1_024  # of a member, beside its protocols and its assignment
OFFSET_OVERHEAD_BYTES = 256  # of a committed offset, beside its metadata
PARTITION_BYTES = 16  # of a partition in a member's assignment or target
# The custodian outside the machine counts by these, too.
CUSTODY_LEASE_MS = 20 * SECOND_MS  # how long nobody archives the journal after a custodian's death
SNAPSHOTS_KEPT = 2  # the newest, and one to fall back to if that is damaged


class LogLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Of segments, their extents and how these are dropped."""

    segment_commit_age_max_ms: int = 15 * MINUTE_MS  # a quarter of the age at which the janitor sweeps orphans
    remembered_commits_max: int = 200_000  # 15 minutes of 220 segments a second; about 100 MB
    commits_removed_per_tick: int = 10_000  # about 2 ms
    extents_max: int = 20_000_000  # about 1 GB of columns: beyond it the process would die, so commits are refused
    segments_max: int = 20_000_000  # about 1.6 GB of columns
    extents_dropped_per_command_max: int = 2_000  # about 1 ms of work, so that no commit waits for it
    extents_dropped_per_step_max: int = 20_000  # the same below JANITOR_LEVEL: about 10 ms
    logs_per_command_max: int = LOGS_PER_COMMAND_MAX  # no gateway and no janitor sends more


class ProducerLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Of idempotent producers."""

    producer_expiry_ms: int = 24 * HOUR_MS  # Kafka's producer.id.expiration.ms
    producer_births_step_ms: int = 10 * MINUTE_MS  # precision of the ages of producer ids: 145 records a day
    producers_per_partition_max: int = 4_096  # about 1.5 MB
    producers_max: int = 1_000_000  # over all partitions, about 400 MB
    producer_idle_min_ms: int = 10 * MINUTE_MS  # when a partition is full; five times delivery.timeout.ms
    producers_swept_per_tick: int = 1_000  # about 0.2 ms


class TransactionLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Of transactional ids and their transactions."""

    transactions_max: int = 100_000  # transactional ids, about 70 MB with a partition each
    transactional_id_length_max: int = 1_024  # letters; Kafka bounds it by a 16-bit length only
    transactional_id_expiry_ms: int = 7 * 24 * HOUR_MS  # Kafka's transactional.id.expiration.ms
    transaction_timeout_max_ms: int = 15 * MINUTE_MS  # Kafka's transaction.max.timeout.ms
    partitions_per_transaction_max: int = 4_000  # its end is one entry, about 30 ms of work, 100 on a busy machine
    offsets_per_transaction_max: int = 10_000  # and groups; its end is one entry, about 10 ms of work
    transaction_partitions_max: int = 1_000_000  # of all ongoing transactions, about 200 MB
    transaction_partitions_ended_per_tick: int = 2_000  # about 15 ms; the last transaction may exceed it
    transactions_removed_per_tick: int = 1_000  # about 0.3 ms
    aborted_transactions_max: int = 5_000_000  # known to partitions, about 160 MB; beyond it none may begin


class TopicLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Of topics, deleted topics, quotas and the configurations of groups."""

    partitions_per_topic_max: int = 10_000  # one Metadata answer must stay far below the largest frame
    partitions_max: int = 200_000  # the rating of Kafka's own controller; about 150 MB when idle
    deleted_topics_max: int = 10_000  # ids that a late retry of their CreateTopic must not bring back
    deleted_topic_memory_ms: int = HOUR_MS  # far longer than any client retries
    recoverable_topics_max: int = 10_000  # deleted topics that can come back; their partitions count as all others do
    partitions_pending_delete_per_step: int = 10_000  # whose window is over, about 10 ms; the last topic may exceed it
    quota_entities_max: int = 5_000  # users, client ids and addresses with quotas; all of them fit into one answer
    groups_with_configs_max: int = 10_000  # with configurations of their own, about 10 MB


class GroupLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Of groups of all kinds, and of classic groups."""

    groups_max: int = 100_000  # about 1 KB each, and more with members and offsets
    group_bytes_max: int = 1024 * 1024 * 1024  # of members and offsets over all groups, by the sizes above
    group_id_length_max: int = 1_024  # letters; Kafka bounds it by a 16-bit length only
    group_idle_ms: int = 10 * MINUTE_MS  # Kafka's cleaning interval: then an empty group without offsets is removed
    group_pending_max: int = 2_000  # member ids that were assigned and are not yet used
    group_fenced_max: int = 64  # replaced static members that are fenced when they ask again
    member_names_length_max: int = 4_096  # letters of a member's ids, client and host together; usually some hundred
    member_bytes_max: int = 1024 * 1024  # protocols of one member; a subscription of 10,000 topics is a quarter of it
    protocols_per_member_max: int = 32  # clients know two to four assignors


class ConsumerLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Of consumer groups (KIP-848), and of subscriptions by patterns."""

    consumer_members_max: int = 2_000  # of one group: a new target for all of them is some 100 ms of work
    consumer_heartbeat_soon_ms: int = SECOND_MS  # of members that wait for a part of their target; 0.2 ms of a gateway
    consumer_moving_ms: int = 3 * SECOND_MS  # after a target another one may follow: members rarely start alone
    members_times_sets_max: int = 200_000  # about 50 ms; with more, each set of subscribers is dealt out by itself
    departed_members_max: int = 20_000  # over all groups: 33 a second, about 5 MB, and 100 MB with the longest ids
    departed_memory_ms: int = 10 * MINUTE_MS  # far longer than a command is on its way
    patterns_max: int = 1_000  # over all groups: each is matched with a new topic's name, 1 ms or so in all
    pattern_matches_max: int = 2_000_000  # patterns times topics: about 6 s of matching, once; 250 KB of a snapshot


class OffsetLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Of committed offsets and their expiry."""

    offset_metadata_bytes_max: int = 4_096  # Kafka's offset.metadata.max.bytes
    leap_max_ms: int = MINUTE_MS  # of the uptime clock between two entries; there is a Tick each second
    expiry_steps: int = 100  # precision of the ages of offsets: a hundredth of offsets.retention.minutes
    groups_swept_per_tick: int = 500  # about 1 ms, with few members each
    offsets_swept_per_tick: int = 10_000  # about 3 ms; the last group may exceed it
    offsets_per_member: int = 10  # the work to find out what a member reads, counted in offsets
    subscriptions_bytes_max: int = 1024 * 1024  # of a classic group's members: more is not read, about 30 ms


class ShareLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Of share groups (KIP-932)."""

    share_members_max: int = 1_000  # of one group: Kafka's largest group.share.max.size
    share_subscriptions_max: int = 100_000  # topics of a group's members, counted for each: 0.2 s of work for targets
    share_fragments_per_pause_ms: int = 25  # of targets: at some 4 us each they take a tenth of the time at most
    share_heartbeat_soon_ms: int = SECOND_MS  # of members of a group whose targets are about to change
    share_partitions_max: int = 200_000  # over all groups, about 60 MB with nothing in flight
    share_records_max: int = 1_000_000  # in flight over all groups, about 300 MB if each differs from its neighbours
    share_fragments_max: int = 20_000  # extents, gaps and ranges between, of a partition in one command: 20 ms
    share_lock_grain_ms: int = 100  # locks end at multiples of it, so a group is looked at ten times a second at most
    share_tickets_max: int = 8  # of a member: its client may have so many requests under way, to one gateway each
    share_rejections_remembered_max: int = 100  # partitions of a command that are reported again when it is repeated


class MaintenanceLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Of compaction, of the leases of compactors and janitors, and of custody."""

    replaced_extents_max: int = 20_000  # by one command: about 15 ms of work
    outputs_max: int = 1_000  # of one job; one has a few
    remembered_replacements_max: int = 20_000  # 15 minutes of 22 jobs a second
    job_leases_max: int = 1_000  # jobs in work, over all compactors
    leased_segments_max: int = 200_000  # over all job leases, about 30 MB
    segments_per_lease_max: int = 20_000  # `replaced_extents_max`: more could not be replaced by one command
    job_lease_max_ms: int = 10 * MINUTE_MS  # how long a dead compactor may keep others from its segments
    task_lease_max_ms: int = 10 * MINUTE_MS  # how long a dead janitor may keep others from its tasks
    task_period_max_ms: int = 400 * 24 * HOUR_MS  # every task is done once a year at least
    lease_names_length_max: int = 256  # letters: an instance's name, and a few to tell its jobs apart
    author_length_max: int = 256  # letters: an instance's name, and a few to tell its lives apart


class AnswerLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Of the answers to queries, and of the work for one of them."""

    plan_extents_max: int = 2_000  # about 200 KB of answer, far more than one fetch can read
    plan_aborted_max: int = 10_000  # about 300 KB; more than a partition has producers, so a plan always makes progress
    segments_listed_max: int = 5_000  # about 300 KB of answer, and 5 ms of work
    rows_walked_max: int = 20_000  # of the table of segments for one listing, about 2 ms
    dead_rows_walked_max: int = 200_000  # with dead rows that are passed over, about 10 ms
    extents_listed_max: int = 5_000  # about 300 KB of answer, and 10 ms of work; one segment may have more
    segments_asked_max: int = 20_000  # rows of one question for extents; the asker repeats the question for the rest
    dead_listed_max: int = 5_000  # about 200 KB of answer, and 5 ms of work
    dead_walked_max: int = 20_000  # with dead segments that are passed over because they are leased, about 10 ms
    overdue_topics_asked_max: int = 10_000  # of one question about retention, about 15 ms, with few partitions each
    overdue_partitions_asked_max: int = 20_000  # of one question about retention, about 15 ms; no topic is cut
    overdue_extents_counted_max: int = 20_000  # over all logs of an answer, about 10 ms
    transactions_listed_max: int = 1_500  # 6 MB of answer at the worst; the walk over all of them is 20 ms at most
    transaction_partitions_listed_max: int = 20_000  # about 100 KB of answer; the last transaction may exceed it
    pattern_letters_max: int = 20_000  # of transactional ids matched with one query's pattern: some milliseconds
    producers_listed_max: int = 20_000  # about 800 KB of answer; the last partition may exceed it
    share_windows_max: int = 20_000  # about 200 KB of answer


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """All limits of one state machine.

    All replicas of one release use the same limits: two replicas with different ones would give the same command
    different outcomes. So the limits are part of the release, and neither of the journal nor of a snapshot.
    """

    log: LogLimits = LogLimits()
    producers: ProducerLimits = ProducerLimits()
    transactions: TransactionLimits = TransactionLimits()
    topics: TopicLimits = TopicLimits()
    groups: GroupLimits = GroupLimits()
    consumers: ConsumerLimits = ConsumerLimits()
    offsets: OffsetLimits = OffsetLimits()
    share: ShareLimits = ShareLimits()
    maintenance: MaintenanceLimits = MaintenanceLimits()
    answers: AnswerLimits = AnswerLimits()


DEFAULT_LIMITS = Limits()  # of this release

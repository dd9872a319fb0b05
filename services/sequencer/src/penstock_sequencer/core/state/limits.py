"""Every limit and period of the state machine, each with its reason; the state holds them as `State.limits`.

The constants belong to Kafka's protocol, to the journal or to the snapshot format, so no replica may change them. The
structs hold the limits that a test or a simulation may change.
"""

import msgspec

from penstock.contracts.acls import PRINCIPAL_LENGTH_MAX
from penstock.contracts.commands import LOGS_PER_COMMAND_MAX
from penstock.contracts.commands.group_sizes import OFFSET_METADATA_BYTES_MAX, TRANSACTIONAL_ID_LENGTH_MAX, GroupSizes
from penstock.contracts.configs.members import GROUP_CONFIGS, SESSION_TIMEOUT_MIN

SECOND_MS = 1_000
MINUTE_MS = 60 * SECOND_MS
HOUR_MS = 60 * MINUTE_MS

INTEGER_MAX = 2**63 - 1  # the columns are 64 bits wide, signed, as Kafka's offsets and timestamps are
# No batch gets offsets from here on. So the records of one entry, and markers after them, still fit the columns.
# This limit has no level: without it replicas halt at such a batch, and must be able to replay it (ADR 0008).
OFFSET_MAX = 2**63 - 2**52
CLOCK_MS_MAX = 2**48 - 1  # the largest birth time of a segment id; a later `now_ms` is from a broken clock: ignored
SEGMENT_BYTES_MAX = 2**32 - 1  # positions and lengths are 32-bit columns; the largest planned object is 1 GiB
RECORDS_PER_BATCH_MAX = 2**31 - 1  # signed 32 bits in Kafka
SEGMENT_LEVEL_MAX = 9  # one digit in an object key; two levels are in use
PARTITION_INDEX_MAX = 2**32 - 1  # a 32-bit column
DEFAULT_PARTITIONS = 1  # as Kafka's num.partitions
FIRST_PRODUCER_ID = 1
SEQUENCE_MAX = 2**31 - 1  # the next sequence after this one is 0
PRODUCER_EPOCH_MAX = 2**15 - 1  # signed 16 bits on the wire
BATCHES_REMEMBERED = 5  # as in Kafka: an idempotent client has at most five requests in flight
REBALANCE_TIMEOUT_MAX_MS = 2**31 - 1  # signed 32 bits on the wire
# Snapshots hold the sum of these sizes (`State.group_bytes`), so another size would need another format.
MEMBER_OVERHEAD_BYTES = 1_024  # of a member, beside its protocols and its assignment
OFFSET_OVERHEAD_BYTES = 256  # of a committed offset, beside its metadata
SUBSCRIBED_TOPIC_BYTES = 64  # of a topic that a consumer group's member names, beside its name
PARTITION_BYTES = 16  # of a partition in a member's assignment or target
# The custodian outside the state machine also uses these.
CUSTODY_LEASE_MS = 20 * SECOND_MS  # the journal is not archived for so long after the death of a custodian
SNAPSHOTS_KEPT = 2  # the newest, and an older one in case the newest is damaged


class LogLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of segments and extents, and of the work to drop them."""

    segment_commit_age_max_ms: int = 15 * MINUTE_MS  # a quarter of the age at which the janitor deletes orphans
    segment_ahead_max_ms: int = 5 * MINUTE_MS  # of a birth before the machine's clock; see `producer_idle_min_ms`
    remembered_commits_max: int = 200_000  # 3 minutes of 1,100 segments a second; about 100 MB
    # From COMMIT_LEASE_LEVEL on a commit is remembered for so long after the end of its lease. Until then a flusher
    # without an answer, as in an outage, still gets its result. Clients wait 2 minutes.
    commit_memory_ms: int = 2 * MINUTE_MS
    crowded_percent: int = 80  # of `remembered_commits_max`; from here on flushers are asked for fewer segments
    commits_removed_per_tick: int = 10_000  # about 2 ms
    commits_requeued_per_tick: int = 1_000  # about 0.3 ms; 22 compactions a second need far fewer
    extents_max: int = 20_000_000  # about 1 GB of columns; above it the process would die, so commits are rejected
    segments_max: int = 20_000_000  # about 1.6 GB of columns
    extents_dropped_per_command_max: int = 2_000  # about 1 ms of work, so that commits do not wait
    extents_dropped_per_step_max: int = 20_000  # the same limit below JANITOR_LEVEL: about 10 ms
    logs_per_command_max: int = LOGS_PER_COMMAND_MAX  # gateways and janitors send no more


class ProducerLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of idempotent producers."""

    producer_expiry_ms: int = 24 * HOUR_MS  # Kafka's producer.id.expiration.ms
    producer_births_step_ms: int = 10 * MINUTE_MS  # precision of the ages of producer ids: 145 records a day
    producers_per_partition_max: int = 4_096  # about 1.5 MB
    producers_max: int = 1_000_000  # over all partitions, about 400 MB
    # Less idle producers are never evicted: a client may still repeat their batches. It is twice the usual
    # message.timeout.ms. It is also more than `segment_ahead_max_ms` and the longest lease of a produce request
    # together. So a segment with a late copy was born before the eviction.
    producer_idle_min_ms: int = 10 * MINUTE_MS
    producers_evicted_at_once: int = 512  # of a full partition: the search for the idlest takes 1 ms
    producers_swept_per_tick: int = 1_000  # about 0.2 ms
    # From this number on, expiry comes the earlier the fuller the table is.
    producers_pressure_min: int = 875_000
    # Per Tick: 1 ms. If most are evicted, 10 to 20 ms; from full partitions up to 91 ms on a busy machine.
    producers_swept_under_pressure: int = 5_000


class TransactionLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of transactional ids and their transactions."""

    transactions_max: int = 100_000  # transactional ids, about 70 MB with a partition each
    transactional_id_length_max: int = TRANSACTIONAL_ID_LENGTH_MAX
    transactional_id_expiry_ms: int = 7 * 24 * HOUR_MS  # Kafka's transactional.id.expiration.ms
    transactional_id_idle_min_ms: int = 15 * MINUTE_MS  # less idle ids are never evicted; the longest transaction
    transactions_pressure_min: int = 87_500  # from this number of ids on, a Tick evicts idle ones
    transactions_walked_max: int = 10_000  # in a search for idle ones: about 1 ms
    transaction_timeout_max_ms: int = 15 * MINUTE_MS  # Kafka's transaction.max.timeout.ms
    partitions_per_transaction_max: int = 4_000  # its end is one entry, about 30 ms of work, or 100 on a busy machine
    offsets_per_transaction_max: int = 10_000  # and groups; its end is one entry, about 10 ms of work
    transaction_partitions_max: int = 1_000_000  # of all ongoing transactions, about 200 MB
    transaction_partitions_ended_per_tick: int = 2_000  # about 15 ms; the last transaction may exceed it
    transactions_removed_per_tick: int = 1_000  # about 0.3 ms
    aborted_transactions_max: int = 5_000_000  # of all partitions, about 160 MB; above it no transaction may begin


class PrincipalLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of each principal in tables that all clients use (ADR 0040)."""

    # A principal has at most so many entries for each free place: alone it ends at 7/8 of a table.
    entries_per_free_place: int = 7
    principal_length_max: int = PRINCIPAL_LENGTH_MAX
    principals_removed_per_tick: int = 1_000  # about 0.3 ms


class TopicLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of topics, deleted topics, quotas and group configurations."""

    partitions_per_topic_max: int = 10_000  # one Metadata response must stay far below the largest frame
    partitions_max: int = 200_000  # the number that Kafka's own controller is rated for; about 150 MB when idle
    deleted_topics_max: int = 10_000  # ids that a late retry of CreateTopic must not create again
    deleted_topic_memory_ms: int = HOUR_MS  # far longer than any client retries
    recoverable_topics_max: int = 10_000  # their partitions count as all others do
    partitions_pending_delete_per_step: int = 10_000  # whose window is over; about 10 ms, the last topic may exceed it
    quota_entities_max: int = 5_000  # users, client ids and addresses with quotas; all fit into one answer
    # All fit into one answer, and each request of clients' telemetry is matched with all of them.
    metrics_subscriptions_max: int = 50
    broker_configs_max: int = 1_000  # of all single brokers, up to 300 KB; they are in each answer with the cluster's
    groups_with_configs_max: int = 10_000  # groups with their own configurations, about 10 MB


class SecurityLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of users, access control lists and delegation tokens."""

    users_max: int = 10_000  # about 5 MB; each gateway has a copy
    bindings_max: int = 50_000  # about 20 MB; each gateway has a copy
    scram_items_max: int = 1_000  # of one command: about 3 ms, and 500 KB with usual names
    bindings_created_max: int = 2_000  # by one command: about 10 ms, and 200 KB with usual names
    filters_max: int = 1_000  # of one command
    bindings_deleted_max: int = 10_000  # by one command, as in Kafka; fewer, if they exceed `listed_bytes_max`
    # Bindings that the filters of one command are compared with: about 80 ms. A filter that can match one binding
    # only is compared with none.
    bindings_compared_max: int = 250_000
    items_listed_max: int = 2_500  # users and bindings of one page, or tokens: about 10 ms
    tokens_max: int = 10_000  # delegation tokens, also expired ones: about 5 MB, or 60 MB with the longest names
    tokens_per_requester_max: int = 2_500  # so that one user alone cannot fill the table
    token_memory_ms: int = 10 * MINUTE_MS  # of a void token: far longer than any command is in flight
    token_lifetime_max_ms: int = 400 * 24 * HOUR_MS  # gateways have a setting, by default of 7 days


class GroupLimits(GroupSizes, frozen=True, kw_only=True):
    """Limits of groups of all kinds, and of classic groups."""

    groups_max: int = 100_000  # about 1 KB each, and more with members and offsets
    group_bytes_max: int = 1024 * 1024 * 1024  # below GROUP_SIZES_LEVEL: of all members and offsets, by the sizes above
    # While a snapshot is taken, these bytes exist four times. Replicas have 2 GB in `compose.yaml`.
    members_bytes_max: int = 128 * 1024 * 1024  # of the members of all groups: 100,000 usual ones
    members_per_group_bytes_max: int = 32 * 1024 * 1024  # Kafka's groups must fit one record of 1 MB
    offsets_bytes_max: int = 512 * 1024 * 1024  # 2 million without metadata; about 400 MB in a replica
    group_idle_ms: int = 10 * MINUTE_MS  # Kafka's cleanup interval: then an empty group without offsets is removed
    group_pending_max: int = 2_000  # member ids that are assigned but not yet used
    group_fenced_max: int = 64  # replaced static members that get a fencing error when they return
    session_timeout_min_ms: int = int(GROUP_CONFIGS[SESSION_TIMEOUT_MIN].default)  # if the cluster configures none


class ConsumerLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of consumer groups (KIP-848) and of subscriptions by patterns."""

    subscribed_topics_max: int = 20_000  # that one member names: about 50 ms
    classic_names_max: int = 200_000  # of topics in the metadata of a group that is converted: 0.2 s of reading
    consumer_members_max: int = 2_000  # of one group; a new target for all of them is about 100 ms of work
    consumer_heartbeat_soon_ms: int = SECOND_MS  # for members that wait for a part of their target; 0.2 ms of a gateway
    consumer_moving_ms: int = 3 * SECOND_MS  # another target may follow soon, because members rarely start alone
    members_times_sets_max: int = 200_000  # about 50 ms; above it each set of subscribers is assigned separately
    departed_members_max: int = 20_000  # of all groups: 33 a second, about 5 MB, or 100 MB with the longest ids
    departed_memory_ms: int = 10 * MINUTE_MS  # far longer than any command is in flight
    patterns_max: int = 1_000  # of all groups; a new topic name is matched with each: about 1 ms in all
    pattern_matches_max: int = 2_000_000  # patterns times topics: about 6 s of matching, once, and 250 KB of a snapshot


class StreamsLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of streams groups (KIP-1071)."""

    streams_members_max: int = 2_000  # of one group, as of consumer groups
    tasks_max: int = 20_000  # active ones of one group: a target is 0.2 s of work, with two standby tasks each 0.5 s
    topology_bytes_max: int = 256 * 1024  # Kafka's must fit one record of 1 MB; usual ones have some KB
    topology_item_bytes: int = 64  # of each subtopology and each topic, beside its names
    task_offset_bytes: int = 24  # of one task's offset that a member reports
    task_offsets_max: int = 20_000  # that one member reports
    task_offsets_read_max: int = 100_000  # of all members for one target: 0.2 s more of work
    streams_heartbeat_soon_ms: int = SECOND_MS  # for members that wait for topics, a target, or a part of it


class OffsetLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of committed offsets and of their expiry."""

    offset_metadata_bytes_max: int = OFFSET_METADATA_BYTES_MAX
    leap_max_ms: int = MINUTE_MS  # largest step of the uptime clock between two entries; a Tick comes each second
    expiry_steps: int = 100  # precision of the ages of offsets: 1% of offsets.retention.minutes
    groups_swept_per_tick: int = 500  # about 1 ms, if each has few members
    offsets_swept_per_tick: int = 10_000  # about 3 ms; the last group may exceed it
    offsets_per_member: int = 10  # the work to find the topics that a member reads, counted in offsets
    subscriptions_bytes_max: int = 1024 * 1024  # of the members of a classic group; more is not read
    subscriptions_names_max: int = 50_000  # of topics in these bytes: about 75 ms; more is not read


class ShareLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of share groups (KIP-932)."""

    share_members_max: int = 1_000  # of one group: the largest group.share.max.size in Kafka
    share_subscriptions_max: int = 100_000  # of one group, counted per member and topic: 0.2 s of work for targets
    share_fragments_per_pause_ms: int = 25  # of targets: at about 4 us each, targets take at most a tenth of the time
    share_heartbeat_soon_ms: int = SECOND_MS  # for members of a group whose targets are about to change
    share_partitions_max: int = 200_000  # of all groups, about 60 MB with nothing in flight
    share_records_max: int = 1_000_000  # in flight in all groups, about 300 MB if each differs from its neighbours
    share_fragments_max: int = 20_000  # extents, gaps and ranges between them, of one partition in one command: 20 ms
    share_lock_grain_ms: int = 100  # locks end at multiples of it, so a group is checked at most ten times a second
    share_tickets_max: int = 8  # of one member: its client may have so many requests in flight, one per gateway
    share_rejections_remembered_max: int = 100  # partitions whose rejection is repeated when the command is


class MaintenanceLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of compaction, of the leases of compactors and janitors, and of custody."""

    replaced_extents_max: int = 20_000  # in one command: about 15 ms of work
    outputs_max: int = 1_000  # of one job; a usual job has a few
    remembered_replacements_max: int = 20_000  # 15 minutes of 22 jobs a second
    job_leases_max: int = 1_000  # running jobs of all compactors
    leased_segments_max: int = 200_000  # of all job leases, about 30 MB
    segments_per_lease_max: int = 20_000  # `replaced_extents_max`: one command could not replace more
    job_lease_max_ms: int = 10 * MINUTE_MS  # for so long a dead compactor blocks its segments
    task_lease_max_ms: int = 10 * MINUTE_MS  # for so long a dead janitor blocks its tasks
    task_period_max_ms: int = 400 * 24 * HOUR_MS  # every task is done at least once a year
    lease_names_length_max: int = 256  # characters: an instance name, and a few that differ per job
    author_length_max: int = 256  # characters: an instance name, and a few that differ per restart


class AnswerLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of the answers to queries, and of the work for one answer."""

    plan_extents_max: int = 2_000  # about 200 KB of an answer, far more than one fetch can read
    plan_aborted_max: int = 10_000  # about 300 KB; more than the producers of a partition, so each plan makes progress
    segments_listed_max: int = 5_000  # about 300 KB of an answer, and 5 ms of work
    rows_walked_max: int = 20_000  # rows of the segment table in one listing: about 2 ms
    dead_rows_walked_max: int = 200_000  # including skipped rows of dead segments: about 10 ms
    extents_listed_max: int = 5_000  # about 300 KB of an answer, and 10 ms of work; one segment may exceed it
    segments_asked_max: int = 20_000  # rows of one query for extents; the client repeats the query for the rest
    dead_listed_max: int = 5_000  # about 200 KB of an answer, and 5 ms of work
    dead_walked_max: int = 20_000  # including dead segments that are skipped because they are leased: about 10 ms
    overdue_topics_asked_max: int = 10_000  # in one retention query: about 15 ms, if each has few partitions
    overdue_partitions_asked_max: int = 20_000  # in one retention query: about 15 ms; no topic is split
    overdue_extents_counted_max: int = 20_000  # in all logs of one answer: about 10 ms
    transactions_listed_max: int = 1_500  # at most 6 MB of an answer; the walk over all of them takes at most 20 ms
    transaction_partitions_listed_max: int = 20_000  # about 100 KB of an answer; the last transaction may exceed it
    pattern_letters_max: int = 20_000  # characters of ids that are matched with the pattern of one query: a few ms
    producers_listed_max: int = 20_000  # about 800 KB of an answer; the last partition may exceed it
    share_windows_max: int = 20_000  # about 200 KB of an answer
    names_listed_max: int = 10_000  # of one page; a page costs 20 ms, if there are 100,000 names
    listed_bytes_max: int = 2 * 1024 * 1024  # of one page, as estimated; the last item may exceed it


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """All limits of one state machine.

    All replicas of one release use the same limits: with different limits, two replicas would give the same command
    different outcomes. So the limits belong to the release, not to the journal and not to a snapshot.
    """

    log: LogLimits = LogLimits()
    producers: ProducerLimits = ProducerLimits()
    transactions: TransactionLimits = TransactionLimits()
    shares: PrincipalLimits = PrincipalLimits()
    topics: TopicLimits = TopicLimits()
    security: SecurityLimits = SecurityLimits()
    groups: GroupLimits = GroupLimits()
    consumers: ConsumerLimits = ConsumerLimits()
    streams: StreamsLimits = StreamsLimits()
    offsets: OffsetLimits = OffsetLimits()
    share: ShareLimits = ShareLimits()
    maintenance: MaintenanceLimits = MaintenanceLimits()
    answers: AnswerLimits = AnswerLimits()


DEFAULT_LIMITS = Limits()  # of this release

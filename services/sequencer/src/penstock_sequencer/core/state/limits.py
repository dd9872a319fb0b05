"""Every limit and period of the state machine, each with its reason."""

SECOND_MS = 1_000
MINUTE_MS = 60 * SECOND_MS
HOUR_MS = 60 * MINUTE_MS

INTEGER_MAX = 2**63 - 1  # the columns are 64 bits wide, signed, as Kafka's offsets and timestamps are
CLOCK_MS_MAX = 2**48 - 1  # what a segment id's birth time can hold; a later `now_ms` is a broken clock and is ignored

# Segments and extents
SEGMENT_BYTES_MAX = 2**32 - 1  # positions and lengths are columns of 32 bits; the largest planned object is 1 GiB
RECORDS_PER_BATCH_MAX = 2**31 - 1  # Kafka counts them in 32 bits, signed
SEGMENT_COMMIT_AGE_MAX_MS = 15 * MINUTE_MS  # a quarter of the age at which the janitor sweeps what nobody committed
REMEMBERED_COMMITS_MAX = 200_000  # 15 minutes of 220 segments a second; about 100 MB
EXTENTS_MAX = 20_000_000  # about 1 GB of columns: beyond it the process would die, so commits are refused
SEGMENTS_MAX = 20_000_000  # about 1.6 GB of columns

# Compaction
REPLACED_EXTENTS_MAX = 20_000  # by one command: about 15 ms of work
OUTPUTS_MAX = 1_000  # of one job; one has a few
SEGMENT_LEVEL_MAX = 9  # one digit in an object's key; two are in use
REMEMBERED_REPLACEMENTS_MAX = 20_000  # 15 minutes of 22 jobs a second
JOB_LEASES_MAX = 1_000  # jobs in work, over all compactors
LEASED_SEGMENTS_MAX = 200_000  # over all claims, about 30 MB
SEGMENTS_PER_LEASE_MAX = REPLACED_EXTENTS_MAX  # more could not be replaced by one command
JOB_LEASE_MAX_MS = 10 * MINUTE_MS  # how long a dead compactor may keep others from its segments
LEASE_NAMES_LENGTH_MAX = 256  # letters: an instance's name, and a few to tell its jobs apart

# Janitors
TASK_LEASE_MAX_MS = 10 * MINUTE_MS  # how long a dead janitor may keep others from its chores
TASK_PERIOD_MAX_MS = 400 * 24 * HOUR_MS  # nobody looks less often than once a year

# Topics
DEFAULT_PARTITIONS = 1  # as Kafka's num.partitions
PARTITIONS_PER_TOPIC_MAX = 10_000  # one Metadata answer must stay far below the largest frame
PARTITION_INDEX_MAX = 2**32 - 1  # a column of 32 bits
PARTITIONS_MAX = 200_000  # what Kafka's own controller is rated for; about 150 MB when idle
DELETED_TOPICS_MAX = 10_000  # ids that a late retry of their CreateTopic must not bring back
DELETED_TOPIC_MEMORY_MS = HOUR_MS  # far longer than any client retries
RECOVERABLE_TOPICS_MAX = 10_000  # deleted topics that can still come back; their partitions count as all others do
PARTITIONS_PENDING_DELETE_PER_STEP = (
    10_000  # of topics whose window is over, about 10 ms; the last one may go beyond it
)
EXTENTS_DROPPED_PER_STEP_MAX = 20_000  # about 10 ms of work; the rest of a deleted topic goes tick by tick

# Administration
QUOTA_ENTITIES_MAX = 5_000  # users, client ids and addresses with client quotas; all of them fit into one answer

# Idempotent producers
FIRST_PRODUCER_ID = 1
SEQUENCE_MAX = 2**31 - 1  # the sequence after this one is 0
PRODUCER_EPOCH_MAX = 2**15 - 1  # 16 bits on the wire, signed
BATCHES_REMEMBERED = 5  # Kafka's: an idempotent client has at most five requests in flight
PRODUCER_EXPIRY_MS = 24 * HOUR_MS  # Kafka's producer.id.expiration.ms
PRODUCER_BIRTHS_STEP_MS = 10 * MINUTE_MS  # how finely the ages of producer ids are known: 145 records a day
PRODUCERS_PER_PARTITION_MAX = 4_096  # about 1.5 MB
PRODUCERS_MAX = 1_000_000  # over all partitions, about 400 MB
PRODUCER_IDLE_MIN_MS = 10 * MINUTE_MS  # in need, whoever is idle for longer makes room: five times delivery.timeout.ms
PRODUCERS_SWEPT_PER_TICK = 1_000  # about 0.2 ms

# Transactions
TRANSACTIONS_MAX = 100_000  # transactional ids, about 70 MB with a partition each
TRANSACTIONAL_ID_LENGTH_MAX = 1_024  # letters; Kafka bounds it by a 16-bit length only
TRANSACTIONAL_ID_EXPIRY_MS = 7 * 24 * HOUR_MS  # Kafka's transactional.id.expiration.ms
TRANSACTION_TIMEOUT_MAX_MS = 15 * MINUTE_MS  # Kafka's transaction.max.timeout.ms
PARTITIONS_PER_TRANSACTION_MAX = 4_000  # its end is one entry, about 30 ms of work, 100 on a busy machine
OFFSETS_PER_TRANSACTION_MAX = 10_000  # and groups; its end is one entry, about 10 ms of work
TRANSACTION_PARTITIONS_MAX = 1_000_000  # over all that are ongoing, about 200 MB
TRANSACTION_PARTITIONS_ENDED_PER_TICK = 2_000  # about 15 ms; the last transaction may go beyond it
TRANSACTIONS_REMOVED_PER_TICK = 1_000  # about 0.3 ms
ABORTED_TRANSACTIONS_MAX = 5_000_000  # that partitions know, about 160 MB; beyond it none may begin

# Groups
REBALANCE_TIMEOUT_MAX_MS = 2**31 - 1  # 32 bits on the wire, signed
GROUP_BYTES_MAX = 1024 * 1024 * 1024  # of members and offsets over all groups, as counted by the two sizes below
MEMBER_OVERHEAD_BYTES = 1_024  # what a member takes beside its protocols and its assignment
OFFSET_OVERHEAD_BYTES = 256  # what a committed offset takes beside its metadata
MEMBER_NAMES_LENGTH_MAX = 4_096  # letters of a member's ids, client and host together; they are a few hundred
GROUP_PENDING_MAX = 2_000  # member ids given out and not yet used
GROUPS_MAX = 100_000  # about 1 KB each, and more with members and offsets
GROUP_FENCED_MAX = 64  # replaced static members that are told so when they ask once more
GROUP_IDLE_MS = 10 * MINUTE_MS  # an empty group without offsets is forgotten after Kafka's cleaning interval
GROUP_ID_LENGTH_MAX = 1_024  # letters; Kafka bounds it by a 16-bit length only
PROTOCOLS_PER_MEMBER_MAX = 32  # clients know two to four assignors
MEMBER_BYTES_MAX = 1024 * 1024  # protocols of one member; a subscription of 10,000 topics is a quarter of it
CONSUMER_MEMBERS_MAX = 2_000  # of a consumer group: a new target for all of them is some 100 ms of work
CONSUMER_HEARTBEAT_SOON_MS = SECOND_MS  # for members that have not all of their target yet: 0.2 ms of a gateway each
CONSUMER_MOVING_MS = 3 * SECOND_MS  # after a target there may soon be another one: members rarely start one alone
DEPARTED_MEMBERS_MAX = 20_000  # over all groups: 33 a second, about 5 MB, and 100 MB with the longest ids
DEPARTED_MEMORY_MS = 10 * MINUTE_MS  # far longer than a command is on its way
PARTITION_BYTES = 16  # what a partition takes that a member has, or is to have
PATTERNS_MAX = 1_000  # by which anybody subscribes: a new topic's name is looked at by each, 1 ms or so in all
PATTERN_MATCHES_MAX = 2_000_000  # patterns times topics: about 6 s of matching, once each; 250 KB of a snapshot
LEAP_MAX_MS = MINUTE_MS  # between two entries, for the watch by which offsets expire; there is a Tick each second
EXPIRY_STEPS = 100  # how finely the ages of offsets are known: a hundredth of offsets.retention.minutes
GROUPS_SWEPT_PER_TICK = 500  # about 1 ms, with few members each
OFFSETS_SWEPT_PER_TICK = 10_000  # about 3 ms; the last group may go beyond it
OFFSETS_PER_MEMBER = 10  # that a member counts as, where it is looked at what it reads
SUBSCRIPTIONS_BYTES_MAX = 1024 * 1024  # of a classic group's members: more is not read, about 30 ms
OFFSET_METADATA_BYTES_MAX = 4_096  # Kafka's offset.metadata.max.bytes

# Share groups
SHARE_MEMBERS_MAX = 1_000  # of a share group: Kafka's largest group.share.max.size
SHARE_SUBSCRIPTIONS_MAX = 100_000  # topics of a share group's members, counted for each: targets are 0.2 s of work
SHARE_FRAGMENTS_PER_PAUSE_MS = 25  # of targets: they take a tenth of the time at most, at some 4 us for each
SHARE_HEARTBEAT_SOON_MS = SECOND_MS  # for members of a group whose targets are to come
SHARE_PARTITIONS_MAX = 200_000  # over all groups, about 60 MB with nothing in flight
SHARE_RECORDS_MAX = 1_000_000  # in flight over all groups, about 300 MB if each stands otherwise than its neighbours
SHARE_FRAGMENTS_MAX = 20_000  # extents, gaps and what is between them, looked at in a partition by one command: 20 ms
SHARE_LOCK_GRAIN_MS = 100  # locks end at multiples of it: a group's partitions are looked at ten times a second at most
SHARE_WINDOWS_MAX = 20_000  # in one answer, about 200 KB
SHARE_TICKETS_MAX = 8  # of a member: as many requests as its client may have under way, to one gateway each
SHARE_REJECTIONS_REMEMBERED_MAX = 100  # partitions of a command; whoever repeats it is told of no more
GROUPS_WITH_CONFIGS_MAX = 10_000  # groups that have configurations of their own, about 10 MB

# Custody
CUSTODY_LEASE_MS = 20 * SECOND_MS  # how long the journal may be left alone when its custodian dies
SNAPSHOTS_KEPT = 2  # the newest, and one to fall back to if that is damaged
AUTHOR_LENGTH_MAX = 256  # letters: an instance's name, and a few to tell its lives apart

# Answers
PLAN_EXTENTS_MAX = 2_000  # about 200 KB of answer, far more than one fetch can read
SEGMENTS_LISTED_MAX = 5_000  # about 300 KB of answer, and 5 ms of work
ROWS_WALKED_MAX = 20_000  # of the table of segments for one listing, about 2 ms
DEAD_ROWS_WALKED_MAX = 200_000  # with those passed over on the way, about 10 ms
TRANSACTIONS_LISTED_MAX = 1_500  # 6 MB of answer at the worst; the walk over all of them is 20 ms at most
PATTERN_LETTERS_MAX = 20_000  # of transactional ids held against a pattern by one question: some milliseconds
TRANSACTION_PARTITIONS_LISTED_MAX = 20_000  # about 100 KB of answer; the last transaction may go beyond it
PRODUCERS_LISTED_MAX = 20_000  # about 800 KB of answer; the last partition may go beyond it
PLAN_ABORTED_MAX = 10_000  # about 300 KB of answer; more than a partition has producers, so a plan leads somewhere
EXTENTS_LISTED_MAX = 5_000  # about 300 KB of answer, and 10 ms of work; one segment may have more
OVERDUE_TOPICS_ASKED_MAX = 10_000  # for one question about retention, about 15 ms, however few partitions they have
OVERDUE_PARTITIONS_ASKED_MAX = 20_000  # for one question about retention, about 15 ms; one topic is never cut
OVERDUE_EXTENTS_COUNTED_MAX = 20_000  # over all logs of an answer, about 10 ms
DEAD_LISTED_MAX = 5_000  # about 200 KB of answer, and 5 ms of work
DEAD_WALKED_MAX = 20_000  # with those passed over since somebody has claimed them, about 10 ms
SEGMENTS_ASKED_MAX = 20_000  # rows of one question for extents; what is beyond is asked for again

"""The table of all Kafka APIs, with the operations that a client needs for each.

It is the reference for readers and tests: a test compares it with the operations that the gateway really checks. The
keys also include APIs that Penstock does not serve yet.
"""

import msgspec

from penstock.contracts.acls import AclOperation, ResourceType

READ, WRITE, CREATE, DELETE = AclOperation.READ, AclOperation.WRITE, AclOperation.CREATE, AclOperation.DELETE
ALTER, DESCRIBE = AclOperation.ALTER, AclOperation.DESCRIBE
DESCRIBE_CONFIGS, ALTER_CONFIGS = AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS
CLUSTER_ACTION, IDEMPOTENT_WRITE = AclOperation.CLUSTER_ACTION, AclOperation.IDEMPOTENT_WRITE
TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
TRANSACTIONAL_ID, DELEGATION_TOKEN, USER = (
    ResourceType.TRANSACTIONAL_ID,
    ResourceType.DELEGATION_TOKEN,
    ResourceType.USER,
)
CREATE_TOKENS, DESCRIBE_TOKENS = AclOperation.CREATE_TOKENS, AclOperation.DESCRIBE_TOKENS


class Need(msgspec.Struct, frozen=True):
    """One operation on one type of resources, and when it is needed ("" for always)."""

    operation: AclOperation
    resource_type: ResourceType
    when: str = ""


_READ_GROUP = Need(READ, GROUP)
_READ_TOPIC = Need(READ, TOPIC)
_DESCRIBE_TOPIC = Need(DESCRIBE, TOPIC)
_DESCRIBE_GROUP = Need(DESCRIBE, GROUP)
_WRITE_TRANSACTION = Need(WRITE, TRANSACTIONAL_ID)
_SEEN_TOPICS = Need(DESCRIBE, TOPIC, "for each topic in the answer")
_OWN_OPERATIONS = Need(DESCRIBE, CLUSTER, "for its operations")
_ALTERED_CONFIGS = (
    Need(ALTER_CONFIGS, TOPIC, "for the configurations of topics"),
    Need(ALTER_CONFIGS, GROUP, "for the configurations of groups"),
    Need(ALTER_CONFIGS, CLUSTER, "for those of brokers and client metrics"),
)

NEEDS: dict[int, tuple[Need, ...]] = {
    0: (Need(WRITE, TOPIC), Need(WRITE, TRANSACTIONAL_ID, "with a transactional id")),  # Produce
    1: (_READ_TOPIC,),  # Fetch
    2: (_DESCRIBE_TOPIC,),  # ListOffsets
    3: (  # Metadata
        Need(DESCRIBE, TOPIC, "else hidden in lists"),
        Need(CREATE, CLUSTER, "to create, or:"),
        Need(CREATE, TOPIC, "to create"),
        _OWN_OPERATIONS,
    ),
    8: (_READ_GROUP, _READ_TOPIC),  # OffsetCommit
    9: (_DESCRIBE_GROUP, _DESCRIBE_TOPIC),  # OffsetFetch
    10: (  # FindCoordinator
        Need(DESCRIBE, GROUP, "for groups"),
        Need(DESCRIBE, TRANSACTIONAL_ID, "for transactions"),
        Need(CLUSTER_ACTION, CLUSTER, "for share partitions"),
    ),
    11: (_READ_GROUP,),  # JoinGroup
    12: (_READ_GROUP,),  # Heartbeat
    13: (_READ_GROUP,),  # LeaveGroup
    14: (_READ_GROUP,),  # SyncGroup
    15: (_DESCRIBE_GROUP,),  # DescribeGroups
    16: (  # ListGroups
        Need(DESCRIBE, CLUSTER, "to list all groups, or:"),
        Need(DESCRIBE, GROUP, "else hidden"),
    ),
    17: (),  # SaslHandshake
    18: (),  # ApiVersions
    19: (  # CreateTopics
        Need(CREATE, CLUSTER, "or:"),
        Need(CREATE, TOPIC),
        Need(DESCRIBE_CONFIGS, TOPIC, "to see the configurations in the answer"),
    ),
    20: (  # DeleteTopics
        Need(DELETE, CLUSTER, "or:"),
        Need(DELETE, TOPIC),
        Need(DESCRIBE, TOPIC, "to learn whether a topic exists"),
    ),
    21: (Need(DELETE, TOPIC),),  # DeleteRecords
    22: (  # InitProducerId
        Need(WRITE, TRANSACTIONAL_ID, "with a transactional id; else:"),
        Need(IDEMPOTENT_WRITE, CLUSTER, "or:"),
        Need(WRITE, TOPIC, "on any topic"),
    ),
    23: (Need(CLUSTER_ACTION, CLUSTER, "or:"), _DESCRIBE_TOPIC),  # OffsetForLeaderEpoch
    24: (  # AddPartitionsToTxn
        Need(WRITE, TRANSACTIONAL_ID, "up to version 3"),
        Need(WRITE, TOPIC, "up to version 3"),
        Need(CLUSTER_ACTION, CLUSTER, "from version 4 on"),
    ),
    25: (_WRITE_TRANSACTION, _READ_GROUP),  # AddOffsetsToTxn
    26: (_WRITE_TRANSACTION,),  # EndTxn
    27: (Need(ALTER, CLUSTER, "or:"), Need(CLUSTER_ACTION, CLUSTER)),  # WriteTxnMarkers
    28: (_WRITE_TRANSACTION, _READ_GROUP, _READ_TOPIC),  # TxnOffsetCommit
    29: (Need(DESCRIBE, CLUSTER),),  # DescribeAcls
    30: (Need(ALTER, CLUSTER),),  # CreateAcls
    31: (Need(ALTER, CLUSTER),),  # DeleteAcls
    32: (  # DescribeConfigs
        Need(DESCRIBE_CONFIGS, TOPIC, "for the configurations of topics"),
        Need(DESCRIBE_CONFIGS, GROUP, "for the configurations of groups"),
        Need(DESCRIBE_CONFIGS, CLUSTER, "for those of brokers and client metrics"),
    ),
    33: _ALTERED_CONFIGS,  # AlterConfigs
    34: (Need(ALTER, CLUSTER),),  # AlterReplicaLogDirs
    35: (Need(DESCRIBE, CLUSTER),),  # DescribeLogDirs
    36: (),  # SaslAuthenticate
    37: (Need(ALTER, TOPIC),),  # CreatePartitions
    38: (Need(CREATE_TOKENS, USER, "for another owner"),),  # CreateDelegationToken
    39: (),  # RenewDelegationToken: for owner and renewers only
    40: (),  # ExpireDelegationToken: for owner and renewers only
    41: (  # DescribeDelegationToken
        Need(DESCRIBE, DELEGATION_TOKEN, "for tokens of others, or:"),
        Need(DESCRIBE_TOKENS, USER, "else hidden"),
    ),
    42: (Need(DELETE, GROUP),),  # DeleteGroups
    43: (Need(ALTER, CLUSTER),),  # ElectLeaders
    44: _ALTERED_CONFIGS,  # IncrementalAlterConfigs
    45: (Need(ALTER, CLUSTER),),  # AlterPartitionReassignments
    46: (Need(DESCRIBE, CLUSTER),),  # ListPartitionReassignments
    47: (Need(DELETE, GROUP), _READ_TOPIC),  # OffsetDelete
    48: (Need(DESCRIBE_CONFIGS, CLUSTER),),  # DescribeClientQuotas
    49: (Need(ALTER_CONFIGS, CLUSTER),),  # AlterClientQuotas
    50: (Need(DESCRIBE, CLUSTER),),  # DescribeUserScramCredentials
    51: (Need(ALTER, CLUSTER),),  # AlterUserScramCredentials
    55: (Need(DESCRIBE, CLUSTER),),  # DescribeQuorum
    60: (_OWN_OPERATIONS,),  # DescribeCluster
    61: (_READ_TOPIC,),  # DescribeProducers
    65: (Need(DESCRIBE, TRANSACTIONAL_ID), _SEEN_TOPICS),  # DescribeTransactions
    66: (Need(DESCRIBE, TRANSACTIONAL_ID, "else hidden"),),  # ListTransactions
    68: (_READ_GROUP, Need(DESCRIBE, TOPIC, "for each topic in the subscription")),  # ConsumerGroupHeartbeat
    69: (_DESCRIBE_GROUP, _SEEN_TOPICS),  # ConsumerGroupDescribe
    71: (),  # GetTelemetrySubscriptions
    72: (),  # PushTelemetry
    74: (Need(DESCRIBE_CONFIGS, CLUSTER),),  # ListConfigResources
    75: (Need(DESCRIBE, TOPIC, "else hidden in lists"),),  # DescribeTopicPartitions
    76: (_READ_GROUP, Need(DESCRIBE, TOPIC, "for each topic in the subscription")),  # ShareGroupHeartbeat
    77: (_DESCRIBE_GROUP, _SEEN_TOPICS),  # ShareGroupDescribe
    78: (_READ_GROUP, _READ_TOPIC),  # ShareFetch
    79: (_READ_GROUP, _READ_TOPIC),  # ShareAcknowledge
    88: (  # StreamsGroupHeartbeat
        _READ_GROUP,
        Need(DESCRIBE, TOPIC, "for each topic in the topology"),
        Need(CREATE, CLUSTER, "to create internal topics, or:"),
        Need(CREATE, TOPIC, "to create internal topics"),
    ),
    89: (_DESCRIBE_GROUP, _SEEN_TOPICS),  # StreamsGroupDescribe
    90: (_DESCRIBE_GROUP, _DESCRIBE_TOPIC),  # DescribeShareGroupOffsets
    91: (_READ_GROUP, _READ_TOPIC),  # AlterShareGroupOffsets
    92: (Need(DELETE, GROUP), _READ_TOPIC),  # DeleteShareGroupOffsets
}

"""The operations of each type of resources: all of them, as a Kafka broker without an authorizer answers.

One bit for each operation, by Kafka's numbers (KIP-430). With access control, `penstock_gateway.enforcement` reduces
them to those that the client may do.
"""

READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, CLUSTER_ACTION = 3, 4, 5, 6, 7, 8, 9
DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE = 10, 11, 12


def _bits(*operations: int) -> int:
    return sum(1 << operation for operation in operations)


TOPIC_OPERATIONS = _bits(READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS)
GROUP_OPERATIONS = _bits(READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS)
CLUSTER_OPERATIONS = _bits(CREATE, ALTER, DESCRIBE, CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE)
NOT_ASKED = -(2**31)


def cluster_operations(asked: bool) -> int:
    """The operations on the cluster, if the client asked for them."""
    return CLUSTER_OPERATIONS if asked else NOT_ASKED

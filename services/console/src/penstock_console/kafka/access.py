"""The rights of a user as gateways report them."""

from typing import Any

from penstock.cli.kafka.session import Session

_UNKNOWN = -(2**31)  # a gateway without access control reports this


def cluster_operations(session: Session) -> int:
    """The operations that the user may do on the cluster, as the bits of Kafka's numbers; all of them without ACLs."""
    found: dict[str, Any] = session.admin.describe_cluster()
    print(found)
    return -1

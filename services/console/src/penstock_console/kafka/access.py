"""The rights of a user as gateways report them."""

from typing import Any

from penstock.cli.kafka.session import Session

_DESCRIBE = "DESCRIBE"
_OPERATIONS = "authorized_operations"


def may_describe_cluster(session: Session) -> bool:
    """Whether the user may see the topics and groups of the cluster in a list."""
    found: dict[str, Any] = session.admin.describe_cluster()
    return _DESCRIBE in found.get(_OPERATIONS, ())

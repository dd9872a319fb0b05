"""Messages of Kafka that kafka-python does not have, and how a command sends them.

The JSON files are in the form of Kafka's own message descriptions. Only this module and
`session.py` use private parts of kafka-python. So its version is pinned below the next minor release.
"""

from types import new_class
from typing import Any

from kafka.protocol.api_message import ApiMessage
from kafka.protocol.metadata import CoordinatorType

from penstock.cli.kafka.session import Session


def _message(name: str) -> Any:
    """The class of a message, from the JSON file of its name."""
    return new_class(name, (ApiMessage,), {"load_json": __name__})


ConsumerGroupDescribeRequest = _message("ConsumerGroupDescribeRequest")
ConsumerGroupDescribeResponse = _message("ConsumerGroupDescribeResponse")
ShareGroupDescribeRequest = _message("ShareGroupDescribeRequest")
ShareGroupDescribeResponse = _message("ShareGroupDescribeResponse")
StreamsGroupDescribeRequest = _message("StreamsGroupDescribeRequest")
StreamsGroupDescribeResponse = _message("StreamsGroupDescribeResponse")
AlterShareGroupOffsetsRequest = _message("AlterShareGroupOffsetsRequest")
AlterShareGroupOffsetsResponse = _message("AlterShareGroupOffsetsResponse")
DeleteShareGroupOffsetsRequest = _message("DeleteShareGroupOffsetsRequest")
DeleteShareGroupOffsetsResponse = _message("DeleteShareGroupOffsetsResponse")
DescribeShareGroupOffsetsRequest = _message("DescribeShareGroupOffsetsRequest")
DescribeShareGroupOffsetsResponse = _message("DescribeShareGroupOffsetsResponse")
CreateDelegationTokenRequest = _message("CreateDelegationTokenRequest")
CreateDelegationTokenResponse = _message("CreateDelegationTokenResponse")
RenewDelegationTokenRequest = _message("RenewDelegationTokenRequest")
RenewDelegationTokenResponse = _message("RenewDelegationTokenResponse")
ExpireDelegationTokenRequest = _message("ExpireDelegationTokenRequest")
ExpireDelegationTokenResponse = _message("ExpireDelegationTokenResponse")
DescribeDelegationTokenRequest = _message("DescribeDelegationTokenRequest")
DescribeDelegationTokenResponse = _message("DescribeDelegationTokenResponse")


def ask_any(session: Session, request: Any) -> Any:
    """The answer of any gateway."""
    manager = session.admin._manager
    return manager.run(manager.send, request)


def ask_coordinator(session: Session, request: Any, group: str) -> Any:
    """The answer of the coordinator of a group."""
    admin = session.admin

    async def ask() -> Any:
        found = await admin._find_coordinator_ids([group], key_type=CoordinatorType.GROUP)
        return await admin._manager.send(request, node_id=found[group])

    return admin._manager.run(ask)

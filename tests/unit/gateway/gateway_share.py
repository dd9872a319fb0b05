"""Members of share groups on the gateway's read path, with the requests of the Java client."""

from typing import cast

import msgspec

from penstock.contracts.commands import (
    AlterGroupConfigs,
    ConfigChange,
    ConfigOperation,
    ShareHeartbeat,
    ShareMembership,
)
from penstock.contracts.ids import TopicId
from penstock.contracts.levels import SHARE_GROUPS_LEVEL
from penstock.kafkawire.api.share_acknowledge import (
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
)
from penstock.kafkawire.api.share_fetch import (
    AcknowledgementBatch,
    FetchPartition,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ShareFetchRequest,
    ShareFetchResponse,
)
from penstock_gateway.handlers.share import share_acknowledge, share_fetch
from penstock_gateway.kafka.client import Client
from tests.unit.gateway.gateway_read_world import START_MS, World, values_of

GROUP = "g"
ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4
Acknowledged = dict[int, list[tuple[int, int, int]]]  # partition -> first and last offset, type


async def open_world(world: World, partitions: int = 1, **configs: str) -> TopicId:
    """Create a topic, and let the group read it from offset 0."""
    topic_id = await world.open(partitions=partitions)
    world.sequencer.record_level(SHARE_GROUPS_LEVEL)
    settings = {"share.auto.offset.reset": "earliest"} | {
        name.replace("_", "."): value for name, value in configs.items()
    }
    changes = [ConfigChange(name, ConfigOperation.SET, value) for name, value in settings.items()]
    await world.commit([AlterGroupConfigs(START_MS, GROUP, changes)])
    return topic_id


class Member:
    """One share consumer with its own connection."""

    def __init__(self, world: World, topic_id: TopicId, name: str) -> None:
        self.world = world
        self.topic_id = topic_id
        self.name = name
        self.gateway = world.gateway
        self.client = Client(host="127.0.0.1", zone="z")
        self.epoch = 0

    async def join(self, topic: str = "t") -> None:
        """Become a member."""
        heartbeat = ShareHeartbeat(START_MS, GROUP, self.name, 0, None, "c", "/h", [topic])
        (outcome,) = await self.world.commit([heartbeat])
        assert isinstance(outcome, ShareMembership), outcome

    async def fetch(
        self,
        *partitions: int,
        acknowledged: Acknowledged | None = None,
        removed: tuple[int, ...] = (),
        version: int = 2,
        **options: int,
    ) -> ShareFetchResponse:
        """Send a ShareFetch with these partitions."""
        given = acknowledged or {}
        asked = {number: given.get(number, []) for number in dict.fromkeys((*partitions, *given))}
        fetch_partitions = [FetchPartition(number, _batches(says)) for number, says in asked.items()]
        request = ShareFetchRequest(
            group_id=GROUP,
            member_id=self.name,
            share_session_epoch=self.epoch,
            max_records=500,
            batch_size=500,
            min_bytes=1,
            topics=[FetchTopic(self.topic_id, fetch_partitions)] if fetch_partitions else [],
            forgotten_topics_data=[ForgottenTopic(self.topic_id, list(removed))] if removed else [],
        )
        request = msgspec.structs.replace(request, **options)
        response = await share_fetch.handle(self.gateway, self.client, version, request)
        self._note(response.error_code)
        return response

    async def acknowledge(
        self, acknowledged: Acknowledged, epoch: int | None = None, **options: bool
    ) -> ShareAcknowledgeResponse:
        """Send a ShareAcknowledge."""
        partitions = [AcknowledgePartition(number, _batches(ranges)) for number, ranges in acknowledged.items()]
        request = ShareAcknowledgeRequest(
            group_id=GROUP,
            member_id=self.name,
            share_session_epoch=self.epoch if epoch is None else epoch,
            topics=[AcknowledgeTopic(self.topic_id, partitions)] if partitions else [],
        )
        request = msgspec.structs.replace(request, **options)
        response = await share_acknowledge.handle(self.gateway, self.client, 2, request)
        self._note(response.error_code)
        return response

    def _note(self, error: int) -> None:
        if not error:
            self.epoch += 1


def _batches(ranges: list[tuple[int, int, int]]) -> list[AcknowledgementBatch]:
    return [AcknowledgementBatch(first, last, [kind]) for first, last, kind in ranges]


async def joined_members(world: World, topic_id: TopicId, *names: str) -> list[Member]:
    """Members of the group, all joined."""
    members = [Member(world, topic_id, name) for name in names]
    for member in members:
        await member.join()
    for member in members:  # each gets the assignment of the complete group
        await member.join()
    return members


def partitions_of(response: ShareFetchResponse) -> dict[int, PartitionData]:
    return {partition.partition_index: partition for topic in response.responses for partition in topic.partitions}


def acquired(response: ShareFetchResponse, partition: int = 0) -> list[tuple[int, int, int]]:
    """First and last offset and delivery count of each range of a partition."""
    data = partitions_of(response).get(partition)
    return (
        []
        if data is None
        else [(each.first_offset, each.last_offset, each.delivery_count) for each in data.acquired_records]
    )


def records(response: ShareFetchResponse, partition: int = 0) -> dict[int, bytes | None]:
    """The acquired records of a partition by offset, as a client reads them from the batches."""
    data = partitions_of(response).get(partition)
    if data is None:
        return {}
    whole = msgspec.structs.replace(
        data, records=b"".join(bytes(each) for each in cast(list[memoryview], data.records))
    )
    found = values_of(whole)
    ranges = [(each.first_offset, each.last_offset) for each in data.acquired_records]
    return {offset: value for offset, value in found.items() if any(first <= offset <= last for first, last in ranges)}

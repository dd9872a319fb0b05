"""StreamsGroupHeartbeat: a member of a streams group joins, stays, reports its tasks, or leaves (KIP-1071)."""

from typing import Annotated

import msgspec

from penstock.kafkawire.api_description import Api
from penstock.kafkawire.schema import Bool, Int8, Int16, Int32, Int64, String, Uint16, since, versions


class KeyValue(msgspec.Struct, frozen=True, gc=False):
    key: String = ""
    value: String = ""


class TopicInfo(msgspec.Struct, frozen=True, gc=False):
    name: String = ""
    # 0: the group decides the number, as always for changelog topics.
    partitions: Int32 = 0
    replication_factor: Int16 = 0
    topic_configs: list[KeyValue] = []


class CopartitionGroup(msgspec.Struct, frozen=True, gc=False):
    """Indexes into the lists of the subtopology."""

    source_topics: list[Int16] = []
    source_topic_regex: list[Int16] = []
    repartition_source_topics: list[Int16] = []


class Subtopology(msgspec.Struct, frozen=True, gc=False):
    subtopology_id: String = ""
    source_topics: list[String] = []
    source_topic_regex: list[String] = []
    state_changelog_topics: list[TopicInfo] = []
    repartition_sink_topics: list[String] = []
    repartition_source_topics: list[TopicInfo] = []
    copartition_groups: list[CopartitionGroup] = []


class Topology(msgspec.Struct, frozen=True, gc=False):
    epoch: Int32 = 0
    subtopologies: list[Subtopology] = []


class TaskIds(msgspec.Struct, frozen=True, gc=False):
    subtopology_id: String = ""
    partitions: list[Int32] = []


class Endpoint(msgspec.Struct, frozen=True, gc=False):
    host: String = ""
    port: Uint16 = 0


class TaskOffset(msgspec.Struct, frozen=True, gc=False):
    subtopology_id: String = ""
    partition: Int32 = 0
    offset: Int64 = 0


class StreamsGroupHeartbeatRequest(msgspec.Struct, frozen=True, gc=False):
    group_id: String = ""
    member_id: String = ""
    # 0: the member joins; -1: it leaves; -2: a static member leaves for a while.
    member_epoch: Int32 = 0
    endpoint_information_epoch: Int32 = 0
    # In these fields null, or -1 as a time-out, means unchanged.
    instance_id: String | None = None
    rack_id: String | None = None
    rebalance_timeout_ms: Int32 = -1
    topology: Topology | None = None
    active_tasks: list[TaskIds] | None = None
    standby_tasks: list[TaskIds] | None = None
    warmup_tasks: list[TaskIds] | None = None
    process_id: String | None = None
    user_endpoint: Endpoint | None = None
    client_tags: list[KeyValue] | None = None
    task_offsets: list[TaskOffset] | None = None
    task_end_offsets: list[TaskOffset] | None = None
    shutdown_application: Bool = False


class Status(msgspec.Struct, frozen=True, gc=False):
    status_code: Int8 = 0
    status_detail: String = ""


class TopicPartition(msgspec.Struct, frozen=True, gc=False):
    topic: String = ""
    partitions: list[Int32] = []


class EndpointToPartitions(msgspec.Struct, frozen=True, gc=False):
    user_endpoint: Endpoint = Endpoint()
    active_partitions: list[TopicPartition] = []
    standby_partitions: list[TopicPartition] = []


class StreamsGroupHeartbeatResponse(msgspec.Struct, frozen=True, gc=False):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    member_id: String = ""
    member_epoch: Int32 = 0
    heartbeat_interval_ms: Int32 = 0
    acceptable_recovery_lag_legacy: Annotated[Int32, versions(0, 0)] = 0
    task_offset_interval_ms: Int32 = 0
    acceptable_recovery_lag: Annotated[Int64, since(1)] = -1
    status: list[Status] | None = []
    # Null: unchanged since the last response with tasks.
    active_tasks: list[TaskIds] | None = None
    standby_tasks: list[TaskIds] | None = None
    warmup_tasks: list[TaskIds] | None = None
    topology_description_required: Annotated[Bool, since(1)] = False
    endpoint_information_epoch: Int32 = 0
    partitions_by_user_endpoint: list[EndpointToPartitions] | None = None


API = Api(
    key=88,
    name="StreamsGroupHeartbeat",
    min_version=0,
    max_version=1,
    flexible_since=0,
    request=StreamsGroupHeartbeatRequest,
    response=StreamsGroupHeartbeatResponse,
)

"""StreamsGroupDescribe: streams groups with their topologies, members, tasks and targets (KIP-1071)."""

from typing import Annotated

import msgspec

from penstock.kafkawire.api_description import Api
from penstock.kafkawire.schema import Bool, Int8, Int16, Int32, Int64, String, Uint16, since


class StreamsGroupDescribeRequest(msgspec.Struct, frozen=True, gc=False):
    group_ids: list[String] = []
    include_authorized_operations: Bool = False
    # KIP-1331.
    include_topology_description: Annotated[Bool, since(1)] = False


class KeyValue(msgspec.Struct, frozen=True, gc=False):
    key: String = ""
    value: String = ""


class TopicInfo(msgspec.Struct, frozen=True, gc=False):
    name: String = ""
    partitions: Int32 = 0
    replication_factor: Int16 = 0
    topic_configs: list[KeyValue] = []


class Subtopology(msgspec.Struct, frozen=True, gc=False):
    subtopology_id: String = ""
    source_topics: list[String] = []
    repartition_sink_topics: list[String] = []
    state_changelog_topics: list[TopicInfo] = []
    repartition_source_topics: list[TopicInfo] = []


class Topology(msgspec.Struct, frozen=True, gc=False):
    epoch: Int32 = 0
    subtopologies: list[Subtopology] | None = None


class Endpoint(msgspec.Struct, frozen=True, gc=False):
    host: String = ""
    port: Uint16 = 0


class TaskOffset(msgspec.Struct, frozen=True, gc=False):
    subtopology_id: String = ""
    partition: Int32 = 0
    offset: Int64 = 0


class TaskIds(msgspec.Struct, frozen=True, gc=False):
    subtopology_id: String = ""
    partitions: list[Int32] = []


class Assignment(msgspec.Struct, frozen=True, gc=False):
    active_tasks: list[TaskIds] = []
    standby_tasks: list[TaskIds] = []
    warmup_tasks: list[TaskIds] = []


class Member(msgspec.Struct, frozen=True, gc=False):
    member_id: String = ""
    member_epoch: Int32 = 0
    instance_id: String | None = None
    rack_id: String | None = None
    client_id: String = ""
    client_host: String = ""
    topology_epoch: Int32 = 0
    process_id: String = ""
    user_endpoint: Endpoint | None = None
    client_tags: list[KeyValue] = []
    task_offsets: list[TaskOffset] = []
    task_end_offsets: list[TaskOffset] = []
    assignment: Assignment = Assignment()
    target_assignment: Assignment = Assignment()
    is_classic: Bool = False


class TopologyDescriptionNode(msgspec.Struct, frozen=True, gc=False):
    name: String = ""
    # 1 source, 2 processor, 3 sink.
    node_type: Int8 = 0
    source_topics: list[String] = []
    sink_topic: String | None = None
    stores: list[String] = []
    successors: list[String] = []


class TopologyDescriptionSubtopology(msgspec.Struct, frozen=True, gc=False):
    subtopology_id: String = ""
    nodes: list[TopologyDescriptionNode] = []


class TopologyDescriptionGlobalStore(msgspec.Struct, frozen=True, gc=False):
    source: TopologyDescriptionNode = TopologyDescriptionNode()
    processor: TopologyDescriptionNode = TopologyDescriptionNode()


class TopologyDescription(msgspec.Struct, frozen=True, gc=False):
    subtopologies: list[TopologyDescriptionSubtopology] = []
    global_stores: list[TopologyDescriptionGlobalStore] = []


class DescribedGroup(msgspec.Struct, frozen=True, gc=False):
    error_code: Int16 = 0
    error_message: String | None = None
    group_id: String = ""
    group_state: String = ""
    group_epoch: Int32 = 0
    assignment_epoch: Int32 = 0
    topology: Topology | None = None
    members: list[Member] = []
    authorized_operations: Int32 = -2147483648
    topology_description: Annotated[TopologyDescription | None, since(1)] = None
    # 0 not requested, 1 not stored, 2 error, 3 available.
    topology_description_status: Annotated[Int8, since(1)] = 0
    # KIP-1357.
    assignor_name: Annotated[String | None, since(1)] = None


class StreamsGroupDescribeResponse(msgspec.Struct, frozen=True, gc=False):
    throttle_time_ms: Int32 = 0
    groups: list[DescribedGroup] = []


API = Api(
    key=89,
    name="StreamsGroupDescribe",
    min_version=0,
    max_version=1,
    flexible_since=0,
    request=StreamsGroupDescribeRequest,
    response=StreamsGroupDescribeResponse,
)

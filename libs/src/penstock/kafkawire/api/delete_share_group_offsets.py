"""DeleteShareGroupOffsets: delete the offsets of topics in a share group without members (KIP-932)."""

import msgspec

from penstock.kafkawire.api_description import Api
from penstock.kafkawire.schema import NO_UUID, Int16, Int32, String, Uuid


class DeleteShareGroupOffsetsRequestTopic(msgspec.Struct, frozen=True, gc=False):
    topic_name: String = ""


class DeleteShareGroupOffsetsRequest(msgspec.Struct, frozen=True, gc=False):
    group_id: String = ""
    topics: list[DeleteShareGroupOffsetsRequestTopic] = []


class DeleteShareGroupOffsetsResponseTopic(msgspec.Struct, frozen=True, gc=False):
    topic_name: String = ""
    topic_id: Uuid = NO_UUID
    error_code: Int16 = 0
    error_message: String | None = None


class DeleteShareGroupOffsetsResponse(msgspec.Struct, frozen=True, gc=False):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    responses: list[DeleteShareGroupOffsetsResponseTopic] = []


API = Api(
    key=92,
    name="DeleteShareGroupOffsets",
    min_version=0,
    max_version=0,
    flexible_since=0,
    request=DeleteShareGroupOffsetsRequest,
    response=DeleteShareGroupOffsetsResponse,
    share_groups_only=True,
)

"""DescribeClientQuotas: the client quotas that match a filter (KIP-546)."""

import msgspec

from penstock.kafkawire.api_description import Api
from penstock.kafkawire.schema import Bool, Float64, Int8, Int16, Int32, String


class ComponentData(msgspec.Struct, frozen=True, gc=False):
    entity_type: String = ""
    # 0: the name in `match`; 1: the default entity; 2: any name.
    match_type: Int8 = 0
    match: String | None = ""


class DescribeClientQuotasRequest(msgspec.Struct, frozen=True, gc=False):
    components: list[ComponentData] = []
    # Whether to leave out entities with other types than those of the filter.
    strict: Bool = False


class EntityData(msgspec.Struct, frozen=True, gc=False):
    entity_type: String = ""
    # Null: the default entity.
    entity_name: String | None = ""


class ValueData(msgspec.Struct, frozen=True, gc=False):
    key: String = ""
    value: Float64 = 0.0


class EntryData(msgspec.Struct, frozen=True, gc=False):
    entity: list[EntityData] = []
    values: list[ValueData] = []


class DescribeClientQuotasResponse(msgspec.Struct, frozen=True, gc=False):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = ""
    entries: list[EntryData] | None = []


API = Api(
    key=48,
    name="DescribeClientQuotas",
    min_version=0,
    max_version=1,
    flexible_since=1,
    request=DescribeClientQuotasRequest,
    response=DescribeClientQuotasResponse,
)

"""AlterClientQuotas: change the quotas of clients (KIP-546)."""

import msgspec

from penstock.kafkawire.api_description import Api
from penstock.kafkawire.schema import Bool, Float64, Int16, Int32, String


class EntityData(msgspec.Struct, frozen=True, gc=False):
    entity_type: String = ""
    # Null: the default entity.
    entity_name: String | None = ""


class OpData(msgspec.Struct, frozen=True, gc=False):
    key: String = ""
    # Ignored if the key is removed.
    value: Float64 = 0.0
    remove: Bool = False


class EntryData(msgspec.Struct, frozen=True, gc=False):
    entity: list[EntityData] = []
    ops: list[OpData] = []


class AlterClientQuotasRequest(msgspec.Struct, frozen=True, gc=False):
    entries: list[EntryData] = []
    validate_only: Bool = False


class EntryResult(msgspec.Struct, frozen=True, gc=False):
    error_code: Int16 = 0
    error_message: String | None = ""
    entity: list[EntityData] = []


class AlterClientQuotasResponse(msgspec.Struct, frozen=True, gc=False):
    throttle_time_ms: Int32 = 0
    entries: list[EntryResult] = []


API = Api(
    key=49,
    name="AlterClientQuotas",
    min_version=0,
    max_version=1,
    flexible_since=1,
    request=AlterClientQuotasRequest,
    response=AlterClientQuotasResponse,
)

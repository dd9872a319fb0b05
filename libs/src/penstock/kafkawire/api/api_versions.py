"""ApiVersions: the requests and versions that a broker supports, and the cluster's features."""

from typing import Annotated

import msgspec

from penstock.kafkawire.api_description import Api
from penstock.kafkawire.schema import Bool, Int16, Int32, Int64, String, since, tagged


class ApiVersionsRequest(msgspec.Struct, frozen=True, gc=False):
    # The client's name (KIP-511): letters, digits, dots and dashes; others are an INVALID_REQUEST.
    client_software_name: Annotated[String, since(3)] = ""
    client_software_version: Annotated[String, since(3)] = ""
    # The broker that the client means to reach (KIP-1242): both or none of the two.
    cluster_id: Annotated[String | None, since(5)] = None
    node_id: Annotated[Int32, since(5)] = -1


class ApiVersion(msgspec.Struct, frozen=True, gc=False):
    api_key: Int16 = 0
    min_version: Int16 = 0
    max_version: Int16 = 0


class SupportedFeatureKey(msgspec.Struct, frozen=True, gc=False):
    name: String = ""
    min_version: Int16 = 0
    max_version: Int16 = 0


class FinalizedFeatureKey(msgspec.Struct, frozen=True, gc=False):
    name: String = ""
    max_version_level: Int16 = 0
    min_version_level: Int16 = 0


class ApiVersionsResponse(msgspec.Struct, frozen=True, gc=False):
    error_code: Int16 = 0
    api_keys: list[ApiVersion] = []
    throttle_time_ms: Annotated[Int32, since(1)] = 0
    # Features of the cluster and their levels (KIP-584); an epoch of -1 means that they are unknown.
    supported_features: Annotated[list[SupportedFeatureKey], tagged(0), since(3)] = []
    finalized_features_epoch: Annotated[Int64, tagged(1), since(3)] = -1
    finalized_features: Annotated[list[FinalizedFeatureKey], tagged(2), since(3)] = []
    zk_migration_ready: Annotated[Bool, tagged(3), since(3)] = False


API = Api(
    key=18,
    name="ApiVersions",
    min_version=0,
    max_version=5,
    flexible_since=3,
    request=ApiVersionsRequest,
    response=ApiVersionsResponse,
)

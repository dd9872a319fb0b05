"""DescribeCluster: the brokers and the controller, without topics (KIP-700)."""

from typing import Annotated

import msgspec

from penstock.kafkawire.api_description import Api
from penstock.kafkawire.schema import Bool, Int8, Int16, Int32, String, since


class DescribeClusterRequest(msgspec.Struct, frozen=True, gc=False):
    include_cluster_authorized_operations: Bool = False
    # 1: brokers; 2: controllers (KIP-919).
    endpoint_type: Annotated[Int8, since(1)] = 1
    # Whether to include registered brokers that take no work (KIP-1073).
    include_fenced_brokers: Annotated[Bool, since(2)] = False


class DescribeClusterBroker(msgspec.Struct, frozen=True, gc=False):
    broker_id: Int32 = 0
    host: String = ""
    port: Int32 = 0
    rack: String | None = None
    is_fenced: Annotated[Bool, since(2)] = False


class DescribeClusterResponse(msgspec.Struct, frozen=True, gc=False):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    endpoint_type: Annotated[Int8, since(1)] = 1
    cluster_id: String = ""
    controller_id: Int32 = -1
    brokers: list[DescribeClusterBroker] = []
    cluster_authorized_operations: Int32 = -2147483648


API = Api(
    key=60,
    name="DescribeCluster",
    min_version=0,
    max_version=2,
    flexible_since=0,
    request=DescribeClusterRequest,
    response=DescribeClusterResponse,
)

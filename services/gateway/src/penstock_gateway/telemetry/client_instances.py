"""The client instances of this gateway, and the rules of their requests, which are those of Kafka's brokers.

A client asks for its subscription, then pushes its metrics once in each interval. A push that names another
subscription is rejected, and the client asks again. Requests before the end of the interval are throttled. The state
of an instance ends with its connection. At another gateway the client continues with its id and subscription.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

from penstock.kafkawire.api.push_telemetry import PushTelemetryRequest
from penstock.kafkawire.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD
from penstock.kafkawire.error_codes import ErrorCode
from penstock_gateway.kafka.client import Client
from penstock_gateway.telemetry.limits import TelemetryLimits
from penstock_gateway.telemetry.subscriptions import Wanted, subscription_id

ACCEPTED_CODECS = (ZSTD, LZ4, GZIP, SNAPPY)  # by preference, as Kafka
KNOWN_CODECS = frozenset((NONE, *ACCEPTED_CODECS))
# After these errors the client asks at once for its new subscription.
_ASKS_AGAIN = (ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)


class _Owned:
    """The client instance of one connection."""

    def __init__(self) -> None:
        self.instance_id = b""  # none yet


@dataclass(slots=True)
class Instance:
    """One client instance, since it first asked on its connection; times are monotonic."""

    wanted: Wanted
    subscription_id: int
    owner: _Owned
    asked_s: float = -math.inf  # when it last asked for its subscription
    pushed_s: float = -math.inf
    may_push: bool = False  # it has asked since its last push, so the next one may come at any time
    is_terminating: bool = False
    last_error: ErrorCode = ErrorCode.NONE

    @property
    def interval_s(self) -> float:
        """The time between two pushes."""
        return self.wanted.interval_ms / 1000


class ClientInstances:
    """The client instances of all connections, the idlest one first."""

    def __init__(self, monotonic_s: Callable[[], float], limits: TelemetryLimits) -> None:
        self._monotonic_s = monotonic_s
        self._limits = limits
        self._instances: dict[bytes, Instance] = {}

    def __len__(self) -> int:
        return len(self._instances)

    def find(self, client: Client, instance_id: bytes, wanted: Wanted) -> Instance:
        """The instance, which this connection has from now on; a new one if its subscription is another one."""
        instance = self._instances.pop(instance_id, None)
        owner = self._owner(client, instance_id)
        if instance is None or instance.wanted != wanted:
            instance = Instance(wanted, subscription_id(wanted, instance_id), owner)
        instance.owner = owner
        self._instances[instance_id] = instance
        if len(self._instances) > self._limits.instances_max:
            del self._instances[next(iter(self._instances))]
        return instance

    def ask(self, instance: Instance) -> ErrorCode:
        """Check and record a request for the subscription."""
        now_s = self._monotonic_s()
        is_due = now_s - max(instance.asked_s, instance.pushed_s) >= instance.interval_s
        if is_due:
            instance.asked_s = now_s
        elif instance.last_error not in _ASKS_AGAIN:
            return ErrorCode.THROTTLING_QUOTA_EXCEEDED
        instance.may_push, instance.last_error = True, ErrorCode.NONE
        return ErrorCode.NONE

    def push(self, instance: Instance, request: PushTelemetryRequest) -> ErrorCode:
        """Check and record a push; the caller decodes the metrics."""
        instance.last_error = self._push_error(instance, request)
        instance.is_terminating = request.terminating
        return instance.last_error

    def _push_error(self, instance: Instance, request: PushTelemetryRequest) -> ErrorCode:
        if instance.is_terminating:
            return ErrorCode.INVALID_REQUEST
        now_s = self._monotonic_s()
        is_due = instance.may_push or now_s - instance.pushed_s >= instance.interval_s
        if is_due:
            instance.pushed_s, instance.may_push = now_s, False
        elif not request.terminating:
            return ErrorCode.THROTTLING_QUOTA_EXCEEDED
        if request.subscription_id != instance.subscription_id:
            return ErrorCode.UNKNOWN_SUBSCRIPTION_ID
        if request.compression_type not in KNOWN_CODECS:
            return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        if len(request.metrics) > self._limits.push_bytes_max:
            return ErrorCode.TELEMETRY_TOO_LARGE
        return ErrorCode.NONE

    def _owner(self, client: Client, instance_id: bytes) -> _Owned:
        """The connection's place for its instance, with this id; the instance that it had before is removed."""
        owner = client.part(_Owned)
        if not owner.instance_id:
            client.on_close.append(lambda: self._remove(owner))
        elif owner.instance_id != instance_id:
            self._remove(owner)
        owner.instance_id = instance_id
        return owner

    def _remove(self, owner: _Owned) -> None:
        instance = self._instances.get(owner.instance_id)
        if instance is not None and instance.owner is owner:  # else the client has it on another connection by now
            del self._instances[owner.instance_id]

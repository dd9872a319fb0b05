"""The table of needed operations has every API."""

from penstock.contracts.acls import AclOperation, ResourceType
from penstock.kafkawire.api import API_TABLE
from penstock_gateway.security.api_needs import NEEDS

# APIs that a client may use before its login.
OPEN = {"ApiVersions", "SaslHandshake", "SaslAuthenticate"}
# A client names a token by its password, and the machine accepts changes by its owner and its renewers only.
OF_OWNERS = {"RenewDelegationToken", "ExpireDelegationToken"}
# Every client reports its own metrics, as in Kafka.
TELEMETRY = {"GetTelemetrySubscriptions", "PushTelemetry"}


def test_every_api_has_a_row() -> None:
    missing = [api.name for key, api in API_TABLE.items() if key not in NEEDS]
    assert not missing, f"add these APIs to penstock_gateway.security.api_needs: {missing}"


def test_only_logins_owners_and_telemetry_need_nothing() -> None:
    free = {api.name for key, api in API_TABLE.items() if not NEEDS[key]}
    assert free <= OPEN | OF_OWNERS | TELEMETRY


def test_filters_never_stand_among_needs() -> None:
    for needs in NEEDS.values():
        assert all(need.operation > AclOperation.ALL and need.resource_type > ResourceType.ANY for need in needs)

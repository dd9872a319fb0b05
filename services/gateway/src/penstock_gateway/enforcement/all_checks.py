"""The checks of all APIs, by the keys of the APIs."""

from penstock.kafkawire.api import get_telemetry_subscriptions, produce, push_telemetry
from penstock_gateway.enforcement import (
    administration,
    delegation_tokens,
    discovery,
    groups,
    records,
    share_groups,
    streams_groups,
    transactions,
)
from penstock_gateway.enforcement.guard import Checks

# Produce requests of one connection overlap, and a check that waits could change their order. So the produce service
# asks the authorizer itself, in the place that keeps the order.
_PRODUCE: Checks = {produce.API.key: ()}

SASL_HANDSHAKE, SASL_AUTHENTICATE = 17, 36
_LOGINS: Checks = {SASL_HANDSHAKE: (), SASL_AUTHENTICATE: ()}  # a client without rights may log in
# As in Kafka, every client may report its own metrics.
_TELEMETRY: Checks = {get_telemetry_subscriptions.API.key: (), push_telemetry.API.key: ()}

ALL_CHECKS: Checks = {
    **_PRODUCE,
    **_LOGINS,
    **_TELEMETRY,
    **records.CHECKS,
    **discovery.CHECKS,
    **groups.CHECKS,
    **share_groups.CHECKS,
    **streams_groups.CHECKS,
    **transactions.CHECKS,
    **administration.CHECKS,
    **delegation_tokens.CHECKS,
}

"""The checks of all APIs, by the keys of the APIs."""

from penstock.kafkawire.api import produce
from penstock_gateway.enforcement import administration, discovery, groups, records, share_groups, transactions
from penstock_gateway.enforcement.guard import Checks

# Produce requests of one connection overlap, and a check that waits could change their order. So the produce service
# asks the authorizer itself, in the place that keeps the order.
_PRODUCE: Checks = {produce.API.key: ()}

ALL_CHECKS: Checks = {
    **_PRODUCE,
    **records.CHECKS,
    **discovery.CHECKS,
    **groups.CHECKS,
    **share_groups.CHECKS,
    **transactions.CHECKS,
    **administration.CHECKS,
}

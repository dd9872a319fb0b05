"""The dashboard of the object store: requests and their price, compaction, and deletion."""

from tests.testkit.docs.dashboards.layout import INSTANCES, Dashboard, Panel, Query, Row, Variable, quantile, rate

REQUESTS = "penstock_store_requests_total"
# Stores bill these verbs at the price of a write; reads are cheaper, and deletions are free.
WRITES = '@,verb=~"put|put_part|begin_parts|complete_parts|list|unfinished"'
READS = '@,verb=~"get|get_range"'
MONTH_S = 2_628_000


def price(matchers: str, of_thousand: str) -> str:
    """Dollars in a month, at the present rate of requests."""
    return f"{rate(REQUESTS, matchers=matchers)} * {MONTH_S} / 1000 * ${of_thousand}"


STORED = 'sum(max by (state) (penstock_janitor_bytes{@,state=~"live|dead|condemned|orphaned"}))'

DASHBOARD = Dashboard(
    "storage",
    "Penstock: storage and cost",
    "Requests to the object store and their price, compaction, and deletion.",
    (
        Row(
            "Cost in a month, at the present rates",
            (
                Panel(
                    "Writes",
                    "Price of requests that write or list. Change the prices above for your store.",
                    "currencyUSD",
                    (Query(price(WRITES, "write_price"), "writes"),),
                    is_stat=True,
                ),
                Panel(
                    "Reads",
                    "Price of requests that read.",
                    "currencyUSD",
                    (Query(f"({price(READS, 'read_price')}) or vector(0)", "reads"),),
                    is_stat=True,
                ),
                Panel(
                    "Space",
                    "Price of the bytes in the store.",
                    "currencyUSD",
                    (Query(f"{STORED} / 1e9 * $space_price", "space"),),
                    is_stat=True,
                ),
                Panel(
                    "Bytes stored",
                    "Bytes of all objects with records.",
                    "bytes",
                    (Query(STORED, "bytes"),),
                    is_stat=True,
                ),
            ),
        ),
        Row(
            "Requests",
            (
                Panel(
                    "Requests by verb",
                    "Requests to the store in a second, by verb.",
                    "reqps",
                    (Query(rate(REQUESTS, "verb"), "{{verb}}"),),
                ),
                Panel(
                    "Requests that fail",
                    "Requests to the store in a second that were not successful, by outcome. `not_found` and "
                    "`conflict` may be usual.",
                    "reqps",
                    (Query(rate(REQUESTS, "outcome", '@,outcome!="ok"'), "{{outcome}}"),),
                ),
                Panel(
                    "Time of requests",
                    "The time within which 99 of 100 requests are answered, by verb.",
                    "s",
                    (Query(quantile(0.99, "penstock_store_request_seconds", "verb"), "{{verb}}"),),
                ),
                Panel(
                    "Bytes by verb",
                    "Bytes written to and read from the store.",
                    "Bps",
                    (Query(rate("penstock_store_bytes_total", "verb"), "{{verb}}"),),
                ),
                Panel(
                    "Size of new segments",
                    "Mean bytes of a segment that flushers commit. Larger ones cost fewer requests.",
                    "bytes",
                    (
                        Query(
                            rate("penstock_flusher_segment_bytes_total")
                            + " / "
                            + rate("penstock_flusher_segments_total", matchers='@,outcome="committed"'),
                            "mean",
                        ),
                    ),
                ),
                Panel(
                    "Bytes to flushers by zone",
                    "Bytes that gateways send to flushers, by the zone of the flusher. Other zones cost traffic.",
                    "Bps",
                    (Query(rate("penstock_gateway_flush_bytes_total", "zone"), "{{zone}}"),),
                ),
                Panel(
                    "Where reads come from",
                    "Segment bytes that gateways read, by source: cachers, the store, or a local folder.",
                    "Bps",
                    (Query(rate("penstock_gateway_read_bytes_total", "source"), "{{source}}"),),
                    is_stacked=True,
                ),
            ),
        ),
        Row(
            "Compaction",
            (
                Panel(
                    "Segments that wait",
                    "Segments that can still be merged, by level. Thousands at level 0 mean that compaction is behind.",
                    "none",
                    (Query("max by (level) (penstock_compactor_waiting_segments{@})", "level {{level}}"),),
                ),
                Panel(
                    "Bytes merged",
                    "Bytes that compactors read and write.",
                    "Bps",
                    (
                        Query(rate("penstock_compactor_read_bytes_total"), "read"),
                        Query(rate("penstock_compactor_written_bytes_total"), "written"),
                    ),
                ),
                Panel(
                    "Jobs",
                    "Jobs that ended in an hour, by kind and result.",
                    "none",
                    (
                        Query(
                            "sum by (kind, result) (increase(penstock_compactor_jobs_total{@}[1h]))",
                            "{{kind}}: {{result}}",
                        ),
                    ),
                ),
            ),
        ),
        Row(
            "Deletion",
            (
                Panel(
                    "Bytes by state",
                    "`live`; `dead`, in live segments; `condemned`, dead segments; `orphaned`, named by no entry.",
                    "bytes",
                    (Query("max by (state) (penstock_janitor_bytes{@})", "{{state}}"),),
                    is_stacked=True,
                ),
                Panel(
                    "How late deletion is",
                    "Time since the oldest records should have been removed, and age of the oldest dead segment.",
                    "s",
                    (
                        Query("max(penstock_janitor_retention_lag_seconds{@})", "retention"),
                        Query("max(penstock_janitor_condemned_seconds{@})", "dead segments"),
                    ),
                ),
                Panel(
                    "Objects deleted",
                    "Objects that janitors delete in a second, by reason.",
                    "cps",
                    (Query(rate("penstock_janitor_deleted_objects_total", "reason"), "{{reason}}"),),
                ),
            ),
        ),
    ),
    (
        *INSTANCES,
        Variable("write_price", "dollars for 1,000 writes", value="0.005"),
        Variable("read_price", "dollars for 1,000 reads", value="0.0004"),
        Variable("space_price", "dollars for a GB and month", value="0.023"),
    ),
)

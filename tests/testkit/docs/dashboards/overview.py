"""The first dashboard to look at: whether clients are served, how fast, and with which resources."""

from tests.testkit.docs.dashboards.layout import INSTANCES, Dashboard, Panel, Query, Row, quantiles, rate

DASHBOARD = Dashboard(
    "overview",
    "Penstock: overview",
    "Whether clients are served, how fast, and with which resources.",
    (
        Row(
            "Now",
            (
                Panel(
                    "Alerts",
                    "Alerts of Penstock that fire. The page docs/operating/monitoring.md explains each.",
                    "none",
                    (Query('count(ALERTS{alertname=~"Penstock.*",alertstate="firing"}) or vector(0)', "firing"),),
                    is_stat=True,
                ),
                Panel(
                    "Processes",
                    "Processes that report metrics, by service. An agent is gateway, flusher and cacher in one.",
                    "none",
                    (Query("count by (service) (penstock_memory_blocks{@})", "{{service}}"),),
                    is_stat=True,
                ),
                Panel(
                    "Problems",
                    "Problems with which processes go on working; their /health has the texts.",
                    "none",
                    (Query("sum(penstock_degraded{@}) or vector(0)", "degraded"),),
                    is_stat=True,
                ),
                Panel(
                    "Connections",
                    "Open connections of Kafka clients.",
                    "none",
                    (Query("sum(penstock_gateway_connections{@})", "connections"),),
                    is_stat=True,
                ),
                Panel(
                    "Produce, 99 of 100",
                    "The time within which 99 of 100 produce requests are answered.",
                    "s",
                    (quantiles("penstock_gateway_request_seconds", '@,api="Produce"')[1],),
                    is_stat=True,
                ),
            ),
        ),
        Row(
            "Clients",
            (
                Panel(
                    "Bytes in and out",
                    "Record bytes that producers wrote, and segment bytes that gateways read for consumers.",
                    "Bps",
                    (
                        Query(rate("penstock_gateway_produced_bytes_total"), "produced"),
                        Query(rate("penstock_gateway_read_bytes_total"), "read"),
                    ),
                ),
                Panel(
                    "Produce requests",
                    "Time from the arrival of a produce request to its answer, with the upload and the commit.",
                    "s",
                    quantiles("penstock_gateway_request_seconds", '@,api="Produce"'),
                ),
                Panel(
                    "New data to waiting consumers",
                    "Time from the announcement of new data to the answer of a fetch that waited for it.",
                    "s",
                    quantiles("penstock_gateway_tail_answer_seconds"),
                ),
                Panel(
                    "Requests",
                    "Requests in a second, by API.",
                    "reqps",
                    (Query(rate("penstock_gateway_request_seconds_count", "api") + " > 0", "{{api}}"),),
                ),
                Panel(
                    "Rejected and throttled",
                    "Produced batches that were rejected, by Kafka error, and answers that a quota made wait.",
                    "cps",
                    (
                        Query(rate("penstock_gateway_batches_refused_total", "error"), "rejected: {{error}}"),
                        Query(rate("penstock_gateway_throttled_total", "quota"), "throttled: {{quota}}"),
                    ),
                ),
                Panel(
                    "Connections closed by gateways",
                    "Connections that gateways closed, by cause.",
                    "cps",
                    (Query(rate("penstock_gateway_connections_closed_total", "cause"), "{{cause}}"),),
                ),
                Panel(
                    "Logins",
                    "Logins in a second, by mechanism and outcome.",
                    "cps",
                    (Query(rate("penstock_gateway_logins_total", "mechanism, outcome"), "{{mechanism}}: {{outcome}}"),),
                ),
                Panel(
                    "Certificates",
                    "Time until the certificate of a listener expires.",
                    "s",
                    (
                        Query(
                            "min by (listener) (penstock_gateway_certificate_expiry_seconds{@}) - time()",
                            "{{listener}}",
                        ),
                    ),
                ),
                Panel(
                    "Groups that are most behind",
                    "Age of the next record of a group, for the five groups with the oldest one.",
                    "s",
                    (Query("topk(5, max by (group) (penstock_group_lag_seconds))", "{{group}}"),),
                ),
            ),
        ),
        Row(
            "Resources",
            (
                Panel(
                    "CPU",
                    "Cores in use, by service.",
                    "none",
                    (Query(rate("process_cpu_seconds_total", "service"), "{{service}}"),),
                    is_stacked=True,
                ),
                Panel(
                    "Memory",
                    "Resident memory, by service.",
                    "bytes",
                    (Query("sum by (service) (process_resident_memory_bytes{@})", "{{service}}"),),
                    is_stacked=True,
                ),
                Panel(
                    "Open files",
                    "Open files and connections of the process that has most, by service.",
                    "none",
                    (Query("max by (service) (process_open_fds{@})", "{{service}}"),),
                ),
            ),
        ),
    ),
    INSTANCES,
)

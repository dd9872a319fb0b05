"""The dashboard of topics: the rates of writes and reads, and the size of topics."""

from tests.testkit.docs.dashboards.layout import Dashboard, Panel, Query, Row, Variable


def bytes_per_second(metric: str) -> str:
    """The bytes in a second of the 20 topics with most, over all gateways."""
    return f'topk(20, sum by (topic) (rate({metric}{{topic=~"$topic"}}[$__rate_interval])))'


DASHBOARD = Dashboard(
    "topics",
    "Penstock: topics",
    "How much is written to and read from topics, and how large they are. The console and gateways report it.",
    (
        Row(
            "Now",
            (
                Panel(
                    "Topics",
                    "Number of chosen topics.",
                    "none",
                    (Query('count(penstock_topic_partitions{topic=~"$topic"})', "topics"),),
                    is_stat=True,
                ),
                Panel(
                    "Partitions",
                    "Partitions of all chosen topics.",
                    "none",
                    (Query('sum(penstock_topic_partitions{topic=~"$topic"})', "partitions"),),
                    is_stat=True,
                ),
                Panel(
                    "Size",
                    "Bytes of all chosen topics in the store.",
                    "bytes",
                    (Query('sum(penstock_topic_size_bytes{topic=~"$topic"})', "bytes"),),
                    is_stat=True,
                ),
            ),
        ),
        Row(
            "By topic",
            (
                Panel(
                    "Records written",
                    "Records written in a second, for the 20 topics with most.",
                    "cps",
                    (
                        Query(
                            "topk(20, sum by (topic) "
                            '(rate(penstock_topic_records_written_total{topic=~"$topic"}[$__rate_interval])))',
                            "{{topic}}",
                        ),
                    ),
                ),
                Panel(
                    "Bytes in and out",
                    "Record bytes that producers write and consumers read, for the 20 topics with most of each. "
                    "Gateways show the first topics that they see; `(others)` is the sum of the other topics.",
                    "Bps",
                    (
                        Query(bytes_per_second("penstock_gateway_topic_produced_bytes_total"), "in: {{topic}}"),
                        Query(bytes_per_second("penstock_gateway_topic_read_bytes_total"), "out: {{topic}}"),
                    ),
                ),
                Panel(
                    "Size of topics",
                    "Bytes in the store, for the 20 largest topics.",
                    "bytes",
                    (Query('topk(20, max by (topic) (penstock_topic_size_bytes{topic=~"$topic"}))', "{{topic}}"),),
                    is_stacked=True,
                ),
                Panel(
                    "Lag of groups by topic",
                    "Age of the next record of the slowest group, for the 20 topics with the oldest one.",
                    "s",
                    (Query('topk(20, max by (topic) (penstock_group_lag_seconds{topic=~"$topic"}))', "{{topic}}"),),
                ),
            ),
        ),
    ),
    (Variable("topic", "topic", "penstock_topic_partitions"),),
)

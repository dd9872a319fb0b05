"""The dashboard of topics: the rate of writes, and the size of topics."""

from tests.testkit.docs.dashboards.layout import Dashboard, Panel, Query, Row, Variable

DASHBOARD = Dashboard(
    "topics",
    "Penstock: topics",
    "How much is written to topics, and how large they are. The console reports these metrics.",
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

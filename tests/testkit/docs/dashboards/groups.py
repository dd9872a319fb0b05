"""The dashboard of consumer groups and share groups: how far they are behind."""

from tests.testkit.docs.dashboards.layout import Dashboard, Panel, Query, Row, Variable

CHOSEN = '{group=~"$group"}'
RATE = "[$__rate_interval]"

DASHBOARD = Dashboard(
    "groups",
    "Penstock: groups",
    "How far groups are behind. The console reports the metrics of consumer groups.",
    (
        Row(
            "Consumer groups",
            (
                Panel(
                    "Lag in time",
                    "Age of the next record of a group in a topic, for the 20 oldest.",
                    "s",
                    (
                        Query(
                            f"topk(20, max by (group, topic) (penstock_group_lag_seconds{CHOSEN}))",
                            "{{group}} {{topic}}",
                        ),
                    ),
                ),
                Panel(
                    "Lag in records",
                    "Records that a group has not read, for the 20 groups and topics with most.",
                    "none",
                    (
                        Query(
                            f"topk(20, max by (group, topic) (penstock_group_lag_records{CHOSEN}))",
                            "{{group}} {{topic}}",
                        ),
                    ),
                ),
                Panel(
                    "Members",
                    "Members of a group, for the 20 largest. A number that changes often means rebalances.",
                    "none",
                    (Query(f"topk(20, max by (group) (penstock_group_members{CHOSEN}))", "{{group}}"),),
                ),
            ),
        ),
        Row(
            "Share groups",
            (
                Panel(
                    "Records in flight",
                    "Records that members acquired, or that are available again. A number that only grows means that "
                    "acknowledgements are missing.",
                    "none",
                    (Query("max(penstock_sequencer_share_records)", "records"),),
                ),
                Panel(
                    "Acquired and acknowledged",
                    "Records that members acquired, by delivery, and acknowledged, by kind.",
                    "cps",
                    (
                        Query(
                            f"sum by (delivery) (rate(penstock_gateway_share_acquired_records_total{RATE}))",
                            "acquired: {{delivery}}",
                        ),
                        Query(
                            f"sum by (kind) (rate(penstock_gateway_share_acknowledged_records_total{RATE}))",
                            "acknowledged: {{kind}}",
                        ),
                    ),
                ),
                Panel(
                    "Dead letters",
                    "Records of dead letters, copied or with the context alone. Dropped ones are in no topic for dead "
                    "letters, because theirs is missing or does not accept them.",
                    "cps",
                    (
                        Query(
                            f"sum by (outcome) (rate(penstock_gateway_share_dead_letters_total{RATE}))",
                            "{{outcome}}",
                        ),
                    ),
                ),
                Panel(
                    "Groups in the cluster",
                    "Groups of all kinds, and share groups among them.",
                    "none",
                    (
                        Query('max(penstock_sequencer_table_rows{table="groups"})', "all"),
                        Query("max(penstock_sequencer_share_groups)", "share groups"),
                    ),
                ),
            ),
        ),
    ),
    (Variable("group", "group", "penstock_group_members"),),
)

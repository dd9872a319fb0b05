"""The dashboard of the parts: stages of a record, flushers, sequencers, cachers, and NATS."""

from tests.testkit.docs.dashboards.layout import INSTANCES, Dashboard, Panel, Query, Row, quantile, quantiles, rate

WAIT = "penstock_flusher_wait_seconds"
STAGES = (
    (WAIT, '@,for="flush"', "fill the buffer"),
    (WAIT, '@,for="upload"', "wait for the upload"),
    ("penstock_flusher_put_seconds", "@", "upload"),
    (WAIT, '@,for="turn"', "wait for earlier segments"),
    ("penstock_flusher_commit_seconds", "@", "commit"),
    ("penstock_gateway_announced_seconds", "@", "from the first byte to the announcement"),
    ("penstock_gateway_tail_answer_seconds", "@", "answer the consumer"),
)


def full(held: str, limit: str) -> str:
    """The share of a limit that the fullest process uses."""
    return f"max({held}{{@}} / {limit}{{@}})"


DASHBOARD = Dashboard(
    "internals",
    "Penstock: internals",
    "The parts of Penstock: stages of a record, flushers, sequencers, cachers, and NATS.",
    (
        Row(
            "Stages of a record",
            (
                Panel(
                    "Median time of each stage",
                    "From produce to consume. The stages follow one another; docs/operating/index.md explains them.",
                    "s",
                    tuple(Query(quantile(0.5, metric, "", matchers), name) for metric, matchers, name in STAGES),
                ),
                Panel(
                    "Slowest time of each stage",
                    "The time within which 99 of 100 records pass a stage.",
                    "s",
                    tuple(Query(quantile(0.99, metric, "", matchers), name) for metric, matchers, name in STAGES),
                ),
                Panel(
                    "Memory limits",
                    "Share of its limit that the fullest process uses. At the limit it stops reading or rejects.",
                    "percentunit",
                    (
                        Query(full("penstock_gateway_held_bytes", "penstock_gateway_held_bytes_max"), "requests"),
                        Query(full("penstock_gateway_unsent_bytes", "penstock_gateway_unsent_bytes_max"), "answers"),
                        Query(full("penstock_flusher_held_bytes", "penstock_flusher_held_bytes_max"), "flusher"),
                    ),
                ),
            ),
        ),
        Row(
            "Flushers",
            (
                Panel(
                    "Closed buffers",
                    "Buffers that became segments, by the reason why they closed.",
                    "cps",
                    (Query(rate("penstock_flusher_closed_buffers_total", "reason"), "{{reason}}"),),
                    is_stacked=True,
                ),
                Panel(
                    "Segments",
                    "Segments by outcome.",
                    "cps",
                    (Query(rate("penstock_flusher_segments_total", "outcome"), "{{outcome}}"),),
                ),
                Panel(
                    "Uploads sent twice",
                    "Small segments that were sent twice because the store was slow, by the faster upload.",
                    "cps",
                    (Query(rate("penstock_flusher_put_hedges_total", "first"), "{{first}}"),),
                ),
            ),
        ),
        Row(
            "Sequencers",
            (
                Panel(
                    "Entries and commands",
                    "Journal entries and commands that a replica applies in a second, at the fastest replica.",
                    "cps",
                    (
                        Query("max(rate(penstock_sequencer_entries_total{@}[$__rate_interval]))", "entries"),
                        Query("max(rate(penstock_sequencer_commands_total{@}[$__rate_interval]))", "commands"),
                    ),
                ),
                Panel(
                    "Append to the journal",
                    "Time from the append of an entry until its replica applied it.",
                    "s",
                    quantiles("penstock_sequencer_append_seconds"),
                ),
                Panel(
                    "Replicas behind",
                    "Journal entries between the first and the last replica.",
                    "none",
                    (
                        Query(
                            "max(penstock_sequencer_applied_sequence{@}) - min(penstock_sequencer_applied_sequence{@})",
                            "entries",
                        ),
                    ),
                ),
                Panel(
                    "Tables",
                    "Share of its rows that a table uses. From 80% on, sequencers are degraded.",
                    "percentunit",
                    (
                        Query(
                            "max by (table) (penstock_sequencer_table_rows{@} / penstock_sequencer_table_rows_max{@})",
                            "{{table}}",
                        ),
                    ),
                ),
                Panel(
                    "Age of the newest snapshot",
                    "Under load at most the setting snapshot_interval_ms, ten minutes by default.",
                    "s",
                    (Query("min(penstock_sequencer_snapshot_age_seconds{@})", "age"),),
                ),
                Panel(
                    "Open transactions",
                    "Transactions that are not ended yet. Consumers with read_committed wait for them.",
                    "none",
                    (Query("max(penstock_sequencer_ongoing_transactions{@})", "transactions"),),
                ),
                Panel(
                    "Custodian",
                    "The replica that archives the journal and takes snapshots.",
                    "none",
                    (Query("penstock_sequencer_custodian{@}", "{{instance}}"),),
                ),
            ),
        ),
        Row(
            "Cachers and NATS",
            (
                Panel(
                    "Hits of the cache",
                    "Share of the chunks that were in the memory of a cacher.",
                    "percentunit",
                    (
                        Query(
                            rate("penstock_cacher_chunks_total", matchers='@,result="hit"')
                            + " / "
                            + rate("penstock_cacher_chunks_total"),
                            "hits",
                        ),
                    ),
                ),
                Panel(
                    "Connections to NATS lost",
                    "Connections to NATS that ended in ten minutes, by service.",
                    "none",
                    (Query("sum by (service) (increase(penstock_bus_disconnects_total{@}[10m]))", "{{service}}"),),
                ),
                Panel(
                    "Messages lost",
                    "Messages of NATS that were lost in ten minutes, by cause, and cleared tail indexes.",
                    "none",
                    (
                        Query(
                            "sum by (cause) (increase(penstock_bus_dropped_messages_total{@}[10m]))",
                            "{{cause}}",
                        ),
                        Query("sum(increase(penstock_gateway_tail_losses_total{@}[10m]))", "tail index cleared"),
                    ),
                ),
            ),
        ),
    ),
    INSTANCES,
)

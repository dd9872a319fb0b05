"""The alerts: each fires at its symptom and not without it, names metrics that exist, and has a page.

`promtool` runs the rules over series in virtual time. It comes from Debian's archive.
"""

import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from tests.testkit import monitoring
from tests.testkit.servers import debian

Series = dict[str, str | None]  # values in the notation of promtool by series; None removes a healthy one

ALERTS = {alert.name: alert for alert in monitoring.alerts()}
RUNBOOKS = monitoring.ROOT / "docs" / "operating" / "runbooks"
MINUTES = 450  # the length of all series
GIB = 2**30
DAY_S = 86_400


def steady(value: float) -> str:
    return f"{value}x{MINUTES}"


def rising(by: float, start: float = 0) -> str:
    """A counter that rises by this much in each minute."""
    return f"{start}+{by}x{MINUTES}"


def seconds(metric: str, below: str, above: str, labels: str = "") -> Series:
    """A histogram whose observations all lie between two bounds of buckets."""
    return {
        f'{metric}_bucket{{{labels}le="{below}"}}': steady(0),
        f'{metric}_bucket{{{labels}le="{above}"}}': rising(60),
        f'{metric}_bucket{{{labels}le="+Inf"}}': rising(60),
    }


HEALTHY: Series = {
    'up{job="penstock",instance="a"}': steady(1),
    "penstock_gateway_connections": steady(3),
    "penstock_flusher_held_bytes": steady(0),
    "penstock_sequencer_applied_sequence": rising(60),
    "penstock_cacher_held_bytes": steady(0),
    "penstock_compactor_spark_session_open": steady(0),
    "penstock_janitor_extents": steady(10),
    'penstock_flusher_segments_total{outcome="committed"}': rising(60),
    'penstock_flusher_segments_total{outcome="upload_given_up"}': steady(0),
}


class Case(NamedTuple):
    """Series with which an alert fires, and similar ones with which no alert fires."""

    alert: str
    fires: Series
    quiet: Series
    at: str = "60m"
    also: tuple[str, ...] = ()  # other alerts that fire with it
    alerts: int = 1  # how many alerts fire under the name


PRODUCE = "penstock_gateway_request_seconds"
LOGINS = 'penstock_gateway_logins_total{mechanism="PLAIN",outcome="failed"}'
EXPIRY = 'penstock_gateway_certificate_expiry_seconds{listener="EXTERNAL"}'
JOURNAL = 'penstock_degraded{service="sequencer",instance="s",reason="journal"}'
DEGRADED = 'penstock_degraded{service="janitor",instance="j",reason="deletion"}'
HALTED = 'penstock_sequencer_halted{service="sequencer",instance="s"}'
GIVEN_UP = 'penstock_flusher_segments_total{outcome="upload_given_up"}'
STORE = 'penstock_store_requests_total{verb="get",outcome="%s"}'
AGE = "penstock_sequencer_snapshot_age_seconds"
COMMITTED = 'penstock_flusher_segments_total{outcome="committed"}'
SNAPSHOT_FAILURES = "penstock_sequencer_snapshot_failures_total"
AUDIT = 'penstock_gateway_audit_events_total{kind="changed",outcome="%s"}'
LETTERS = 'penstock_gateway_share_dead_letters_total{outcome="%s"}'
DISCONNECTS = 'penstock_bus_disconnects_total{service="gateway",instance="g"}'
DROPPED = 'penstock_bus_dropped_messages_total{service="gateway",instance="g",cause="%s"}'
HELD = '{service="gateway",instance="g"}'
TABLE = '{instance="s",table="users"}'
WAITING = 'penstock_compactor_waiting_segments{level="%s"}'
BYTES = 'penstock_janitor_bytes{state="%s"}'
LAG = 'penstock_group_lag_seconds{group="g",topic="t"}'

CASES = [
    *(
        Case("PenstockServiceDown", {metric: None}, {metric: f"_x20 {HEALTHY[metric]}"})
        for metric in (
            "penstock_gateway_connections",
            "penstock_flusher_held_bytes",
            "penstock_sequencer_applied_sequence",
        )
    ),
    *(
        Case("PenstockHelperDown", {metric: None}, {metric: "1x50 _x5 _x400"})
        for metric in (
            "penstock_cacher_held_bytes",
            "penstock_compactor_spark_session_open",
            "penstock_janitor_extents",
        )
    ),
    Case(
        "PenstockProduceSlow",
        seconds(PRODUCE, "2.5", "10", 'api="Produce",'),
        seconds(PRODUCE, "1", "2.5", 'api="Produce",') | seconds(PRODUCE, "2.5", "10", 'api="JoinGroup",'),
    ),
    Case(
        "PenstockTailSlow",
        seconds("penstock_gateway_tail_answer_seconds", "1", "2.5"),
        seconds("penstock_gateway_tail_answer_seconds", "0.5", "1"),
    ),
    Case("PenstockGroupLag", {LAG: steady(700)}, {LAG: "3x54 700x400"}),
    Case("PenstockLoginsFail", {LOGINS: rising(60)}, {LOGINS: rising(10)}),
    Case("PenstockCertificateExpires", {EXPIRY: steady(10 * DAY_S)}, {EXPIRY: steady(20 * DAY_S)}),
    Case(
        "PenstockCertificateAlmostExpired",
        {EXPIRY: steady(DAY_S)},
        {EXPIRY: steady(90 * DAY_S)},
        also=("PenstockCertificateExpires",),
    ),
    Case("PenstockJournalNotSafe", {JOURNAL: steady(1)}, {JOURNAL: "_x59 1x400"}),
    Case("PenstockSequencerHalted", {HALTED: "0x54 1 _x400"}, {HALTED: steady(0)}),
    Case("PenstockUploadsFail", {GIVEN_UP: "0x55 1x400"}, {GIVEN_UP: "0x30 1x400"}),
    Case(
        "PenstockUploadsSlow",
        seconds("penstock_flusher_put_seconds", "5", "10"),
        seconds("penstock_flusher_put_seconds", "2.5", "5"),
    ),
    Case(
        "PenstockStoreFails",
        {STORE % "ok": rising(60), STORE % "throttled": rising(6)},
        {STORE % "ok": rising(60), STORE % "throttled": rising(1), STORE % "not_found": rising(60)},
    ),
    Case(
        "PenstockCommitsSlow",
        seconds("penstock_flusher_commit_seconds", "1", "2.5"),
        seconds("penstock_flusher_commit_seconds", "0.5", "1"),
    ),
    # Without writes there is nothing to take a snapshot of, however old the newest one is.
    Case("PenstockSnapshotsOld", {AGE: rising(60, 600)}, {AGE: rising(60, 600), COMMITTED: steady(9)}, at="90m"),
    Case("PenstockSnapshotsFail", {SNAPSHOT_FAILURES: rising(1)}, {SNAPSHOT_FAILURES: "0x50 2x400"}),
    Case("PenstockAuditEventsDropped", {AUDIT % "dropped": "0x55 7x400"}, {AUDIT % "suppressed": rising(60)}),
    Case("PenstockDeadLettersDropped", {LETTERS % "dropped": "0x55 1x400"}, {LETTERS % "copied": rising(60)}),
    Case("PenstockDeadLettersDropped", {LETTERS % "dropped": rising(1)}, {LETTERS % "dropped": "0x30 9x400"}),
    Case("PenstockProcessSilent", {'up{job="penstock",instance="b"}': steady(0)}, {'up{job="node"}': steady(0)}),
    Case("PenstockDegraded", {DEGRADED: steady(1)}, {DEGRADED: "_x54 1x400"}),
    Case("PenstockNatsDisconnects", {DISCONNECTS: "0x50 5x400"}, {DISCONNECTS: "0x50 1x400"}),
    Case("PenstockNatsMessagesDropped", {DROPPED % "slow": "0x55 9x400"}, {DROPPED % "offline": "0x55 9x400"}),
    Case("PenstockNatsMessagesDropped", {DROPPED % "refused": "0x55 1x400"}, {DROPPED % "slow": "0x30 9x400"}),
    *(
        Case(
            alert,
            {f"penstock_{memory}_bytes{HELD}": steady(90), f"penstock_{memory}_bytes_max{HELD}": steady(100)},
            {f"penstock_{memory}_bytes{HELD}": steady(70), f"penstock_{memory}_bytes_max{HELD}": steady(100)},
        )
        for alert, memory in (
            ("PenstockGatewayFull", "gateway_held"),
            ("PenstockGatewayFull", "gateway_unsent"),
            ("PenstockFlusherFull", "flusher_held"),
        )
    ),
    Case(
        "PenstockTableAlmostFull",
        {
            f"penstock_sequencer_table_rows{TABLE}": steady(85),
            f"penstock_sequencer_table_rows_max{TABLE}": steady(100),
            'penstock_degraded{service="sequencer",instance="s",reason="tables"}': steady(1),
        },
        {
            f"penstock_sequencer_table_rows{TABLE}": steady(75),
            f"penstock_sequencer_table_rows_max{TABLE}": steady(100),
        },
    ),
    Case("PenstockCompactionBehind", {WAITING % 0: steady(4_000)}, {WAITING % 0: "10x45 4000x400"}),
    Case("PenstockCompactionBehind", {WAITING % 0: rising(1_000)}, {WAITING % 1: steady(4_000)}),
    Case(
        "PenstockRetentionBehind",
        {"penstock_janitor_retention_lag_seconds": steady(4_000)},
        {"penstock_janitor_retention_lag_seconds": steady(60)},
    ),
    Case(
        "PenstockDeletionBehind",
        {"penstock_janitor_condemned_seconds": steady(8_000)},
        {"penstock_janitor_condemned_seconds": steady(1_800)},
    ),
    Case(
        "PenstockDeadBytes",
        {BYTES % "dead": steady(20 * GIB), BYTES % "live": steady(30 * GIB)},
        {BYTES % "dead": steady(20 * GIB), BYTES % "live": steady(300 * GIB)},
        at="7h",
    ),
    Case("PenstockOrphans", {BYTES % "orphaned": steady(20 * GIB)}, {BYTES % "orphaned": steady(GIB)}, at="70m"),
]


def firing_tests(case: Case, series: Series, firing: tuple[str, ...]) -> dict[str, Any]:
    """A file for `promtool test rules`: with these series, these alerts fire and no others."""
    shown = "".join(f',{label}!=""' for label in sorted(ALERTS[case.alert].labels()))
    own = f'count(ALERTS{{alertstate="firing",alertname="{case.alert}"{shown}}})'
    all_names = 'count by (alertname) (ALERTS{alertstate="firing"})'
    samples = [{"labels": f'{{alertname="{name}"}}', "value": 1} for name in sorted(firing)]
    expected = {own: [{"labels": "{}", "value": 1}] if firing else [], all_names: samples}
    return {
        "rule_files": [str(monitoring.ALERTS)],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": [
                    {"series": name, "values": values}
                    for name, values in (HEALTHY | series).items()
                    if values is not None
                ],
                "promql_expr_test": [
                    {"expr": query, "eval_time": case.at, "exp_samples": found} for query, found in expected.items()
                ],
            }
        ],
    }


def promtool(*arguments: str) -> None:
    """Run promtool; its output is the message of a failure."""
    done = subprocess.run([debian.prometheus("promtool"), *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_prometheus_accepts_the_alerts_and_the_settings() -> None:
    promtool("check", "rules", "--lint-fatal", str(monitoring.ALERTS))
    for name in ("prometheus", "secure", "up"):
        promtool("check", "config", "--syntax-only", str(monitoring.ALERTS.with_name(f"{name}.yaml")))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.alert)
def test_an_alert_fires_at_its_symptom_and_its_texts_have_their_labels(case: Case, tmp_path: Path) -> None:
    path = tmp_path / "fires.yaml"
    path.write_text(yaml.safe_dump(firing_tests(case, case.fires, (case.alert, *case.also))))
    promtool("test", "rules", str(path))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.alert)
def test_no_alert_fires_while_the_symptom_is_short_or_small(case: Case, tmp_path: Path) -> None:
    path = tmp_path / "quiet.yaml"
    path.write_text(yaml.safe_dump(firing_tests(case, case.quiet, ())))
    promtool("test", "rules", str(path))


def test_every_alert_is_tested() -> None:
    assert {case.alert for case in CASES} == set(ALERTS)


@pytest.mark.parametrize("alert", ALERTS.values(), ids=lambda alert: alert.name)
def test_an_alert_has_a_severity_a_summary_a_description_and_a_page(alert: monitoring.Alert) -> None:
    assert alert.severity in ("critical", "warning")
    assert set(alert.annotations) == {"summary", "description", "runbook_url"}
    page = monitoring.ROOT / alert.annotations["runbook_url"]
    assert page.parent == RUNBOOKS
    assert f"`{alert.name}`" in page.read_text(), "the page names its alert"
    assert f"({page.name})" in (RUNBOOKS / "index.md").read_text()


@pytest.mark.parametrize("alert", ALERTS.values(), ids=lambda alert: alert.name)
def test_every_metric_of_an_alert_exists_with_its_labels(alert: monitoring.Alert) -> None:
    known = monitoring.known_metrics()
    found = monitoring.selectors(alert.expression)
    assert found or "up{" in alert.expression
    for metric, labels in found:
        assert labels <= known[metric], metric

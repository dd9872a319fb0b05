"""How permission errors of a nats-server are parsed, and how many of them are logged."""

import pytest
import structlog.testing

from penstock.runtime.nats.permissions import SUBJECTS_LOGGED_MAX, Rejection, RejectionLog, parse_rejection


@pytest.mark.parametrize(
    ("text", "rejection"),
    [
        ('nats: permissions violation for publish to "a.b"', Rejection("a.b", is_subscription=False)),
        ('nats: permissions violation for subscription to "_inbox.x.>"', Rejection("_inbox.x.>", is_subscription=True)),
        ('permissions violation for subscription to "a" using queue "q"', Rejection("a", is_subscription=True)),
        ('Permissions Violation for Publish to "$JS.API.X"', Rejection("$js.api.x", is_subscription=False)),
    ],
)
def test_a_rejection_names_its_subject_and_the_rejected_verb(text: str, rejection: Rejection) -> None:
    assert parse_rejection(text) == rejection


@pytest.mark.parametrize(
    "text", ["", "nats: stale connection", "nats: authorization violation", "permissions violation"]
)
def test_other_errors_are_no_rejections(text: str) -> None:
    assert parse_rejection(text) is None


def test_each_rejected_subject_is_logged_once() -> None:
    rejections = RejectionLog()
    with structlog.testing.capture_logs() as logged:
        for _ in range(3):
            rejections.record(Rejection("a", is_subscription=False))
            rejections.record(Rejection("a", is_subscription=True))
    assert logged == [
        {"event": "nats_permission_denied", "log_level": "error", "verb": "publish", "subject": "a"},
        {"event": "nats_permission_denied", "log_level": "error", "verb": "subscribe", "subject": "a"},
    ]


def test_many_rejected_subjects_do_not_fill_the_log() -> None:
    rejections = RejectionLog()
    with structlog.testing.capture_logs() as logged:
        for number in range(2 * SUBJECTS_LOGGED_MAX):
            rejections.record(Rejection(f"inbox.{number}", is_subscription=False))
    assert len(logged) == SUBJECTS_LOGGED_MAX

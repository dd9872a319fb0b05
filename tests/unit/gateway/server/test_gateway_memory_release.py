"""Freed memory goes back after large requests, when none is left, and seldom."""

from penstock_gateway.server.limits import MemoryReleaseLimits
from penstock_gateway.server.memory_release import MemoryRelease

LIMITS = MemoryReleaseLimits(granted_bytes_min=100, interval_s=10.0)


def test_memory_is_given_back_once_after_large_requests() -> None:
    release = MemoryRelease(LIMITS)
    assert not release.is_due(granted_bytes=99, reserved_bytes=0, now_s=1.0)
    assert release.is_due(granted_bytes=100, reserved_bytes=0, now_s=2.0)
    assert not release.is_due(granted_bytes=100, reserved_bytes=0, now_s=99.0)
    assert not release.is_due(granted_bytes=199, reserved_bytes=0, now_s=99.0)
    assert release.is_due(granted_bytes=200, reserved_bytes=0, now_s=99.0)


def test_memory_is_not_given_back_while_a_large_request_is_left() -> None:
    release = MemoryRelease(LIMITS)
    assert not release.is_due(granted_bytes=500, reserved_bytes=1, now_s=1.0)
    assert release.is_due(granted_bytes=500, reserved_bytes=0, now_s=2.0)


def test_memory_is_given_back_seldom() -> None:
    release = MemoryRelease(LIMITS)
    assert release.is_due(granted_bytes=500, reserved_bytes=0, now_s=1.0)
    assert not release.is_due(granted_bytes=900, reserved_bytes=0, now_s=10.5)
    assert release.is_due(granted_bytes=900, reserved_bytes=0, now_s=11.0)

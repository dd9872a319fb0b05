"""The allocator's settings."""

import ctypes

import pytest

from penstock.runtime.process.malloc import tune_malloc


def test_glibc_takes_the_settings() -> None:
    if not hasattr(ctypes.CDLL(None), "gnu_get_libc_version"):
        pytest.skip("this C library is not glibc")
    assert tune_malloc() is True


def test_without_a_mallopt_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _name: object())
    assert tune_malloc() is False

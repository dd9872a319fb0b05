"""Connections to real servers, on a machine that may have no time for them."""

import pytest

from penstock.runtime.nats import client as nats_client

PATIENCE_S = 60.0


@pytest.fixture(autouse=True)
def patient_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that stands still for seconds is no failure; tests of servers that are away say how long they wait."""
    for name in ("CONNECT_DEADLINE_S", "FLUSH_TIMEOUT_S"):
        monkeypatch.setattr(nats_client, name, PATIENCE_S)

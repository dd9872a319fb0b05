"""compose.clusters.yaml: it creates the clusters in PENSTOCK_CLUSTERS, and all services that can host them do."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
import yaml

from penstock.cli import main
from penstock.clusters import ClusterRegistry
from penstock.objectstore import open_store
from penstock.runtime.process.config import HostingConfig
from tests.testkit.docs.settings import CONFIGS
from tests.testkit.monitoring import ROOT


class ComposeLoader(yaml.SafeLoader):
    """YAML with the tags of compose files."""


ComposeLoader.add_constructor("!reset", lambda _loader, _node: None)
SERVICES: dict[str, Any] = yaml.load((ROOT / "compose.clusters.yaml").read_text(), ComposeLoader)["services"]


def test_each_service_that_can_host_clusters_follows_the_registry() -> None:
    hosting = {name for name, each in SERVICES.items() if each.get("environment", {}).get("PENSTOCK_CLUSTERS") == "*"}
    assert hosting == {name for name, kind in CONFIGS.items() if issubclass(kind, HostingConfig)} | {"agent"}


def test_each_start_creates_the_missing_clusters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_STORE_URL", f"file://{tmp_path}/objects")
    monkeypatch.setenv("PENSTOCK_NATS_URL", "nats://127.0.0.1:1")
    *command, variable = SERVICES["clusters"]["entrypoint"]
    assert variable.startswith("${PENSTOCK_CLUSTERS:?")
    assert command[:3] == ["python", "-m", "penstock.cli"]
    for clusters in ("default,orders", "default,orders,sales"):
        assert main([*command[3:], clusters]) == 0
        assert asyncio.run(registered(tmp_path)) == clusters.split(",")


async def registered(folder: Path) -> list[str]:
    store = await open_store(f"file://{folder}/objects")
    found = await ClusterRegistry(store).read_all()
    await store.close()
    return sorted(each.record.name for each in found)

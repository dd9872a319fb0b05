"""The profile `monitoring` of compose.yaml: pinned images on loopback, and settings that fit together."""

import re
from typing import Any

import pytest
import yaml

from tests.testkit import monitoring

COMPOSE = yaml.safe_load((monitoring.ROOT / "compose.yaml").read_text())["services"]
MONITORING = {name: service for name, service in COMPOSE.items() if "monitoring" in service.get("profiles", [])}
SETTINGS = {
    name: yaml.safe_load(monitoring.ALERTS.with_name(f"{name}.yaml").read_text())
    for name in ("prometheus", "secure", "up")
}
PROVISIONING = monitoring.ROOT / "deploy" / "grafana" / "provisioning"


def job_of(name: str) -> dict[str, Any]:
    """The only job of a settings file."""
    (job,) = SETTINGS[name]["scrape_configs"]
    return dict(job)


def served() -> set[str]:
    """The services that have metrics; an agent has the name of a gateway in the network."""
    return {
        name
        for name, service in COMPOSE.items()
        if "PENSTOCK_CLUSTER" in service.get("environment", {})
        and not service.get("healthcheck", {}).get("disable")
        and "profiles" not in service
    }


@pytest.mark.parametrize("name", MONITORING)
def test_a_service_of_the_profile_is_pinned_limited_checked_and_on_loopback_only(name: str) -> None:
    service = MONITORING[name]
    assert re.fullmatch(r"[a-z]+/[a-z]+:v?\d+\.\d+\.\d+", service["image"])
    assert service["mem_limit"]
    assert service["healthcheck"]["test"]
    assert all(port.startswith("127.0.0.1:") for port in service["ports"])


@pytest.mark.parametrize("name", MONITORING)
def test_the_folders_that_a_service_of_the_profile_mounts_exist(name: str) -> None:
    mounts = [volume.split(":")[0] for volume in MONITORING[name]["volumes"]]
    assert [folder for folder in mounts if folder.startswith("./")]
    assert not [each for each in mounts if each.startswith("./") and not (monitoring.ROOT / each).is_dir()]


def test_only_prometheus_and_grafana_have_the_profile() -> None:
    assert set(MONITORING) == {"prometheus", "grafana"}


def test_prometheus_scrapes_every_service_of_compose_and_those_of_the_second_zone_and_pool() -> None:
    (names,) = [found["names"] for found in job_of("prometheus")["dns_sd_configs"]]
    others = [
        name
        for file in ("compose.zones.yaml", "compose.pools.yaml")
        for name in yaml.safe_load((monitoring.ROOT / file).read_text().replace("!override", ""))["services"]
    ]
    assert set(names) == served() | {name for name in others if not name.startswith("proxy")}


def test_the_settings_for_the_secure_project_only_add_the_token() -> None:
    token = {"authorization": {"type": "Bearer", "credentials_file": "/run/credentials/http-token"}}
    assert job_of("secure") == job_of("prometheus") | token
    assert SETTINGS["secure"] | {"scrape_configs": []} == SETTINGS["prometheus"] | {"scrape_configs": []}


@pytest.mark.parametrize("name", SETTINGS)
def test_all_settings_have_the_alerts_and_the_job_that_alerts_name(name: str) -> None:
    assert SETTINGS[name]["rule_files"] == [monitoring.ALERTS.name]
    assert job_of(name)["job_name"] == "penstock"
    assert any('job="penstock"' in alert.expression for alert in monitoring.alerts())


def test_grafana_finds_prometheus_and_the_dashboards() -> None:
    (source,) = yaml.safe_load((PROVISIONING / "datasources" / "prometheus.yaml").read_text())["datasources"]
    assert source["url"] == "http://prometheus:9090"
    assert source["jsonData"]["timeInterval"] == SETTINGS["prometheus"]["global"]["scrape_interval"]
    (provider,) = yaml.safe_load((PROVISIONING / "dashboards" / "penstock.yaml").read_text())["providers"]
    assert f"./deploy/grafana/dashboards:{provider['options']['path']}:ro" in MONITORING["grafana"]["volumes"]
    home = MONITORING["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert home == f"{provider['options']['path']}/overview.json"
    assert "overview" in monitoring.dashboards()

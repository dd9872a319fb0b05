"""A real Prometheus for tests, with the settings and alerts of deploy/prometheus, for one `penstock up`."""

import contextlib
import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from tests.testkit.clusters.cluster import wait_until
from tests.testkit.monitoring import ALERTS
from tests.testkit.servers import debian
from tests.testkit.servers.backend import LOOPBACK, Process
from tests.testkit.servers.ports import free_port

SETTINGS = ALERTS.with_name("up.yaml")
SCRAPE_INTERVAL = "5s"  # also how long a page may take: after a scrape without an answer, queries return nothing
RULE_INTERVAL = "1s"
ALERT_AFTER = "2s"
START_TIMEOUT_S = 60.0
ANSWER_TIMEOUT_S = 60.0


class PrometheusServer:
    """The answers of a running server."""

    def __init__(self, address: str) -> None:
        self._address = address

    def is_ready(self) -> bool:
        """Whether it answers queries."""
        with contextlib.suppress(OSError):
            self._get("/-/ready")
            return True
        return False

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The series that a query has now; an error of the server fails the test with its text."""
        query = urllib.parse.urlencode({"query": expression})
        try:
            answer = json.loads(self._get(f"/api/v1/query?{query}"))
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{expression}: {error.read().decode()}") from error
        found: list[dict[str, Any]] = answer["data"]["result"]
        return found

    def _get(self, path: str) -> bytes:
        with urllib.request.urlopen(f"http://{self._address}{path}", timeout=ANSWER_TIMEOUT_S) as answer:
            text: bytes = answer.read()
            return text


@contextlib.contextmanager
def running_prometheus(folder: Path, target: str) -> Iterator[PrometheusServer]:
    """A Prometheus that scrapes the console at `target`; its data and its log are in `folder`.

    Alerts fire when their expression is true for `ALERT_AFTER`, not after the minutes of their rules.
    """
    rules = yaml.safe_load(ALERTS.read_text())
    for rule in (rule for group in rules["groups"] for rule in group["rules"]):
        rule["for"] = ALERT_AFTER
    alerts = folder / "alerts.yaml"
    alerts.write_text(yaml.safe_dump(rules))
    settings = yaml.safe_load(SETTINGS.read_text())
    settings["global"] = {"scrape_interval": SCRAPE_INTERVAL, "evaluation_interval": RULE_INTERVAL}
    settings["rule_files"] = [str(alerts)]
    settings["scrape_configs"][0]["static_configs"] = [{"targets": [target]}]
    path = folder / "prometheus.yaml"
    path.write_text(yaml.safe_dump(settings))
    address = f"{LOOPBACK}:{free_port()}"
    command = [
        debian.prometheus(),
        f"--config.file={path}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address={address}",
    ]
    backend = Process(command, folder, folder / "prometheus.log")
    server = PrometheusServer(address)
    try:
        wait_until(server.is_ready, START_TIMEOUT_S, "prometheus to be ready")
        yield server
    finally:
        backend.kill()

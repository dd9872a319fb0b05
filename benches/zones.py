"""The cost of the readers of a zone, from its metrics: requests to the store, and the sources of the bytes."""

import contextlib
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator

from tests.testkit.clusters.cluster import Cluster, wait_until
from tests.testkit.metrics import total
from tests.testkit.servers.ports import free_ports

FAR_ZONE = "z2"
TIMEOUT_S = 300.0


class FarZone:
    """A gateway and a cacher in a second zone, which has no flusher."""

    def __init__(self, cluster: Cluster, store_url: str) -> None:
        kafka_port, *self._http_ports = free_ports(3)
        self.kafka = f"127.0.0.1:{kafka_port}"
        common = {
            "PENSTOCK_ZONE": FAR_ZONE,
            "PENSTOCK_NATS_URL": cluster.nats_url,
            "PENSTOCK_STORE_URL": store_url,
            "PENSTOCK_LISTENERS": f"PLAINTEXT://{self.kafka}",
        }
        self._processes = [
            subprocess.Popen(
                [sys.executable, "-m", f"penstock_{role}"],
                env=os.environ | common | {"PENSTOCK_HTTP_PORT": str(port)},
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            for role, port in zip(("gateway", "cacher"), self._http_ports, strict=True)
        ]
        wait_until(self._is_ready, TIMEOUT_S, "the far zone to be ready")

    def close(self) -> None:
        """Stop both processes."""
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            process.wait()

    def _is_ready(self) -> bool:
        try:
            return all(_http(port, "ready") is not None for port in self._http_ports)
        except OSError:
            return False


@contextlib.contextmanager
def far_zone(cluster: Cluster, store_url: str) -> Iterator[FarZone]:
    """A second zone until the end of the block."""
    far = FarZone(cluster, store_url)
    try:
        yield far
    finally:
        far.close()


def account(cluster: Cluster) -> dict[str, dict[str, float]]:
    """The counters so far, by zone, with "all" for both zones."""
    found = cluster.metrics()
    return {
        "all": {"PUTs": total(found, "penstock_store_requests_total", verb="put", service="flusher")},
        **{name: _account_of(found, zone) for name, zone in (("near", "local"), ("far", FAR_ZONE))},
    }


def spent(before: dict[str, dict[str, float]], after: dict[str, dict[str, float]]) -> dict[str, dict[str, float]]:
    """The differences between two accounts."""
    return {
        zone: {name: value - before[zone][name] for name, value in figures.items()} for zone, figures in after.items()
    }


def _account_of(found: dict[str, float], zone: str) -> dict[str, float]:
    def of_readers(name: str) -> float:
        return sum(
            total(found, name, verb="get_range", zone=zone, service=service) for service in ("gateway", "cacher")
        )

    return {
        "GETs": of_readers("penstock_store_requests_total"),
        "by cachers": total(found, "penstock_store_requests_total", verb="get_range", zone=zone, service="cacher"),
        "GET MiB": of_readers("penstock_store_bytes_total") / 2**20,
        "cache hits": total(found, "penstock_cacher_chunks_total", result="hit", zone=zone),
        "cache misses": total(found, "penstock_cacher_chunks_total", result="miss", zone=zone),
        "MiB from tail": total(found, "penstock_cacher_load_bytes_total", source="writer", zone=zone) / 2**20,
        "MiB from cache": total(found, "penstock_gateway_read_bytes_total", source="cache", zone=zone) / 2**20,
        "MiB from store": (
            total(found, "penstock_cacher_load_bytes_total", source="store", zone=zone)
            + total(found, "penstock_gateway_read_bytes_total", source="store", zone=zone)
        )
        / 2**20,
        "hedges": total(found, "penstock_gateway_cacher_hedges_total", zone=zone),
        "cachers' failures": total(found, "penstock_gateway_cacher_failures_total", zone=zone),
    }


def _http(port: int, path: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=10) as answer:
        return str(answer.read().decode())

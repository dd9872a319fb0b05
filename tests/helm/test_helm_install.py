"""`helm install` and `helm upgrade` of every example at a real API server of Kubernetes, which has no nodes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helm.conftest import EXAMPLE_NAMES
from tests.testkit.helm import EXAMPLES, RELEASE, Chart
from tests.testkit.kubernetes import ApiServer, running_api_server

pytestmark = pytest.mark.kubernetes

WORKLOADS = ("deployments", "statefulsets")
RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted", "pod-security.kubernetes.io/warn": "restricted"}


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    with running_api_server(tmp_path_factory.mktemp("kubernetes")) as started:
        started.accept_other_kinds()
        yield started


@pytest.mark.parametrize("example", EXAMPLE_NAMES)
def test_a_release_is_installed_upgraded_and_removed(
    chart: Chart, server: ApiServer, example: str, tmp_path: Path
) -> None:
    config = tmp_path / "config"
    server.write_config(config)
    metadata = {"name": example, "labels": RESTRICTED}
    server.request("POST", "/api/v1/namespaces", {"metadata": metadata})
    common = ["--kubeconfig", str(config), "-n", example]
    # No controller completes the Jobs that Helm would wait for.
    values = ["{chart}", *common, "-f", str(EXAMPLES / f"{example}.yaml"), "--no-hooks"]
    installed = chart.run("install", RELEASE, *values)
    assert installed.returncode == 0, installed.stderr
    assert images(server, example)
    upgraded = chart.run("upgrade", RELEASE, *values, "--set", "image.tag=next")
    assert upgraded.returncode == 0, upgraded.stderr
    assert all(image.endswith(":next") for image in images(server, example))
    warnings = [line for line in (installed.stderr + upgraded.stderr).splitlines() if "PodSecurity" in line]
    assert not warnings, "\n".join(warnings)
    removed = chart.run("uninstall", RELEASE, *common, "--no-hooks")
    assert removed.returncode == 0, removed.stderr
    assert not images(server, example)


def images(server: ApiServer, namespace: str) -> list[str]:
    """The images of Penstock's own workloads."""
    found = []
    for kind in WORKLOADS:
        for each in server.request("GET", f"/apis/apps/v1/namespaces/{namespace}/{kind}")["items"]:
            containers = each["spec"]["template"]["spec"]["containers"]
            found += [container["image"] for container in containers if "penstock" in container["image"]]
    return found

"""Fixtures: the images under test, built once, and one compose project per test module."""

import fcntl
import os
from collections.abc import Iterator

import pytest

from tests.testkit.clusters.compose import Project, build_images, running_project


@pytest.fixture(scope="session", autouse=True)
def images(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Build every image from the present code, once per run: other test processes wait.

    `make e2e-compose` has built them already, and sets PENSTOCK_E2E_IMAGES.
    """
    if os.environ.get("PENSTOCK_E2E_IMAGES") == "built":
        return
    folder = tmp_path_factory.getbasetemp()
    folder = (
        folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder
    )  # each process has a folder in the run's folder
    built = folder / "images-built"
    with (folder / "images-lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not built.exists():
            build_images()
            built.touch()


@pytest.fixture(scope="module")
def shared_project(request: pytest.FixtureRequest) -> Iterator[Project]:
    """One container of each service, for one module's tests."""
    module = request.module.__name__.rpartition("test_compose_")[2]
    with running_project(f"penstock-e2e-{module}") as started:
        yield started


@pytest.fixture
def project(request: pytest.FixtureRequest, shared_project: Project) -> Iterator[Project]:
    """The module's project, healed after each test; a failed test prints its logs."""
    failed_before = request.session.testsfailed
    yield shared_project
    if request.session.testsfailed > failed_before:
        shared_project.print_logs()
    shared_project.heal()

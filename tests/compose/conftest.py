"""The images under test, built once, and the project that a module's tests share."""

import fcntl
import os
from collections.abc import Iterator

import pytest

from tests.testkit.clusters.compose import Project, build_images, running_project


@pytest.fixture(scope="session", autouse=True)
def images(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Every image is built from the code as it is; by one of the processes that share the tests, while others wait.

    `make e2e-compose` has just done that, and says so.
    """
    if os.environ.get("PENSTOCK_E2E_IMAGES") == "built":
        return
    folder = tmp_path_factory.getbasetemp()
    folder = folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder  # each has a folder in the run's
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
    """The module's, well again after each test; what it logged stands beside a failure."""
    failed_before = request.session.testsfailed
    yield shared_project
    if request.session.testsfailed > failed_before:
        shared_project.print_logs()
    shared_project.heal()

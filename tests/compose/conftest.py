"""The images under test, built once, and the project that a module's tests share."""

from collections.abc import Iterator

import pytest

from tests.testkit.compose import Project, build_images, running_project


@pytest.fixture(scope="session", autouse=True)
def images() -> None:
    """Every image is built from the code as it is."""
    build_images()


@pytest.fixture(scope="module")
def project(request: pytest.FixtureRequest) -> Iterator[Project]:
    """One container of each service, for one module's tests."""
    module = request.module.__name__.rpartition("test_compose_")[2]
    with running_project(f"penstock-e2e-{module}") as started:
        yield started

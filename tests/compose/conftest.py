"""The images under test, built once, and the project that most tests share."""

from collections.abc import Iterator

import pytest

from tests.testkit.compose import Project, build_images, running_project


@pytest.fixture(scope="session", autouse=True)
def images() -> None:
    """Every image is built from the code as it is."""
    build_images()


@pytest.fixture(scope="module")
def project() -> Iterator[Project]:
    """One container of each service."""
    with running_project("penstock-e2e") as started:
        yield started

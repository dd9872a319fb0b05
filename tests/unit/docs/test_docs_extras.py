"""The extras that pages and messages name exist."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[3]
NAMED = re.compile(r"penstock\[(?P<extras>[a-z0-9,]+)\]")


def test_every_extra_that_a_page_or_a_message_names_exists() -> None:
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    files = [
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/**/*.md"),
        *ROOT.glob("libs/src/**/*.py"),
        *ROOT.glob("services/**/*.py"),
    ]
    named = {
        (extra, path.relative_to(ROOT).as_posix())
        for path in files
        for found in NAMED.finditer(path.read_text(encoding="utf-8"))
        for extra in found["extras"].split(",")
    }
    assert "spark" in {extra for extra, _ in named}
    assert sorted(each for each in named if each[0] not in known) == []

"""The list of licences, and the result of the search for vulnerabilities."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.testkit.supply.audit import CLEAN, NOT_CHECKED, VULNERABLE, judge
from tests.testkit.supply.licences import main


def answer(*packages: dict[str, Any]) -> bytes:
    return json.dumps({"dependencies": packages, "fixes": []}).encode()


GOOD = {"name": "good", "version": "1", "vulns": []}
BAD = {"name": "bad", "version": "2", "vulns": [{"id": "CVE-1", "fix_versions": ["3"], "aliases": []}]}
SKIPPED = {"name": "lost", "skip_reason": "not found"}


@pytest.mark.parametrize(
    ("data", "code", "text"),
    [
        (answer(GOOD), CLEAN, "1 packages checked, no known vulnerability"),
        (answer(GOOD, BAD), VULNERABLE, "bad 2: CVE-1, mended in 3"),
        (answer(BAD, SKIPPED), VULNERABLE, "bad 2: CVE-1, mended in 3"),
        (answer(GOOD, SKIPPED), NOT_CHECKED, "1 of 2 packages were not checked: not found"),
        (answer(), NOT_CHECKED, "0 of 0 packages were not checked: the list is empty"),
        (b"", NOT_CHECKED, "pip-audit gave no answer, so nothing was checked: is there a package index?"),
    ],
)
def test_only_packages_that_were_checked_count_as_clean(data: bytes, code: int, text: str) -> None:
    assert judge(data) == (code, [text])


def bill(folder: Path, *components: dict[str, Any]) -> str:
    path = folder / "sbom.json"
    path.write_text(json.dumps({"bomFormat": "CycloneDX", "components": components}))
    return str(path)


def test_each_package_has_its_licence_in_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    long = {"license": {"name": "declared licence\nwith its whole text"}}
    components = [
        {"name": "b", "version": "1", "licenses": [long, {"license": {"id": "MIT"}}]},
        {"name": "a", "version": "2", "licenses": [{"expression": "MIT OR Apache-2.0"}]},
    ]
    assert main(bill(tmp_path, *components)) == 0
    assert capsys.readouterr().out.splitlines()[2:] == ["| a 2 | MIT OR Apache-2.0 |", "| b 1 | MIT |"]


def test_a_package_without_a_licence_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(bill(tmp_path, {"name": "x", "version": "1"})) == 1
    assert capsys.readouterr().err == "no licence is named by x 1\n"
    assert main(bill(tmp_path)) == 1
